package consensus

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// newer is what a release reads that has a format 2 of pages and heads.
func newer() Versions {
	reads := older()
	reads.Formats = directory.Formats{directory.StructureHead: {1, 2}, directory.StructurePage: {1, 2}}

	return reads
}

// older is what a release reads that has the first version of everything.
func older() Versions { return Versions{Log: 1, Snapshot: 1, Wire: 1} }

// reading has member i play a release that reads that, when it starts next.
func (d *domain) reading(reads map[int]Versions) {
	before := d.tune
	d.tune = func(c *Config) {
		if before != nil {
			before(c)
		}
		for i, m := range d.members {
			if v, said := reads[i]; said && m.ID == c.Node {
				c.reads = v
			}
		}
	}
}

// restart stops member i and starts it again.
func (d *domain) restart(i int) {
	d.t.Helper()
	d.stop(i)
	d.start(i)
	d.ready()
}

// eventuallyWritten waits until every running member writes pages in that format.
func (d *domain) eventuallyWritten(page uint) {
	d.t.Helper()
	eventually(d.t, "the format of pages is in force", func() bool {
		for _, s := range d.nodes {
			if s != nil && s.Written().Format(directory.StructurePage) != page {
				return false
			}
		}
		return true
	})
}

// equalStates fails if two running members have other states at the same position.
func (d *domain) equalStates() {
	d.t.Helper()
	d.settled()

	var first []byte
	for i, s := range d.nodes {
		if s == nil {
			continue
		}
		s.mu.Lock()
		frozen := freeze(d.t, s.state)
		s.mu.Unlock()
		if first == nil {
			first = frozen
		} else if !bytes.Equal(first, frozen) {
			d.t.Errorf("node %d has another state", i)
		}
	}
}

// Requirement: FORM-002
func TestAFormatIsInForceOnceAllMembersReadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := map[int]Versions{0: older(), 1: older(), 2: older()}
		d := newDomain(t, 3, func(c *Config) { c.reads = older() })
		d.reading(reads)
		d.ready()
		if _, err := d.nodes[0].Register(t.Context(), put(t, ada, "before", 6000)); err != nil {
			t.Fatal(err)
		}

		for i := range d.nodes {
			time.Sleep(2 * time.Second) // several rounds in which the leader could raise it
			synctest.Wait()
			if got := d.nodes[0].Written().Format(directory.StructurePage); got != 1 {
				t.Fatalf("pages are in format %d before node %d reads it", got, i)
			}
			reads[i] = newer()
			d.restart(i)
		}
		d.eventuallyWritten(2)
		d.equalStates()

		if _, err := d.nodes[1].Register(t.Context(), put(t, ada, "after", 6000)); err != nil {
			t.Fatal(err)
		}
		d.equalStates()
		for i := range d.nodes { // from snapshots and logs, the same again
			d.restart(i)
		}
		d.eventuallyWritten(2)
		d.equalStates()
	})
}

// Requirement: FORM-002
func TestANodeThatReadsLessIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, func(c *Config) { c.reads = newer() })
		d.ready()
		d.eventuallyWritten(2)

		i := d.newcomer(func(c *Config) { c.reads = older() })
		d.admit(0, i)
		eventually(t, "it is told which formats it reads and which are written", func() bool {
			err := d.nodes[i].Ready()
			return err != nil && strings.Contains(err.Error(), "it reads head formats [1] and the domain writes format 2")
		})
		if voters, readers := d.voters(0); voters+readers != 3 {
			t.Errorf("the domain has %d members", voters+readers)
		}

		d.stop(i)
		d.startJoining(i, nil) // upgraded, with the same admission
		d.eventuallyVoters(0, 4, 0)
		d.ready()
		d.equalStates()
	})
}

