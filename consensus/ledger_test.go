package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// allEntries returns the entries of the log at hand once this copy has all, each proven.
func allEntries(t *testing.T, s *Store) []ledger.Entry {
	t.Helper()

	for range 60 {
		if s.Logs.Whole() {
			break
		}

		time.Sleep(time.Second)
	}

	epoch, tree := s.Logs.Tree()

	log, _, err := s.Logs.Log(epoch)
	must(t, err)

	proveAll(t, log, tree)

	var all []ledger.Entry

	for n := range (tree.Size + ledger.TileWidth - 1) / ledger.TileWidth {
		bundle, err := log.Bundle(tree, n, int(min(tree.Size-n*ledger.TileWidth, ledger.TileWidth)))
		must(t, err)

		entries, err := ledger.ReadEntries(bundle)
		must(t, err)

		all = append(all, entries...)
	}

	return all
}

// proveAll fails unless each entry of a log is proven.
func proveAll(t *testing.T, log *ledger.Log, tree ledger.Tree) {
	t.Helper()

	for n := range tree.Size {
		if _, err := log.Prove(tree, n); err != nil {
			t.Fatalf("entry %d of %d: %v", n, tree.Size, err)
		}
	}
}

// A strictLog has no entry that was deleted. The library still reads one as long as it is in
// the newest file, so a follower would hardly ever get a snapshot.
type strictLog struct{ raft.LogStore }

func (l strictLog) GetLog(index uint64, entry *raft.Log) error {
	if first, err := l.FirstIndex(); err != nil || index < first {
		return raft.ErrLogNotFound
	}

	return l.LogStore.GetLog(index, entry)
}

// soonCompacted has a member that was away for some entries get a snapshot.
func soonCompacted(c *Config) {
	c.Timing.SnapshotEvery = 8
	c.faulty = func(log raft.LogStore) raft.LogStore { return strictLog{log} }
}

// Every member has the same log, whether it applied the entries, or missed some and got a
// snapshot, or has lost its copy or a part of it.
//
// Requirement: LOG-003, LOG-004, MESH-020
func TestEveryMemberHasTheWholeLedger(t *testing.T) {
	damages := map[string]func(t *testing.T, dir string){
		"nothing": func(*testing.T, string) {},
		"all": func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
		},
		"some bytes": func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, "entries"), 100))
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			inDomain(t, 3, soonCompacted, func(t *testing.T, d *domain) {
				leader, follower := d.leader()

				register := func(from, to int) {
					for i := from; i < to; i++ {
						name := fmt.Sprint("agent-", i)
						d.register(leader, name, 600)
					}

					must(t, d.nodes[leader].group.raft.Snapshot().Error())
				}

				register(0, 300)
				d.ready()
				d.stop(follower)

				epoch, _ := d.nodes[leader].Logs.Tree()
				damage(t, filepath.Join(d.dir, fmt.Sprint(follower), "ledger", strconv.FormatUint(epoch, 10)))
				register(300, 340)
				d.start(follower)
				d.ready()

				want := allEntries(t, d.nodes[leader])
				if got := allEntries(t, d.nodes[follower]); !slices.Equal(got, want) {
					t.Errorf("the follower has %d entries, and not the %d of the leader", len(got), len(want))
				}
			})
		})
	}
}

// The log of an epoch that has ended heals as the present one does, as soon as it is asked for.
//
// Requirement: LOG-004, LOG-019
func TestTheLogOfAFormerEpochHeals(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, _ := d.leader()

		for i := range 20 {
			d.register(leader, fmt.Sprint("agent-", i), 600)
		}

		former, _ := d.nodes[leader].Logs.Tree()

		d.restore(leader, d.backup(leader))

		d.ready()

		for i := range d.nodes {
			entries := filepath.Join(d.dir, fmt.Sprint(i), "ledger", strconv.FormatUint(former, 10), "entries")
			d.stop(i)

			must(t, os.Truncate(entries, 100))

			d.start(i)
			d.ready()

			log, tree, err := d.nodes[i].Logs.Log(former)
			must(t, err)

			eventually(t, "the former log is whole", func() bool {
				_, missing := log.Missing()
				return !missing
			})

			proveAll(t, log, tree)
		}
	})
}

