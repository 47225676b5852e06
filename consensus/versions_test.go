package consensus

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// newer is what a release reads that has a format 2 of pages and heads.
func newer() Versions {
	reads := older()
	reads.Formats = signed.Formats{signed.StructureHead: {1, 2}, signed.StructurePage: {1, 2}}

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
			if s != nil && s.Replica.Written().Format(signed.StructurePage) != page {
				return false
			}
		}

		return true
	})
}

// equalStates fails unless all running members come to have one state. Commands without a revision
// may still be on their way to a member whose position is the leader's.
func (d *domain) equalStates() {
	d.t.Helper()
	d.settled()

	eventually(d.t, "all members have the same state", func() bool {
		var first []byte
		for _, s := range d.nodes {
			if s == nil {
				continue
			}

			frozen := frozenOf(d.t, s)
			if first == nil {
				first = frozen
			} else if !bytes.Equal(first, frozen) {
				return false
			}
		}

		return true
	})
}

// Requirement: FORM-002
func TestAFormatIsInForceOnceAllMembersReadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := map[int]Versions{0: older(), 1: older(), 2: older()}
		d := newDomain(t, 3, func(c *Config) { c.reads = older() })
		d.reading(reads)
		d.ready()

		d.register(0, "before", 6000)

		for i := range d.nodes {
			time.Sleep(2 * time.Second) // several rounds in which the leader could raise it
			synctest.Wait()

			if got := d.nodes[0].Replica.Written().Format(signed.StructurePage); got != 1 {
				t.Fatalf("pages are in format %d before node %d reads it", got, i)
			}

			reads[i] = newer()
			d.restart(i)
		}

		d.eventuallyWritten(2)
		d.equalStates()

		d.register(1, "after", 6000)

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
	inDomain(t, 1, func(c *Config) { c.reads = newer() }, func(t *testing.T, d *domain) {
		d.eventuallyWritten(2)

		i := d.newcomer(func(c *Config) { c.reads = older() })
		d.admit(0, i)
		eventually(t, "it is told which formats it reads and which are written", func() bool {
			err := d.nodes[i].Ready()

			return err != nil && strings.Contains(err.Error(),
				"it reads head formats [1] and the domain writes format 2")
		})

		if voters, readers := d.voters(0); voters+readers != 1 {
			t.Errorf("the domain has %d members", voters+readers)
		}

		d.stop(i)
		d.startJoining(i, nil) // upgraded, with the same admission
		d.eventuallyVoters(0, 2, 0)
		d.ready()
		d.equalStates()
	})
}

// Requirement: FORM-002
func TestADowngradeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := map[int]Versions{}
		d := newDomain(t, 1, func(c *Config) { c.reads = newer() })
		d.reading(reads)
		d.ready()
		d.eventuallyWritten(2)
		reads[0] = older()

		// Without a snapshot it is the log that says so.
		d.stop(0)
		d.start(0)
		stopped := d.nodes[0]
		<-stopped.Failed()

		const says = "it reads head formats [1] and the domain writes format 2"
		if err := stopped.Ready(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("a downgraded member says %v", err)
		}

		d.stop(0)

		// With one it doesn't start.
		delete(reads, 0)
		d.start(0)
		d.ready()

		must(t, d.nodes[0].group.raft.Snapshot().Error())

		d.stop(0)
		reads[0] = older()

		if _, err := d.open(0); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("it starts, or says %v", err)
		}
	})
}

