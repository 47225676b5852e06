package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// cosign has the domain take a checkpoint.
func (d *drive) cosign(seconds int64, origin string, old, size uint64, root byte) error {
	d.t.Helper()

	return d.at(seconds, Command{Cosign: &Cosign{Origin: origin, Old: old, Size: size, Root: directory.Hash{root},
		Note: fmt.Sprintf("%s\n%d\n", origin, size)}}).Err
}

const betaLog = "beta.test/roster/1793491200"

// A checkpoint is taken only behind the one that was cosigned last, and the same again.
//
// Requirement: MESH-023, LOG-007
func TestACheckpointIsCosignedBehindTheLastOne(t *testing.T) {
	d := newDrive(t)
	before := d.state.History().Position()

	for _, step := range []struct {
		old, size uint64
		root      byte
		problem   directory.Problem
	}{
		{1, 2, 1, directory.Conflict}, // none was cosigned
		{0, 4, 1, ""},
		{0, 5, 2, directory.Conflict},
		{3, 5, 2, directory.Conflict},
		{4, 3, 2, directory.BadRequest},
		{4, 4, 2, directory.Conflict}, // another root
		{4, 4, 1, ""},
		{4, 9, 2, ""},
		{4, 9, 3, directory.Conflict},
	} {
		err := d.cosign(1, betaLog, step.old, step.size, step.root)
		if got := directory.ProblemOf(err); err == nil && step.problem != "" || err != nil && got != step.problem {
			t.Fatalf("%+v: got %v", step, err)
		}
	}

	log, ok := d.state.Witness().Cosigned(betaLog)
	if !ok || log.Size != 9 || log.Root != (directory.Hash{2}) || log.At != genesis/1000+1 {
		t.Errorf("got %+v, %v", log, ok)
	}

	if d.state.History().Position() != before {
		t.Error("a cosignature took a revision")
	}
}

// A domain's next epoch begins another log, and ends the logs before: none of them is cosigned again.
//
// Requirement: MESH-023
func TestAnOlderEpochIsNotCosignedAgain(t *testing.T) {
	d := newDrive(t)

	const next = "beta.test/roster/1793491300"

	directorytest.Must(t, d.cosign(1, betaLog, 0, 4, 1))

	directorytest.Must(t, d.cosign(1, next, 0, 2, 1))

	if log, ok := d.state.Witness().Cosigned(betaLog); ok {
		t.Errorf("the last one of the older epoch is %+v", log)
	}

	problem(t, d.cosign(1, betaLog, 4, 5, 1), directory.Conflict) // an older epoch

	problem(t, d.cosign(1, betaLog, 0, 5, 1), directory.Conflict) // an older epoch anew

	// Logs of others have no epochs.
	for _, origin := range []string{"log.example/2026", "log.example/2025", "log.example/roster/01", "roster/1"} {
		if err := d.cosign(1, origin, 0, 5, 1); err != nil {
			t.Errorf("%s: got %v", origin, err)
		}
	}
}

// A witness forgets no log, so a full one takes no new one.
//
// Requirement: MESH-023
func TestAFullWitnessTakesNoNewLog(t *testing.T) {
	d := newDrive(t)
	for i := range maxCosignedLogs {
		d.state.witness.put(CosignedLog{Origin: fmt.Sprint("log.example/", i), Size: 1})
	}

	problem(t, d.cosign(1, "log.example/new", 0, 1, 1), directory.Unavailable) // a new log

	directorytest.Must(t, d.cosign(1, "log.example/7", 1, 2, 1))

	big := &Cosign{Origin: "log.example/7", Old: 2, Size: 3, Note: strings.Repeat("x", maxCheckpoint+1)}
	problem(t, d.at(1, Command{Cosign: big}).Err, directory.BadRequest) // a large note
}

// Only cosignatures of a checkpoint of this ledger are kept, and those of the newest.
//
// Requirement: LOG-013
func TestCosignaturesOfTheOwnLedgerAreKept(t *testing.T) {
	d := newDrive(t)
	d.register(1, ada, "translator", 600)
	epoch := d.state.history.epoch
	size, root := d.state.History().Ledger()

	for _, step := range []struct {
		w  Witnessed
		ok bool
	}{
		{Witnessed{epoch, size, directory.Hash{1}, "— a b\n", 0}, false},
		{Witnessed{epoch, size + 1, root, "— a b\n", 0}, false},
		{Witnessed{epoch - 1, size, root, "— a b\n", 0}, false},
		{Witnessed{epoch, size, root, "", 0}, false},
		{Witnessed{epoch, size, root, strings.Repeat("x", maxCosignatures+1), 0}, false},
		{Witnessed{epoch, size, root, "— a b\n", 0}, true},
		{Witnessed{epoch, size - 1, directory.Hash{1}, "— a b\n", 0}, false},
		{Witnessed{epoch, size, root, "— a b\n— c d\n", 0}, true},
	} {
		if r := d.at(1, Command{Witnessed: &step.w}); (r.Err == nil) != step.ok {
			t.Errorf("%+v: got %v", step, r.Err)
		}
	}

	if own := d.state.Witness().Own(); own.Lines != "— a b\n— c d\n" ||
		own.At != genesis/1000+1 {
		t.Errorf("got %+v", own)
	}
}