// A member whose disk is new copies the logs of former epochs, and the history that they prove, from the other members.
// Until one answers it says that it does not know them, and afterwards which ones there never were.
//
// Requirement: LOG-019, LOG-004, LOG-012
func TestANewMemberCopiesFormerLedgers(t *testing.T) {
	inDomain(t, 3, soonCompacted, func(t *testing.T, d *domain) {
		leader, follower := d.leader()

		made := d.register(leader, "agent", 600)

		var former []uint64

		for range 2 {
			epoch, _ := d.nodes[leader].Logs.Tree()
			former = append(former, epoch)

			d.restore(leader, d.backup(leader))

			d.ready()

			leader, follower = d.leader()
			d.register(leader, "agent", 600)
		}

		d.stop(follower)
		d.lose(follower)

		for i := range 40 {
			d.register(leader, fmt.Sprint("agent-", i), 600)
		}

		must(t, d.nodes[leader].group.raft.Snapshot().Error())

		d.start(follower)

		s := d.nodes[follower]
		if _, _, err := s.Logs.Log(former[0]); directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("before another member has answered: %v", err)
		}

		d.letIn(follower)
		d.ready()
		eventually(t, "all former logs are known", func() bool { return s.Logs.knows(1) })

		for _, epoch := range former {
			log, tree, err := s.Logs.Log(epoch)
			must(t, err)

			proveAll(t, log, tree)

			start, err := s.Logs.Start(epoch)
			if want := valueOf(d.nodes[leader].Logs.Start(epoch)); err != nil || !bytes.Equal(start, want) {
				t.Errorf("the start of epoch %d is %s, %v; want %s", epoch, start, err, want)
			}
		}

		if _, _, err := s.Logs.Log(former[0] - 1); directory.ProblemOf(err) != directory.NotFound {
			t.Errorf("an epoch that never was: %v", err)
		}

		eventually(t, "the history is copied", func() bool { return !s.Replica.history.Lacks() })

		want := historyOf(t, d.nodes[leader], made.RID)
		if got := historyOf(t, s, made.RID); len(want) < 3 || !slices.Equal(got, want) {
			t.Errorf("the history is %q, want %q", got, want)
		}
	})
}

// What each first epoch has needs no other member.
//
// Requirement: LOG-019, LOG-004
func TestALostStartOfTheFirstEpochIsMadeAnew(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		epoch, _ := d.nodes[0].Logs.Tree()
		want := valueOf(d.nodes[0].Logs.Start(epoch))

		// A log that has the epoch's beginning would begin it again.
		must(t, d.nodes[0].group.raft.Snapshot().Error())
		d.stop(0)

		must(t, os.Remove(filepath.Join(d.dir, "0", "ledger", strconv.FormatUint(epoch, 10), "start.json")))

		d.start(0)
		d.ready()
		eventually(t, "the start is there again", func() bool {
			start, err := d.nodes[0].Logs.Start(epoch)
			return err == nil && bytes.Equal(start, want)
		})
	})
}

// What is missing here is asked for again after longer and longer pauses, and soon again if something is missing anew.
//
// Requirement: LOG-004
func TestPausesEndWithASuccess(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		pauses, began := map[uint64]mendPause{}, time.Now()

		var asked []time.Duration

		for range 20 {
			d.nodes[0].Logs.paced(pauses, 1, "entries", mendFormer, func() error {
				if asked = append(asked, time.Since(began)); len(asked) == 3 {
					return nil
				}

				return errIncomparable
			})
			time.Sleep(time.Second)
		}

		if want := []time.Duration{0, 2, 6, 7, 9, 13}; !slices.EqualFunc(asked, want,
			func(at, seconds time.Duration) bool { return at == seconds*time.Second }) {
			t.Errorf("it is asked for after %v, want %v s", asked, want)
		}
	})
}

// historyOf returns the statements of a registration that a member has, by what each is of and what was kept.
func historyOf(t *testing.T, s *Store, rid directory.RID) (said []string) {
	t.Helper()

	statements, _, complete, err := s.Logs.History(rid, directory.Position{})
	if err != nil || !complete {
		t.Fatalf("the history of %s at %s: complete %t, %v", rid, s.cfg.Node, complete, err)
	}

	for _, st := range statements {
		switch {
		case s.Logs.IsErased(rid):
			if st.Agent != "" || st.Payload != nil || st.Entry != nil {
				t.Errorf("%s shows the erased statement %d of %q, %s", s.cfg.Node, st.Index, st.Agent, st.Payload)
			}

			said = append(said, "erased")
		case st.Payload == nil:
			said = append(said, "pruned")
		case directory.HashOf(st.Payload) != st.H:
			t.Errorf("statement %d has other contents", st.Index)
		case st.Entry == nil:
			said = append(said, "end")
		default:
			said = append(said, st.Entry.Owner.String())
		}
	}

	return said
}