// Requirement: FORM-002
func TestADowngradeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := map[int]Versions{}
		d := newDomain(t, 3, func(c *Config) { c.reads = newer() })
		d.reading(reads)
		d.ready()
		d.eventuallyWritten(2)
		reads[2] = older()

		// Without a snapshot it is the log that says so.
		d.stop(2)
		d.start(2)
		stopped := d.nodes[2]
		<-stopped.Failed()
		const says = "it reads head formats [1] and the domain writes format 2"
		if err := stopped.Ready(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("a downgraded member says %v", err)
		}
		d.stop(2)

		// With one it doesn't start.
		delete(reads, 2)
		d.start(2)
		d.ready()
		if err := d.nodes[2].raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		d.stop(2)
		reads[2] = older()
		if _, err := d.open(2); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("it starts, or says %v", err)
		}
	})
}

// Requirement: FORM-002
func TestAPeerThatReadsLessLowersTheFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := newDomain(t, 3, func(c *Config) {
			c.reads = newer()
			c.FormatsOf = func(peer spiffeid.TrustDomain) (directory.Formats, time.Time, bool) {
				return directory.Formats{}, began.Add(time.Minute - keysForgotten), peer == beta
			}
		})
		d.ready()
		d.eventuallyWritten(2)
		out, err := d.nodes[0].Register(t.Context(), put(t, ada, "before", 6000))
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := d.nodes[0].Own(out.RID)

		agree := func(peer spiffeid.TrustDomain, state directory.PeeringState) {
			t.Helper()
			if err := d.nodes[0].SetPeering(t.Context(), directory.Peering{Domain: peer, State: state}); err != nil {
				t.Fatal(err)
			}
		}

		// One that isn't known to read anything changes nothing.
		gamma := spiffeid.RequireTrustDomainFromString("gamma.test")
		agree(gamma, directory.PeeringActive)
		time.Sleep(5 * time.Second)
		d.eventuallyWritten(2)

		agree(beta, directory.PeeringActive)
		d.eventuallyWritten(1)
		if after, _, _ := d.nodes[1].Own(out.RID); !bytes.Equal(before, after) {
			t.Error("what was written has changed")
		}

		// A week after its key document it counts no longer, and the one that never
		// said anything still holds the format back.
		time.Sleep(time.Until(began) + 2*time.Minute)
		d.eventuallyWritten(1)
		agree(gamma, directory.PeeringTerminated)
		d.eventuallyWritten(2)
		d.equalStates()
	})
}

// Requirement: FORM-002
func TestTheKeyDocumentSaysWhatAllMembersRead(t *testing.T) {
	d := newDrive(t)
	says := func(node string, formats directory.Formats) *directory.KeyDocument {
		t.Helper()
		reads := Versions{Log: 1, Snapshot: 1, Wire: 1, Formats: formats}
		if r := d.at(1, command{Member: &member{ID: must(alphaNode(node)), Reads: reads}}); r.err != nil {
			t.Fatal(r.err)
		}
		return d.state.issued
	}
	says("n1", newer().Formats)
	d.at(1, command{Attest: &attest{must(alphaNode("n1")), make([]byte, 32), []string{"a.b.c"}}})

	first := d.state.issued
	if !first.Formats.Equal(newer().Formats) {
		t.Fatalf("the first says %v", first.Formats)
	}
	if again := says("n1", newer().Formats); again != first {
		t.Error("it was issued again and nothing has changed")
	}
	second := says("n2", directory.Formats{directory.StructurePage: {1, 2, 3}})
	if want := (directory.Formats{directory.StructurePage: {1, 2}}); !second.Formats.Equal(want) || second.Seq <= first.Seq {
		t.Errorf("the second says %v, want %v", second.Formats, want)
	}
	if third := says("n2", newer().Formats); !third.Formats.Equal(newer().Formats) || third.Seq <= second.Seq {
		t.Errorf("the third says %v", third.Formats)
	}
	says("n3", nil)
	d.at(2, command{Member: &member{ID: must(alphaNode("n3")), Gone: true}})
	if last := d.state.issued; !last.Formats.Equal(newer().Formats) {
		t.Errorf("after a member has gone it says %v", last.Formats)
	}

	frozen := bytes.NewReader(freeze(t, d.state))
	thawed := must(readSnapshot(frozen, alpha, index.New(), &snapshotHeader{}))
	if !bytes.Equal(thawed.issued.Payload(), d.state.issued.Payload()) || !thawed.readable().Equal(d.state.readable()) {
		t.Error("a snapshot changes what it says")
	}
}

