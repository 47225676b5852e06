package disk

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A gatedLog writes when it is let, and fails when it is told to.
type gatedLog struct {
	*raft.InmemStore
	gate chan error
}

func (g *gatedLog) StoreLogs(entries []*raft.Log) error {
	if err := <-g.gate; err != nil {
		return err
	}

	return g.InmemStore.StoreLogs(entries)
}

func entryAt(index uint64, kind raft.LogType) []*raft.Log {
	return []*raft.Log{{Index: index, Term: 1, Type: kind}}
}

// waiting calls f and returns a channel that has its result once it returns.
func waiting(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()

	return done
}

func isWaiting(t *testing.T, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()

	select {
	case err := <-done:
		t.Fatalf("%s does not wait: %v", what, err)
	default:
	}
}

// What a leader writes ahead is nobody's business before its disk has it: not
// apply's, not the others', and nothing that comes later is written before.
func TestWhatIsWrittenAheadIsKeptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &gatedLog{InmemStore: raft.NewInmemStore(), gate: make(chan error)}
		leads := true

		a := must(newAheadLog(disk, func() bool { return leads }))
		for i := range uint64(3) {
			directorytest.Must(t, a.StoreLogs(entryAt(i+1, raft.LogCommand)))
		}

		var got raft.Log
		if err := a.GetLog(3, &got); err != nil || got.Index != 3 || must(a.LastIndex()) != 3 {
			t.Errorf("the last entry reads as %+v (%v)", got, err)
		}

		word := &raft.AppendEntriesRequest{LeaderCommitIndex: 3}
		if n := a.Withhold(word).LeaderCommitIndex; n != 0 || word.LeaderCommitIndex != 3 {
			t.Errorf("others hear of %d", n)
		}

		applied := waiting(func() error { return a.Wait(2) })
		isWaiting(t, "apply", applied)

		leads = false // from now on as a follower
		stored := waiting(func() error { return a.StoreLogs(entryAt(4, raft.LogCommand)) })
		isWaiting(t, "a follower's write", stored)
		close(disk.gate)

		directorytest.Must(t, errors.Join(<-applied, <-stored, a.Wait(4)))

		if a.Withhold(word) != word {
			t.Error("a word is kept back that may be told")
		}

		gone := waiting(func() error { return a.DeleteRange(3, 4) })
		if err := <-gone; err != nil || must(disk.LastIndex()) != 2 || a.Withhold(word).LeaderCommitIndex != 2 {
			t.Errorf("a tail was deleted: %v", err)
		}

		a.close()
	})
}

// To delete what is old forgets nothing of what the disk has got meanwhile: apply
// would wait for it.
func TestDeletingOldEntriesLeavesTheLaterOnesWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &gatedLog{InmemStore: raft.NewInmemStore(), gate: make(chan error)}
		a := must(newAheadLog(disk, func() bool { return true }))
		defer a.close()

		directorytest.Must(t, a.StoreLogs(entryAt(1, raft.LogCommand)))

		disk.gate <- nil

		directorytest.Must(t, errors.Join(a.Wait(1), a.StoreLogs(entryAt(2, raft.LogCommand))))

		gone := waiting(func() error { return a.DeleteRange(1, 1) })
		synctest.Wait()
		close(disk.gate)

		directorytest.Must(t, <-gone)

		applied := waiting(func() error { return a.Wait(2) })
		synctest.Wait()

		select {
		case err := <-applied:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("apply waits for what is written")
		}
	})
}

// Only commands are written ahead: of what is no command, such as the members,
// Raft makes use itself.
func TestOnlyCommandsAreWrittenAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &gatedLog{InmemStore: raft.NewInmemStore(), gate: make(chan error)}
		a := must(newAheadLog(disk, func() bool { return true }))
		stored := waiting(func() error { return a.StoreLogs(entryAt(1, raft.LogConfiguration)) })
		isWaiting(t, "a configuration", stored)
		disk.gate <- nil

		directorytest.Must(t, <-stored)

		a.close()
	})
}

// Nothing is applied of what the leader's disk refused, and nothing is written
// after it.
func TestWhatCannotBeWrittenAheadIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &gatedLog{InmemStore: raft.NewInmemStore(), gate: make(chan error)}

		a := must(newAheadLog(disk, func() bool { return true }))
		directorytest.Must(t, a.StoreLogs(entryAt(1, raft.LogCommand)))

		full := errors.New("no space left on device")
		applied := waiting(func() error { return a.Wait(1) })
		isWaiting(t, "apply", applied)
		disk.gate <- full

		if err := <-applied; !errors.Is(err, full) {
			t.Errorf("apply went on: %v", err)
		}

		if err := a.StoreLogs(entryAt(2, raft.LogCommand)); !errors.Is(err, full) {
			t.Errorf("a later entry: %v", err)
		}

		if n := a.Withhold(&raft.AppendEntriesRequest{LeaderCommitIndex: 1}).LeaderCommitIndex; n != 0 {
			t.Errorf("others hear of %d", n)
		}

		a.close()
	})
}