// The history of a registration has all that was stated of it, on each member, and survives its end, a
// transfer, and the loss of a member's disk.
//
// Requirement: LOG-012
func TestEveryMemberHasTheHistory(t *testing.T) {
	inDomain(t, 3, func(c *Config) {
		soonCompacted(c)
		quiet(c)
		c.KeepHistory = 5 * time.Minute
	}, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		s := d.nodes[leader]

		made := d.register(leader, "agent", 600)

		again := put(t, ada, "agent", 600)

		again.Document = document(t, "agent of another base")
		_, err := s.Register(t.Context(), again)
		must(t, err)

		remove := directory.RemoveRequest{Caller: directory.Caller{Identity: ada}, RID: made.RID}
		_, err = s.Remove(t.Context(), remove)
		must(t, err)

		second := d.register(leader, "agent", 600)

		d.stop(follower)

		must(t, os.RemoveAll(filepath.Join(d.dir, fmt.Sprint(follower), "history.db")))

		for i := range 40 {
			d.register(leader, fmt.Sprint("agent-", i), 600)
		}

		must(t, s.group.raft.Snapshot().Error())

		d.start(follower)
		d.ready()
		eventually(t, "the history is copied", func() bool { return !d.nodes[follower].Replica.history.Lacks() })

		want := []string{ada.String(), ada.String(), "end"}
		for _, n := range d.nodes {
			if got := historyOf(t, n, made.RID); !slices.Equal(got, want) {
				t.Errorf("%s has %q, want %q", n.cfg.Node, got, want)
			}

			if got := historyOf(t, n, second.RID); !slices.Equal(got, want[:1]) {
				t.Errorf("of the registration in its place %s has %q", n.cfg.Node, got)
			}

			before, after, err := n.Logs.Around("agent", second.RID)
			if before != made.RID || !after.IsZero() || err != nil {
				t.Errorf("%s: before the second %s, after it %s, %v", n.cfg.Node, before, after, err)
			}

			before, after, err = n.Logs.Around("agent", made.RID)
			if !before.IsZero() || after != second.RID || err != nil {
				t.Errorf("%s: before %s, after %s, %v", n.cfg.Node, before, after, err)
			}
		}

		time.Sleep(7 * time.Minute)

		want = []string{"pruned", "pruned", "pruned"}
		for _, n := range d.nodes {
			if got := historyOf(t, n, made.RID); !slices.Equal(got, want) {
				t.Errorf("later %s has %q, want %q", n.cfg.Node, got, want)
			}
		}
	})
}

// What a restore takes back stays in the history, and a statement that it brings back is in it once.
//
// Requirement: LOG-012
func TestARestoreKeepsTheHistory(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]

		register := func(name, of string) directory.RID {
			r := put(t, ada, name, 600)
			r.Document = document(t, of)

			made, err := s.Register(t.Context(), r)
			must(t, err)

			return made.RID
		}

		replaced := register("replaced", "one")
		file := d.backup(0)

		register("replaced", "two")

		since := register("since", "one")
		register("since", "two")

		_, err := s.restorer.Restore(t.Context(), bytes.NewReader(file), accepting(t, file))
		must(t, err)

		d.ready()

		for rid, want := range map[directory.RID][]string{
			replaced: {ada.String(), ada.String()}, since: {ada.String(), ada.String()},
		} {
			if got := historyOf(t, s, rid); !slices.Equal(got, want) {
				t.Errorf("the history of %s is %q, want %q", rid, got, want)
			}
		}

		before, after, err := s.Logs.Around("replaced", replaced)
		if !before.IsZero() || !after.IsZero() || err != nil {
			t.Errorf("a living registration stands after %s and before %s, %v; want alone", before, after, err)
		}

		// It is proven by the log at hand once its owner has refreshed it there, for its present statement alone.
		included := func(when string, e *directory.Entry, want bool) {
			t.Helper()

			if at, ok := s.Logs.Included(e); ok != want {
				t.Errorf("%s, it is in the log at hand: %t, %+v", when, ok, at)
			}
		}

		restored, _ := s.cfg.Index.Get(replaced)
		included("after a restore", restored, false)

		register("replaced", "three")

		stated, _ := s.cfg.Index.Get(replaced)
		included("with a new statement", stated, true)
		included("by its former statement", restored, false)
	})
}