// Whatever a leader proposes, members apply a feature command alike and keep what
// they could not go on without.
//
// Requirement: FORM-002
func TestNumbersThatAMemberDoesNotReadAreNotInForce(t *testing.T) {
	d := newDrive(t)
	reads := Versions{Log: 2, Snapshot: 1, Wire: 2, Formats: newer().Formats}
	d.at(1, command{Member: &member{ID: must(alphaNode("n1")), Reads: reads}})

	for _, n := range []Numbers{
		{Log: 3, Snapshot: 1, Wire: 1},
		{Log: 1, Snapshot: 2, Wire: 1},
		{Log: 1, Snapshot: 1, Wire: 3},
		{Log: 1, Snapshot: 1, Wire: 1, Formats: map[directory.Structure]uint{directory.StructureStatement: 2}},
	} {
		problem(t, d.at(2, command{Feature: &n}).err, directory.Conflict)
	}
	if !d.state.written.Equal(firstNumbers()) {
		t.Errorf("in force is %+v", d.state.written)
	}

	raised := Numbers{Log: 2, Snapshot: 1, Wire: 2, Formats: map[directory.Structure]uint{directory.StructureHead: 2}}
	if r := d.at(3, command{Feature: &raised}); r.err != nil || !d.state.written.Equal(raised) {
		t.Errorf("in force is %+v: %v", d.state.written, r.err)
	}
	problem(t, d.at(4, command{Feature: new(firstNumbers())}).err, directory.Conflict)

	// A member that reads less by now stays out, whatever it read before.
	problem(t, d.at(5, command{Member: &member{ID: must(alphaNode("n1")), Reads: older()}}).err, directory.Forbidden)
	problem(t, d.at(5, command{Member: &member{ID: must(alphaNode("n2")), Reads: older()}}).err, directory.Forbidden)
	r := d.at(6, command{Feature: &Numbers{Log: 2, Snapshot: 1, Wire: 2}})
	if r.err != nil || d.state.written.Format(directory.StructureHead) != 1 {
		t.Errorf("a format doesn't fall: %v", r.err)
	}
}

// A peer may change what it says of its formats as often as it likes. That costs this
// domain a few log entries, and not one at each look.
//
// Requirement: FORM-002
func TestAPeerWhoseFormatsFlapCausesFewLogEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		var steady atomic.Bool
		d := newDomain(t, 3, func(c *Config) {
			c.reads = newer()
			c.FormatsOf = func(spiffeid.TrustDomain) (directory.Formats, time.Time, bool) {
				if looks.Add(1)%2 == 0 || steady.Load() {
					return newer().Formats, time.Now().Add(time.Hour), true
				}
				return nil, time.Now().Add(time.Hour), true
			}
		})
		d.ready()
		d.eventuallyWritten(2)
		peering := directory.Peering{Domain: beta, State: directory.PeeringActive}
		if err := d.nodes[0].SetPeering(t.Context(), peering); err != nil {
			t.Fatal(err)
		}

		before := d.nodes[0].Position().Revision
		time.Sleep(2 * time.Minute)
		if looks.Load() < 100 {
			t.Fatalf("the leader has looked %d times", looks.Load())
		}
		if entries := d.nodes[0].Position().Revision - before; entries > 2*riseBurst+1 {
			t.Errorf("the peer has caused %d changes in two minutes", entries)
		}

		steady.Store(true)
		time.Sleep(riseEvery)
		d.eventuallyWritten(2)
	})
}

// A format that readers lack is not written because a higher one may not be yet.
func TestAFormatThatMayNotRiseIsOneThatReadersRead(t *testing.T) {
	for most, want := range map[uint]uint{1: 1, 2: 1, 3: 3, 4: 3, 9: 5} {
		if got := highestUpTo([]uint{1, 3, 5}, most); got != want {
			t.Errorf("up to %d it is %d, want %d", most, got, want)
		}
	}
}