// Requirement: FORM-002
func TestAPeerThatReadsLessLowersTheFormat(t *testing.T) {
	var began time.Time

	inDomain(t, 1, func(c *Config) {
		c.reads, began = newer(), time.Now()
		c.FormatsOf = func(peer spiffeid.TrustDomain) (signed.Formats, time.Time, bool) {
			return signed.Formats{}, began.Add(time.Minute - keysForgotten), peer == beta
		}
	}, func(t *testing.T, d *domain) {
		d.eventuallyWritten(2)

		out := d.register(0, "before", 6000)

		before, _, _ := d.nodes[0].Replica.Own(out.RID)

		agree := func(peer spiffeid.TrustDomain, state directory.PeeringState) {
			t.Helper()

			must(t, d.nodes[0].SetPeering(t.Context(), directory.Peering{Domain: peer, State: state}))
		}

		// One that isn't known to read anything changes nothing.
		gamma := spiffeid.RequireTrustDomainFromString("gamma.test")
		agree(gamma, directory.PeeringActive)
		time.Sleep(5 * time.Second)
		d.eventuallyWritten(2)

		agree(beta, directory.PeeringActive)
		d.eventuallyWritten(1)

		if after, _, _ := d.nodes[0].Replica.Own(out.RID); !bytes.Equal(before, after) {
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

// A peer may change what it says of its formats as often as it likes. That costs this
// domain a few log entries, and not one at each look.
//
// Requirement: FORM-002
func TestAPeerWhoseFormatsFlapCausesFewLogEntries(t *testing.T) {
	var (
		looks  atomic.Int64
		steady atomic.Bool
	)

	inDomain(t, 1, func(c *Config) {
		quiet(c)

		c.reads = newer()
		c.FormatsOf = func(spiffeid.TrustDomain) (signed.Formats, time.Time, bool) {
			if looks.Add(1)%2 == 0 || steady.Load() {
				return newer().Formats, time.Now().Add(time.Hour), true
			}

			return nil, time.Now().Add(time.Hour), true
		}
	}, func(t *testing.T, d *domain) {
		d.eventuallyWritten(2)

		peering := directory.Peering{Domain: beta, State: directory.PeeringActive}
		must(t, d.nodes[0].SetPeering(t.Context(), peering))

		before := d.nodes[0].Replica.Position().Revision
		time.Sleep(2 * time.Minute)

		if looks.Load() < 100 {
			t.Fatalf("the leader has looked %d times", looks.Load())
		}

		if entries := d.nodes[0].Replica.Position().Revision - before; entries > 2*riseBurst+1 {
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
	inDomain(t, 3, func(c *Config) {
		c.reads = newer()
		c.FormatsOf = func(spiffeid.TrustDomain) (signed.Formats, time.Time, bool) {
			return nil, time.Now().Add(time.Hour), true // so that a member may read less as well
		}
	}, func(t *testing.T, d *domain) {
		d.attestAll()
		d.eventuallyWritten(2) // else this may follow the peering
		peering := directory.Peering{Domain: beta, State: directory.PeeringActive}
		leader, follower := d.leader()

		store := d.nodes[leader]
		must(t, store.SetPeering(t.Context(), peering))

		d.eventuallyWritten(1)

		before, _ := store.Replica.Ledger()

		refused := 0
		for i := range 100 {
			word := d.nodes[follower].joins.ownRequest()
			if i%2 == 0 {
				word.Reads.Formats = nil
			}

			if err := store.terms.leader().addMember(t.Context(), d.members[follower].ID,
				word); directory.ProblemOf(err) == directory.RateLimited {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}

		after, _ := store.Replica.Ledger()
		if issued := after - before; issued < 2 || issued > 2*wordBurst || refused == 0 {
			t.Errorf("100 words have caused %d key documents, and %d were refused", issued, refused)
		}

		eventually(t, "the member's own word is taken", func() bool {
			return store.peers.declared()[d.members[follower].ID].Reads.Equal(newer())
		})
	})
}

// writtenInFormat2 returns a member's state as a release wrote it that had statement format 2 in
// force at the time.
func (d *domain) writtenInFormat2(i int) *state.State {
	d.t.Helper()

	_, items, err := backup.ReadHeader(bytes.NewReader(d.backup(i)))
	must(d.t, err)

	s, _, err := state.Read(items, alpha, nil, state.Parallel{})
	must(d.t, err)

	return inFormat2(d.t, s)
}

// A backup that a later release has written is not installed on members that could
// build none of its statements again.
//
// Requirement: FORM-002
func TestABackupWithStatementsThatAMemberDoesNotReadIsRefused(t *testing.T) {
	inDomain(t, 1, func(c *Config) { c.reads = older() }, func(t *testing.T, d *domain) {
		out := d.register(0, "kept", 6000)

		var file bytes.Buffer

		header := backup.Header{Version: backup.Version, Node: d.members[0].ID, Taken: time.Now().Unix()}
		must(t, backup.Write(&file, header, d.writtenInFormat2(0).Snapshot()))

		_, err := d.nodes[0].restorer.Restore(t.Context(), &file, RestoreOptions{NewEpoch: true})

		const says = "has a statement of format 2, and statement formats [1] are read"
		if directory.ProblemOf(err) != directory.Conflict || !strings.Contains(err.Error(), says) {
			t.Errorf("the restore says %v", err)
		}

		d.settled()

		for i, s := range d.nodes {
			if _, _, ok := s.Replica.Own(out.RID); !ok || s.life.failure() != nil || s.Replica.isSealed() {
				t.Errorf("node %d has changed: %v", i, s.life.failure())
			}
		}
	})
}

// Formats fall and what was written stays. A member that can't read it doesn't begin
// with it, nor with an older snapshot in its place.
//
// Requirement: FORM-002
func TestAMemberDoesNotStartOnStatementsThatItDoesNotRead(t *testing.T) {
	inDomain(t, 1, func(c *Config) { c.reads = older() }, func(t *testing.T, d *domain) {
		d.register(0, "kept", 6000)

		d.settled()

		s := d.nodes[0]
		must(t, s.group.raft.Snapshot().Error())

		d.register(0, "later", 6000)

		d.settled()

		s.Replica.mu.Lock()
		s.Replica.state = inFormat2(t, s.Replica.state)
		s.Replica.mu.Unlock()

		must(t, s.group.raft.Snapshot().Error())

		d.stop(0)
		started, err := d.open(0)
		d.nodes[0] = started // nil if it doesn't

		const says = "has a statement of format 2, and statement formats [1] are read"
		if err == nil || !strings.Contains(err.Error(), says) || errors.Is(err, ErrDamaged) {
			t.Errorf("it starts, or says %v", err)
		}
	})
}

// inFormat2 returns s with statements of format 2.
func inFormat2(t testing.TB, s *state.State) *state.State {
	t.Helper()
	frozen := freeze(t, s)

	var header struct {
		Peerings int `cbor:"10,keyasint"`
		Keys     int `cbor:"11,keyasint"`
		Formers  int `cbor:"12,keyasint"`
		Regs     int `cbor:"13,keyasint"`
		Holds    int `cbor:"16,keyasint"`
		Members  int `cbor:"17,keyasint"`
		Admitted int `cbor:"18,keyasint"`
		Spent    int `cbor:"20,keyasint"`
		Claims   int `cbor:"22,keyasint"`
		Ordered  int `cbor:"46,keyasint"`
	}
	must(t, cbor.NewDecoder(bytes.NewReader(frozen)).Decode(&header))

	before := 1 + header.Peerings + header.Keys + header.Formers + header.Holds + header.Members + header.Admitted +
		header.Spent + header.Ordered + header.Claims

	const format = 16 // in a registration's item

	var out []byte
	for i := 0; len(frozen) > 0; i++ {
		var (
			item cbor.RawMessage
			err  error
		)
		if frozen, err = cbor.UnmarshalFirst(frozen, &item); err != nil {
			t.Fatal(err)
		}

		if i >= before && i < before+header.Regs {
			var members map[int]cbor.RawMessage
			must(t, cbor.Unmarshal(item, &members))

			members[format] = cbor.RawMessage{2}
			item = valueOf(state.Marshal(members))
		}

		out = append(out, item...)
	}

	other, _, err := state.Read(bytes.NewReader(out), alpha, nil, state.Parallel{})
	must(t, err)

	return other
}