// onDisk returns the files of a member's directory that have some bytes.
func (d *domain) onDisk(i int, secret string) (files []string) {
	d.t.Helper()

	err := filepath.WalkDir(filepath.Join(d.dir, fmt.Sprint(i)), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) {
			files = append(files, filepath.Base(path))
		}

		return err
	})
	must(d.t, err)

	return files
}

// The contents of an erased registration are on no member's disk any more: neither in the history, nor in
// Raft's log or a snapshot, and not on that of a member that was away. Hashes and times remain.
//
// Requirement: LOG-012
func TestErasedContentsAreOnNoDisk(t *testing.T) {
	const secret = "q7Zx0Wv9"

	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		s := d.nodes[leader]

		r := put(t, ada, "agent-"+secret, 600)
		r.Document = document(t, secret)

		made, err := s.Register(t.Context(), r)
		must(t, err)

		// Both snapshots that a member keeps have it.
		for i := range 2 {
			d.settled()

			for _, n := range d.nodes {
				must(t, n.group.raft.Snapshot().Error())
			}

			d.register(leader, fmt.Sprint("other-", i), 600)
		}

		problem(t, s.Erase(t.Context(), made.RID), directory.Conflict) // the contents of a living registration

		remove := directory.RemoveRequest{Caller: directory.Caller{Identity: ada}, RID: made.RID}
		_, err = s.Remove(t.Context(), remove)
		must(t, err)

		d.settled()

		for i, n := range d.nodes {
			must(t, n.Replica.history.Flush())

			if files := d.onDisk(i, secret); len(files) < 4 { // the log, two snapshots, and the history
				t.Fatalf("before it is erased, node %d has it in %v alone", i, files)
			}
		}

		d.stop(follower)

		must(t, s.Erase(t.Context(), made.RID))

		if got := historyOf(t, s, made.RID); !slices.Equal(got, []string{"erased", "erased"}) {
			t.Errorf("as soon as they are erased the history shows %q", got)
		}

		gone := func(i int) func() bool {
			return func() bool {
				done, err := d.nodes[i].Replica.history.Erased()

				return err == nil && done > 0 && len(d.nodes[i].Replica.erasures(done)) == 0 &&
					!d.nodes[i].Replica.history.Lacks()
			}
		}

		for i := range d.nodes {
			if i != follower {
				eventually(t, "the contents are erased", gone(i))
			}
		}

		d.start(follower)
		d.ready()
		eventually(t, "the member that was away erases them", gone(follower))

		if err := s.Erase(t.Context(), made.RID); err != nil {
			t.Errorf("to erase it again: %v", err)
		}

		for i, n := range d.nodes {
			if files := d.onDisk(i, secret); len(files) > 0 {
				t.Errorf("node %d still has it in %v", i, files)
			}

			if got := historyOf(t, n, made.RID); !slices.Equal(got, []string{"erased", "erased"}) {
				t.Errorf("node %d has the statements %q", i, got)
			}
		}

		// Neither does a name come back from a member that has pruned the contents and not erased them yet.
		records, _, err := s.Replica.history.Of(made.RID, directory.Position{})
		if err != nil || len(records) == 0 {
			t.Fatal(records, err)
		}

		records[0].Agent = "agent-" + secret
		if err := s.statements.judge(&records[0]); err != nil || records[0].Agent != "" {
			t.Errorf("the name %q is copied: %v", records[0].Agent, err)
		}

		// The log goes on behind the files that were deleted.
		d.restart(leader)

		d.register(leader, "after", 600)

		d.equalStates()

		if err := d.nodes[leader].Erase(t.Context(), directory.NewRID(1, [10]byte{})); directory.ProblemOf(err) !=
			directory.NotFound {
			t.Errorf("an unknown registration: %v", err)
		}
	})
}