// Whoever has a member's key may knock with another word each time. The domain issues
// few key documents for that, and the member's last word is taken in the end.
//
// Requirement: FORM-002
func TestAMemberWhoseWordFlapsCausesFewKeyDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, func(c *Config) {
			c.reads = newer()
			c.FormatsOf = func(spiffeid.TrustDomain) (directory.Formats, time.Time, bool) {
				return nil, time.Now().Add(time.Hour), true // so that a member may read less as well
			}
		})
		d.ready()
		d.attestAll()
		peering := directory.Peering{Domain: beta, State: directory.PeeringActive}
		leader, follower := d.leader()
		store := d.nodes[leader]
		if err := store.SetPeering(t.Context(), peering); err != nil {
			t.Fatal(err)
		}
		d.eventuallyWritten(1)

		before, _ := store.Ledger()
		refused := 0
		for i := range 100 {
			word := d.nodes[follower].wish()
			if i%2 == 0 {
				word.Reads.Formats = nil
			}
			if err := store.seat(t.Context(), d.members[follower].ID, word); directory.ProblemOf(err) == directory.RateLimited {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}

		after, _ := store.Ledger()
		if issued := after - before; issued < 2 || issued > 2*wordBurst || refused == 0 {
			t.Errorf("100 words have caused %d key documents, and %d were refused", issued, refused)
		}
		eventually(t, "the member's own word is taken", func() bool {
			return store.said()[d.members[follower].ID].Reads.equal(newer())
		})
	})
}

// writtenInFormat2 returns a member's state as a release wrote it that had statement format 2 in
// force at the time.
func (d *domain) writtenInFormat2(i int) *state {
	d.t.Helper()
	var header snapshotHeader
	_, items, err := readBackupHeader(bytes.NewReader(d.backup(i)))
	if err != nil {
		d.t.Fatal(err)
	}
	s := must(readSnapshot(items, alpha, nil, &header))
	for reg := range s.regs.each() {
		reg.format = 2
	}

	return s
}

// A backup that a later release has written is not installed on members that could
// build none of its statements again.
//
// Requirement: FORM-002
func TestABackupWithStatementsThatAMemberDoesNotReadIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, func(c *Config) { c.reads = older() })
		d.ready()
		leader, _ := d.leader()
		out, err := d.nodes[leader].Register(t.Context(), put(t, ada, "kept", 6000))
		if err != nil {
			t.Fatal(err)
		}

		var file bytes.Buffer
		header := backupHeader{backupVersion, d.members[0].ID, time.Now().Unix()}
		if err := d.writtenInFormat2(leader).snapshot().backup(&file, header); err != nil {
			t.Fatal(err)
		}

		_, err = d.nodes[leader].Restore(t.Context(), &file, RestoreOptions{Force: true})
		const says = "has a statement of format 2, and statement formats [1] are read"
		if directory.ProblemOf(err) != directory.Conflict || !strings.Contains(err.Error(), says) {
			t.Errorf("the restore says %v", err)
		}
		d.settled()
		for i, s := range d.nodes {
			if _, _, ok := s.Own(out.RID); !ok || s.failure() != nil || s.isSealed() {
				t.Errorf("node %d has changed: %v", i, s.failure())
			}
		}
	})
}

// Formats fall and what was written stays. A member that can't read it doesn't begin
// with it, nor with an older snapshot in its place.
//
// Requirement: FORM-002
func TestAMemberDoesNotStartOnStatementsThatItDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, func(c *Config) { c.reads = older() })
		d.ready()
		if _, err := d.nodes[0].Register(t.Context(), put(t, ada, "kept", 6000)); err != nil {
			t.Fatal(err)
		}
		d.settled()
		s := d.nodes[2]
		if err := s.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.nodes[0].Register(t.Context(), put(t, ada, "later", 6000)); err != nil {
			t.Fatal(err)
		}
		d.settled()

		s.mu.Lock()
		for reg := range s.state.regs.each() {
			reg.format = 2
		}
		s.mu.Unlock()
		if err := s.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}

		d.stop(2)
		started, err := d.open(2)
		d.nodes[2] = started // nil if it doesn't
		const says = "has a statement of format 2, and statement formats [1] are read"
		if err == nil || !strings.Contains(err.Error(), says) || errors.Is(err, ErrDamaged) {
			t.Errorf("it starts, or says %v", err)
		}
	})
}