// A restore in a living domain sets back nothing that was cosigned. In one that lost its disks the state
// may know less than was cosigned, so the keys by which it was cosigned end with the epoch.
//
// Requirement: MESH-023, LOG-008
func TestARestoredWitnessHasOtherKeys(t *testing.T) {
	d := newDrive(t)
	node := must(alphaNode("n0"))
	cosigner := append(make([]byte, 31), 7)
	attest := &Attest{node, make([]byte, 32), []string{"a.b.c"}, cosigner}
	directorytest.Must(t, d.state.keys.CheckAttest(attest))
	d.at(1, Command{Attest: attest})

	short := *attest
	short.Cosign = cosigner[1:]
	problem(t, d.state.keys.CheckAttest(&short), directory.BadRequest)

	directorytest.Must(t, d.cosign(1, betaLog, 0, 4, 1))

	backup := freeze(t, d.state)

	directorytest.Must(t, d.cosign(2, betaLog, 4, 9, 2))

	if doc := d.state.Keys().Document(); !bytes.Equal(doc.Keys[0].Cosign, cosigner) {
		t.Fatalf("the document has %x", doc.Keys[0].Cosign)
	}

	for name, live := range map[string]*State{"living": d.state, "lost": New(alpha, nil)} {
		restored := thaw(t, backup)
		live.members.written = d.state.members.written
		keys := restored.keys.byNode
		restored.Succeed(live.Outline(), "a restore", nil)

		if name == "lost" {
			restored.keys.byNode = keys // as a member attests its key
		}

		restored.begin(&Epoch{Epoch: restored.history.epoch + 1, Reason: "a restore"})

		want := map[string]uint64{"living": 9, "lost": 4}[name]
		if log, _ := restored.Witness().Cosigned(betaLog); log.Size != want {
			t.Errorf("%s: size %d is cosigned, want %d", name, log.Size, want)
		}

		if key := restored.keys.byNode[node]; len(key.Public) == 0 || key.Cosign != nil {
			t.Errorf("%s: the key is %+v", name, key)
		}
	}
}

// Of two states, what is cosigned further stays: that of the later epoch, and of one epoch the larger one.
//
// Requirement: MESH-023
func TestWhatIsCosignedFurtherIsTakenOver(t *testing.T) {
	const next = "beta.test/roster/1793491300"

	for _, c := range []struct {
		here  string // "" for none
		size  uint64
		other string
		more  uint64
		taken bool
	}{
		{"", 0, betaLog, 4, true},
		{betaLog, 4, betaLog, 9, true},
		{betaLog, 9, betaLog, 4, false},
		{betaLog, 9, next, 1, true},
		{next, 1, betaLog, 9, false},
	} {
		here, other, want := newWitness(), newWitness(), CosignedLog{Origin: c.here, Size: c.size}
		other.put(CosignedLog{Origin: c.other, Size: c.more})

		if c.here != "" {
			here.put(want)
		}

		if c.taken {
			want = CosignedLog{Origin: c.other, Size: c.more}
		}

		here.take(&other)

		if all := here.all(); len(all) != 1 || all[0] != want {
			t.Errorf("%+v: %+v", c, all)
		}
	}
}

// A leader's snapshot can't set a witness back, nor put it on another branch.
//
// Requirement: MESH-023
func TestASnapshotThatForgetsACheckpointIsRefused(t *testing.T) {
	d := newDrive(t)
	directorytest.Must(t, d.cosign(1, betaLog, 0, 4, 1))

	had := restore(t, d.state)
	if log, ok := had.Witness().Cosigned(betaLog); !ok || log.Size != 4 {
		t.Fatalf("the snapshot has %+v", log)
	}

	directorytest.Must(t, d.state.Follows(had))

	for name, log := range map[string]CosignedLog{
		"none":           {Origin: "another.test/roster/1"},
		"a smaller one":  {Origin: betaLog, Size: 3},
		"another branch": {Origin: betaLog, Size: 4, Root: directory.Hash{2}},
		"an older epoch": {Origin: "beta.test/roster/1793491199", Size: 9},
	} {
		clear(d.state.witness.logs)
		d.state.witness.put(log)

		if err := d.state.Follows(had); err == nil || !strings.Contains(err.Error(), betaLog) {
			t.Errorf("%s: got %v", name, err)
		}
	}

	d.state.witness.put(CosignedLog{Origin: "beta.test/roster/1793491201", Size: 1})

	if err := d.state.Follows(had); err != nil {
		t.Errorf("a later epoch: got %v", err)
	}
}