// A member whose disk fails tries again for as long as it takes, and says so once a minute.
//
// Requirement: LOG-012
func TestAFailedErasureIsTriedAgain(t *testing.T) {
	log := &lineLog{}

	inDomain(t, 1, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	}, func(t *testing.T, d *domain) {
		s := d.nodes[0]

		made := d.register(0, "agent", 600)

		remove := directory.RemoveRequest{Caller: directory.Caller{Identity: ada}, RID: made.RID}
		_, err := s.Remove(t.Context(), remove)
		must(t, err)

		snapshots := filepath.Join(d.dir, "0", "snapshots")
		must(t, os.Rename(snapshots, snapshots+".away"))

		must(t, s.Erase(t.Context(), made.RID))

		time.Sleep(150 * time.Second)

		if n := strings.Count(log.String(), "can't be erased from disk"); n != 3 {
			t.Errorf("it is logged %d times in two and a half minutes, want 3:\n%s", n, log)
		}

		must(t, os.Rename(snapshots+".away", snapshots))

		time.Sleep(eraseRetry)
		eventually(t, "the contents are erased", func() bool {
			return strings.Contains(log.String(), "erased the contents of registrations from disk")
		})
	})
}

// The contents of a registration are written when they have become past ones, and not when it is registered.
//
// Requirement: LOG-021
func TestARegistrationWritesNoHistory(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]

		for i := range 200 {
			d.register(0, fmt.Sprint("agent-", i), 600)
		}

		if records, _, err := s.Replica.history.Page(nil, 1<<20); len(records) > 0 || err != nil {
			t.Errorf("%d records were written: %v", len(records), err)
		}

		d.register(0, "agent-1", 600)

		if records, _, err := s.Replica.history.Page(nil, 1<<20); len(records) != 1 || err != nil {
			t.Errorf("%d records were written for a statement that another one has followed: %v", len(records), err)
		}
	})
}

// differs has a member apply a command that nobody else has.
func (d *domain) differs(i int) {
	d.t.Helper()

	r, batch := d.nodes[i].Replica, &state.Batch{
		Time:     time.Now().UnixMilli(),
		Commands: []state.Command{{Policy: &state.Policy{Text: []byte("permit (principal, action, resource);")}}},
	}
	if more, err := r.applyPiece(r.begin(batch), batch, 0); more || err != nil {
		d.t.Fatal(more, err)
	}
}

// A member whose ledger is not that of the others stops, and they go on.
//
// Requirement: LOG-003, MESH-020
func TestAMemberWithAnotherLedgerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := make(chan Misconduct, 100)
		d := newDomain(t, 3, func(c *Config) { c.Misconduct = func(m Misconduct) { named <- m } })
		d.ready()
		leader, follower := d.leader()

		d.differs(follower)
		d.register(leader, "agent", 600)

		eventually(t, "the other one stops", func() bool { return d.nodes[follower].life.failure() != nil })

		if err := d.nodes[follower].life.failure(); !errors.Is(err, ErrOtherState) {
			t.Errorf("it stopped for another reason: %v", err)
		}

		epoch, _ := d.nodes[follower].Logs.Tree()
		if _, _, err := d.nodes[follower].Logs.Log(epoch); directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("it still serves its ledger: %v", err)
		}

		for len(named) > 0 { // who asks first finds it
			if m := <-named; m.By != valueOf(alphaNode(fmt.Sprint("n", follower))) || m.Kind != badLedger {
				t.Errorf("%s is said to be wrong: %v", m.By, m.Err)
			}
		}

		for i, n := range d.nodes {
			if i != follower && n.life.failure() != nil {
				t.Errorf("%s has stopped: %v", n.cfg.Node, n.life.failure())
			}
		}
	})
}

// While two members have different ledgers and no third one answers, neither stops, and neither is named.
//
// Requirement: LOG-003
func TestTwoMembersThatDifferNameNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := make(chan Misconduct, 100)
		log := &lineLog{}
		d := newDomain(t, 3, func(c *Config) {
			c.Misconduct = func(m Misconduct) { named <- m }
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		d.ready()
		leader, follower := d.leader()

		d.settled()
		d.stop(3 - leader - follower)
		d.differs(follower)
		d.register(leader, "agent", 600)

		eventually(t, "both find it", func() bool { return strings.Count(log.String(), "no third one says") > 1 })

		for _, i := range []int{leader, follower} {
			if err := d.nodes[i].life.failure(); err != nil {
				t.Errorf("%s has stopped: %v", d.nodes[i].cfg.Node, err)
			}
		}

		if len(named) > 0 {
			t.Errorf("one of the two is named: %+v", <-named)
		}
	})
}

// A member that shows another ledger, and then doesn't answer, stops no other member.
//
// Requirement: LOG-003
func TestAMemberThatDiffersAndGoesStopsNoOther(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		s.comparer.decide([]Member{{ID: valueOf(alphaNode("gone")), Address: "gone.alpha.test:7000"}})

		must(t, s.life.failure())
	})
}

// The leader puts the authorities of the domain into the ledger, again when they change, and each member the head of
// its own audit log alone: on every member they are leaves.
//
// Requirement: MESH-020, LOG-020
func TestMembersPinAuthoritiesAndAuditLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bundle atomic.Pointer[[]byte]
		bundle.Store(&[]byte{1})

		d := newDomain(t, 3, func(c *Config) { c.Authorities = func() []byte { return *bundle.Load() } })
		d.ready()
		leader, follower := d.leader()

		time.Sleep(time.Minute) // from now on a change in a member's name that it didn't send is reported
		bundle.Store(&[]byte{2})
		time.Sleep(5 * time.Second)

		s := d.nodes[follower]
		if !s.AuditDue() {
			t.Error("no audit head is due in a new ledger")
		}

		must(t, s.PinAudit(t.Context(), 7, directory.Hash{1}))

		// a second audit head on one day
		problem(t, s.PinAudit(t.Context(), 8, directory.Hash{1}), directory.Conflict)

		_, err := s.forwarder.write(t.Context(),
			&message.Request{Pin: &state.Pin{Node: d.nodes[leader].cfg.Node, Lines: 1, Head: directory.Hash{1}}})
		if directory.ProblemOf(err) != directory.Forbidden {
			t.Errorf("the audit head of another member: %v", err)
		}

		time.Sleep(5 * time.Second) // until every member has applied it

		for _, s := range d.nodes {
			var bundles, heads []ledger.Entry

			for _, e := range allEntries(t, s) {
				switch e[0] {
				case ledger.Bundle:
					bundles = append(bundles, e)
				case ledger.AuditHead:
					heads = append(heads, e)
				}
			}

			want := []ledger.Entry{ledger.EntryOf(ledger.Bundle, []byte{1}), ledger.EntryOf(ledger.Bundle, []byte{2})}
			if !slices.Equal(bundles, want) || len(heads) != 1 || s.AuditDue() == (s == d.nodes[follower]) {
				t.Errorf("%s has bundles %x and audit heads %x", s.cfg.Node, bundles, heads)
			}

			changes, _ := s.Changes.Take()
			if slices.ContainsFunc(changes, func(c Change) bool { return c.Unsent }) {
				t.Errorf("%s reports changes that it didn't send: %+v", s.cfg.Node, changes)
			}
		}

		before := valueOf(d.nodes[leader].storage.disk.Logs.LastIndex())

		bundle.Store(new(make([]byte, 1<<20)))
		time.Sleep(10 * time.Second)

		if after := valueOf(d.nodes[leader].storage.disk.Logs.LastIndex()); after != before {
			t.Errorf("a bundle that is too large has brought %d entries of the log", after-before)
		}
	})
}

// A member that answers a comparison with a beginning of the log that was compared before confirms nothing, so it
// can't hide by it that its log has become another one.
//
// Requirement: LOG-003
func TestABeginningComparedBeforeConfirmsNothing(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		epoch, first := s.Logs.Tree()

		// What was compared of the epoch before says nothing of this one.
		s.comparer.epoch, s.comparer.agreed = epoch-1, 1<<20

		answer := &message.RootAnswer{Size: first.Size, Root: first.Root}
		if same, err := s.comparer.same(epoch, first.Size, answer); !same {
			t.Fatalf("the same tree: %t, %v", same, err)
		}

		d.register(0, "agent", 600)

		_, now := s.Logs.Tree()
		for _, step := range []struct {
			answer ledger.Tree
			same   bool
			err    error
		}{
			{first, false, errIncomparable},
			{ledger.Tree{Size: now.Size, Root: directory.Hash{1}}, false, nil},
			{now, true, nil},
			{now, true, nil}, // it is asked again to count who agrees
		} {
			answer := &message.RootAnswer{Size: step.answer.Size, Root: step.answer.Root}

			same, err := s.comparer.same(epoch, now.Size, answer)
			if same != step.same || !errors.Is(err, step.err) {
				t.Errorf("an answer at %d of %d: %t, %v", step.answer.Size, now.Size, same, err)
			}
		}
	})
}
