package consensus

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// A thiefOfAKey speaks Raft with the key of a member, which runs beside it.
type thiefOfAKey struct {
	net.Listener
	d    *domain
	as   Member
	wire *raft.NetworkTransport
}

func newThief(d *domain, member int) *thiefOfAKey {
	d.t.Helper()
	t := &thiefOfAKey{Listener: d.net.listen("thief"), d: d, as: d.members[member]}
	t.wire = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: t, Timeout: 5 * time.Second, Logger: hclog.NewNullLogger(),
	})
	d.t.Cleanup(func() {
		t.wire.CloseStreams()
		_ = t.wire.Close()
	})

	return t
}

// Dial implements raft.StreamLayer.
func (t *thiefOfAKey) Dial(address raft.ServerAddress, _ time.Duration) (net.Conn, error) {
	conn, err := t.d.net.dialer("thief")(t.d.t.Context(), string(address))
	if err != nil {
		return nil, err
	}

	_, client := t.d.ca.configs(t.d.t, t.as.ID)
	client.NextProtos = []string{transport.ProtocolRaft}

	return tls.Client(conn, client), nil
}

// header is that of the thief's messages.
func (t *thiefOfAKey) header() raft.RPCHeader {
	return raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.as.ID.String()), Addr: []byte(t.as.Address),
	}
}

// leads sends entries behind a member's log, at the next term, after change. The indexes and terms of the
// entries are filled in if they are zero.
func (t *thiefOfAKey) leads(to int, change func(*raft.AppendEntriesRequest), entries ...*raft.Log) error {
	log := t.d.nodes[to].group.raft
	lastTerm, _ := strconv.ParseUint(log.Stats()["last_log_term"], 10, 64)
	message := &raft.AppendEntriesRequest{
		RPCHeader: t.header(), Term: log.CurrentTerm() + 1, PrevLogEntry: log.LastIndex(), PrevLogTerm: lastTerm,
		Entries: entries, LeaderCommitIndex: log.LastIndex() + uint64(len(entries)),
	}

	for i, entry := range entries {
		if entry.Index == 0 {
			entry.Index = message.PrevLogEntry + uint64(i) + 1
		}

		if entry.Term == 0 {
			entry.Term = message.Term
		}
	}

	if change != nil {
		change(message)
	}

	return t.wire.AppendEntries(raft.ServerID(t.d.members[to].ID.String()),
		raft.ServerAddress(t.d.members[to].Address), message, &raft.AppendEntriesResponse{})
}

// installs sends a member a snapshot that ends behind its log, at the next term.
func (t *thiefOfAKey) installs(to int, snapshot []byte) error {
	return t.installsFrom(to, bytes.NewReader(snapshot), len(snapshot))
}

// installsFrom is installs with a snapshot that is said to have size bytes.
func (t *thiefOfAKey) installsFrom(to int, snapshot io.Reader, size int) error {
	log := t.d.nodes[to].group.raft
	message := &raft.InstallSnapshotRequest{
		RPCHeader: t.header(), SnapshotVersion: raft.SnapshotVersionMax, Term: log.CurrentTerm() + 1,
		LastLogIndex: log.LastIndex() + 1, LastLogTerm: log.CurrentTerm(),
		Configuration:      raft.EncodeConfiguration(log.GetConfiguration().Configuration()),
		ConfigurationIndex: 1, Size: int64(size),
	}

	var answer raft.InstallSnapshotResponse

	err := t.wire.InstallSnapshot(raft.ServerID(t.d.members[to].ID.String()),
		raft.ServerAddress(t.d.members[to].Address), message, &answer, snapshot)
	if err == nil && !answer.Success {
		err = errors.New("it was not installed")
	}

	return err
}

// A refusalRecord has what members have refused of others.
type refusalRecord struct {
	mu  sync.Mutex
	all []Misconduct
}

func (r *refusalRecord) add(m Misconduct) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, m)
}

// take returns what was refused since.
func (r *refusalRecord) take() []Misconduct {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil

	return all
}

// one fails unless one message was refused since: of a member, as a kind of misconduct.
func (r *refusalRecord) one(t *testing.T, what string, by Member, kind MisconductKind) {
	t.Helper()

	if got := r.take(); len(got) != 1 || got[0].By != by.ID || got[0].Kind != kind {
		t.Errorf("%s: reported are %v, want %s by %s", what, got, kind, by.ID)
	}
}

// frozen returns a snapshot of a member's state, which has all that the domain has committed.
func (d *domain) frozen(at int) []byte {
	d.t.Helper()
	d.settled()

	return frozenOf(d.t, d.nodes[at])
}

// eventuallyAnswers waits until a member gets an answer of another one.
func (d *domain) eventuallyAnswers(at, of int) {
	d.t.Helper()
	eventually(d.t, "the other one answers", func() bool {
		return d.nodes[at].messenger.post(d.t.Context(), d.members[of], decisionPath, &message.DecisionRequest{},
			&message.DecisionAnswer{}) == nil
	})
}

// command returns a log entry with commands.
func command(t *testing.T, version uint, commands ...state.Command) *raft.Log {
	t.Helper()

	data, err := state.Marshal(&state.Batch{Version: version, Time: 1, Commands: commands})
	must(t, err)

	return &raft.Log{Type: raft.LogCommand, Data: data}
}

// Whoever has the key of one member sends the others entries that none could apply or store, or that
// contradict what is committed: each is refused and reported with the member, the domain goes on, and all
// members start again.
//
// Requirement: SEC-019
func TestAFalseLeadersEntriesAreRefused(t *testing.T) {
	refused := &refusalRecord{}

	inDomain(t, 3, func(c *Config) { c.Misconduct = refused.add }, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		stolen := 3 - leader - other
		thief := newThief(d, stolen)
		beyond := state.Numbers{Log: 99, Snapshot: 1, Wire: 1}
		wrongWord := state.Member{ID: d.members[other].ID, Reads: Versions{Log: 99, Snapshot: 9, Wire: 9}}
		newest := uint(state.NewestLogVersion)

		for name, c := range map[string]struct {
			entries []*raft.Log
			change  func(*raft.AppendEntriesRequest)
			want    MisconductKind
		}{
			"a later version": {entries: []*raft.Log{command(t, 99)}, want: badEntry},
			"no commands":     {entries: []*raft.Log{{Type: raft.LogCommand, Data: []byte("garbage")}}, want: badEntry},
			"an unknown type": {entries: []*raft.Log{{Type: 77}}, want: badEntry},
			"an old library's configuration": {
				entries: []*raft.Log{{Type: raft.LogRemovePeerDeprecated, Data: []byte("x")}}, want: badEntry,
			},
			"no configuration": {
				entries: []*raft.Log{{Type: raft.LogConfiguration, Data: []byte("garbage")}}, want: badEntry,
			},
			"a configuration without voters": {
				entries: []*raft.Log{{Type: raft.LogConfiguration,
					Data: raft.EncodeConfiguration(raft.Configuration{})}},
				want: badEntry,
			},
			"a gap":        {entries: []*raft.Log{{Type: raft.LogNoop, Index: 1 << 40}}, want: badEntry},
			"another term": {entries: []*raft.Log{{Type: raft.LogNoop, Term: 1 << 30}}, want: badEntry},
			"a version that nobody reads": {
				entries: []*raft.Log{command(t, newest, state.Command{Member: &state.Member{
					ID: d.members[other].ID, Gone: true}}, state.Command{Feature: &beyond})},
				want: badEntry,
			},
			"a member's word that it has not said": {
				entries: []*raft.Log{command(t, newest, state.Command{Member: &wrongWord})}, want: badEntry,
			},
			"another entry in the place of a committed one": {
				entries: []*raft.Log{{Type: raft.LogNoop, Index: 3}},
				change: func(message *raft.AppendEntriesRequest) {
					message.PrevLogEntry, message.PrevLogTerm = 2, message.Entries[0].Term
				},
				want: badHistory,
			},
			"in another's name": {
				entries: []*raft.Log{{Type: raft.LogNoop}},
				change: func(message *raft.AppendEntriesRequest) {
					message.ID = []byte(d.members[leader].ID.String())
				},
				want: badSender,
			},
			"the last term": {
				change: func(message *raft.AppendEntriesRequest) { message.Term = ^uint64(0) }, want: badTerm,
			},
		} {
			term := d.nodes[other].group.raft.CurrentTerm()

			if err := thief.leads(other, c.change, c.entries...); err == nil {
				t.Errorf("%s: it was acknowledged", name)
			}

			refused.one(t, name, d.members[stolen], c.want)

			if now := d.nodes[other].group.raft.CurrentTerm(); now != term {
				t.Errorf("%s: the term went from %d to %d", name, term, now)
			}

			d.register(other, "after", 6000)
		}

		d.equalStates()

		for i := range d.nodes {
			d.restart(i)
		}

		d.equalStates()
	})
}

// A change that the members could not read back is refused before it is in the log.
func TestAnUnreadableChangeIsNotProposed(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		bad := &state.Command{Order: &state.Order{Action: "\xff"}}

		_, err := d.nodes[0].terms.leader().proposer.propose(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), "could not read this change") {
			t.Errorf("it was proposed: %v", err)
		}

		must(t, d.nodes[0].life.failure())
	})
}

// A drip is one byte a second of a stream, until its context ends.
type drip struct {
	io.Reader
	ctx context.Context
}

// Read implements io.Reader.
func (d drip) Read(b []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		return d.Reader.Read(b[:1])
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

// Whoever has the key of one member sends another one a snapshot byte for byte, so that Raft would do nothing
// else. The member gives the snapshot up, takes a broken connection for no misconduct, and goes on.
//
// Requirement: SEC-019
func TestADrippingSnapshotHoldsNoMember(t *testing.T) {
	refused := &refusalRecord{}

	inDomain(t, 3, func(c *Config) { c.Misconduct = refused.add }, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		thief := newThief(d, 3-leader-other)
		victim := d.nodes[other]

		snapshot := d.frozen(other)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		begun := len(snapshot) / 2
		slow := io.MultiReader(bytes.NewReader(snapshot[:begun]), drip{bytes.NewReader(snapshot[begun:]), ctx})
		installed := make(chan error, 1)

		go func() { installed <- thief.installsFrom(other, slow, len(snapshot)) }()

		time.Sleep(time.Second)

		began := time.Now()
		_ = victim.group.raft.VerifyLeader().Error() // which the loop of Raft answers

		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("Raft does nothing else for %s", took)
		}

		d.ready()

		_, err := victim.Register(t.Context(), put(t, ada, "after", 6000))
		must(t, err)

		if err := <-installed; err == nil {
			t.Error("a snapshot is installed that did not come")
		}

		// The judgement of a larger one has begun by then, and ends as the sink ends it.
		victim.inspector.installing(d.members[leader].ID)

		cut := io.MultiReader(bytes.NewReader(snapshot[:begun]), iotest.ErrReader(disk.ErrCancelled))
		if err := victim.inspector.beginSnapshot()(cut); !errors.Is(err, disk.ErrCancelled) {
			t.Errorf("half a snapshot is judged: %v", err)
		}

		if got := refused.take(); len(got) != 0 {
			t.Errorf("reported are %v", got)
		}
	})
}

// Whoever has the key of one member sends another one snapshots that take it back, or that have another
// history, or a policy that no operator has set: each is refused and reported with the member, is in force
// neither then nor after a start, and the domain goes on.
//
// Requirement: SEC-012, SEC-019
func TestAFalseLeadersSnapshotsAreRefused(t *testing.T) {
	const all = "permit all"

	refused := &refusalRecord{}

	inDomain(t, 3, func(c *Config) {
		c.Misconduct = refused.add
		c.CheckOperator = func(command directory.OperatorCommand) error {
			if command.OperatorChange.Policy != nil && string(command.OperatorChange.Policy.Text) == all {
				return errors.New("no operator has proven it")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		stolen := 3 - leader - other
		thief := newThief(d, stolen)
		victim := d.nodes[other]

		frozen := func() []byte { return d.frozen(other) }
		forged := func(base []byte, commands ...state.Command) []byte {
			s, err := readSnapshot(bytes.NewReader(base), alpha, index.New())
			must(t, err)

			if _, err := s.Apply(&state.Batch{Version: 1, Time: s.History().Now(), Commands: commands}); err != nil {
				t.Fatal(err)
			}

			return freeze(t, s)
		}
		policy := func(text string) state.Command { return state.Command{Policy: &state.Policy{Text: []byte(text)}} }

		before := frozen()

		d.setPolicy(t.Context(), leader, "the operator's")

		set := frozen()
		order := func(target string) state.Command {
			return state.Command{Order: &state.Order{Action: directory.ActionTransferLead, Target: target}}
		}

		must(t, d.nodes[leader].Order(t.Context(), directory.ActionTransferLead, "true"))

		now := frozen()

		edited := func(change func(header map[int]any)) []byte {
			var header map[int]any

			rest := valueOf(cbor.UnmarshalFirst(now, &header))
			change(header)

			return append(valueOf(state.Marshal(header)), rest...)
		}

		for name, c := range map[string]struct {
			snapshot []byte
			want     MisconductKind
		}{
			"a ledger without edges":     {edited(func(header map[int]any) { header[8] = []any{} }), badSnapshot},
			"a negative number of items": {edited(func(header map[int]any) { header[13] = -1 }), badSnapshot},
			"no snapshot":                {[]byte("garbage"), badSnapshot},
			"an earlier state":           {set, badHistory},
			"another history":            {forged(set, order("false")), badHistory},
			"another policy of that revision": {forged(before, policy(all), order("a"), order("b"), order("c")),
				badHistory},
			"a policy that no operator has set": {forged(now, policy(all)), badSnapshot},
			"an admission that no operator has ordered": {forged(now, state.Command{Admit: &state.Admission{
				Pattern: "spiffe://alpha.test/*", Max: 99}}), badSnapshot},
			"a peering that no operator has set": {forged(now, state.Command{Peer: &state.Peer{Domain: beta,
				State: directory.PeeringActive, Mesh: true}}), badSnapshot},
		} {
			if err := thief.installs(other, c.snapshot); err == nil {
				t.Errorf("%s: it was installed", name)
			}

			refused.one(t, name, d.members[stolen], c.want)
		}

		d.ready()

		_, err := victim.Register(t.Context(), put(t, ada, "after", 6000))
		must(t, err)

		d.equalStates()
		d.restart(other)
		d.equalStates()

		text, _ := d.nodes[other].Replica.state.Policy().Policy()
		if string(text) != "the operator's" {
			t.Errorf("the policy is %q", text)
		}
	})
}

// Decisions of operators that came while a member was away are taken from a snapshot if an operator's proof
// leads there, or another voter than its sender has them as well: authorities that signed a proof are
// replaced in time.
//
// Requirement: SEC-012
func TestDecisionsInASnapshotAreProvenOrConfirmed(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		frozen := func() *state.State {
			return valueOf(readSnapshot(bytes.NewReader(d.frozen(0)), alpha, index.New()))
		}

		before := frozen()

		d.setPolicy(t.Context(), 0, "new")

		policy := frozen()
		pattern := "spiffe://alpha.test/roster/node/x*"

		must(t, d.nodes[0].SetPeering(t.Context(), directory.Peering{Domain: beta,
			State: directory.PeeringActive}))

		must(t, d.nodes[0].Admit(t.Context(), Admission{Pattern: pattern, Max: 2}))

		genuine := frozen()
		forged := func(command state.Command) *state.State {
			s := frozen()
			command.Origin = &state.Origin{From: d.members[1].ID, Judged: s.History().Now()}

			if _, err := s.Apply(&state.Batch{Version: 1, Time: s.History().Now(),
				Commands: []state.Command{command}}); err != nil {
				t.Fatal(err)
			}

			return s
		}
		all := forged(state.Command{Policy: &state.Policy{Text: []byte("permit all")}})
		admits := forged(state.Command{Admit: &state.Admission{Pattern: "spiffe://alpha.test/*", Max: 99}})

		for name, c := range map[string]struct {
			next   *state.State
			proven bool
			cut    bool
			want   bool
		}{
			"proven":                            {genuine, true, true, true},
			"proven, the policy alone":          {policy, true, true, true},
			"confirmed":                         {genuine, false, false, true},
			"neither":                           {genuine, false, true, false},
			"confirmed by no voter":             {all, false, false, false},
			"judged by a policy that it missed": {all, true, false, false},
			"an admission, proven":              {admits, true, true, true},
			"an admission, confirmed by nobody": {admits, false, false, false},
		} {
			if c.cut {
				d.net.isolate(d.members[2].Address)
			}

			cfg := *d.nodes[0].cfg
			cfg.CheckOperator = func(command directory.OperatorCommand) error {
				if c.proven {
					return nil
				}

				return errors.New("its authority is no more in the bundle")
			}

			away := inspector{member: &member{cfg: &cfg, group: d.nodes[0].group, replica: &Replica{state: before}},
				confirmed: d.nodes[0].peers.confirmed}

			// Member 1 has sent it, so its word does not count.
			if err := away.checkSnapshot(d.members[1].ID, c.next); (err == nil) != c.want {
				t.Errorf("%s: %v", name, err)
			}

			d.net.heal(d.members[2].Address)
			d.ready()
			d.eventuallyAnswers(0, 2)
		}
	})
}

// A bundle of a peer that a snapshot brings is proven if another voter than the sender has it in force, or if an
// operator has ordered it. Otherwise the member holds it back, and takes the snapshot.
//
// Requirement: SEC-012
func TestABundleInASnapshotIsProvenOrHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inForce atomic.Value // on all members

		inForce.Store(directory.Hash{})

		d := newDomain(t, 3, func(cfg *Config) {
			cfg.Bundles = func() directory.Hash { return inForce.Load().(directory.Hash) }
		})
		d.ready()

		peering := directory.Peering{Domain: beta, State: directory.PeeringActive, Bundle: []byte("old"),
			Endpoint: directory.BundleEndpoint{URL: "https://beta.test/bundle", Profile: directory.ProfileSPIFFE}}
		must(t, d.nodes[0].SetPeering(t.Context(), peering))

		frozen := func() *state.State {
			return valueOf(readSnapshot(bytes.NewReader(d.frozen(0)), alpha, index.New()))
		}
		before := frozen()

		must(t, d.nodes[0].SetBundle(t.Context(), beta, []byte("old"), []byte("new")))

		refreshed := frozen()

		peering.Bundle = []byte("ordered")
		must(t, d.nodes[0].SetPeering(t.Context(), peering))

		ordered := frozen()
		has := func(s *state.State) directory.Hash { return directory.BundlesHash(s.Peerings().List()) }

		for name, c := range map[string]struct {
			next   *state.State
			voters directory.Hash
			proven bool
			bundle string
			want   bool
		}{
			"another voter has it":  {refreshed, has(refreshed), true, "new", true},
			"no other voter has it": {refreshed, has(before), true, "new", false},
			"ordered":               {ordered, has(before), true, "ordered", true},
			"ordered, unproven":     {ordered, has(before), false, "ordered", false},
		} {
			inForce.Store(c.voters)

			cfg := *d.nodes[0].cfg
			cfg.CheckOperator = func(directory.OperatorCommand) error {
				if c.proven {
					return nil
				}

				return errors.New("no proof")
			}

			away := inspector{member: &member{cfg: &cfg, group: d.nodes[0].group, replica: &Replica{state: before}},
				confirmed: d.nodes[0].peers.confirmed}
			if err := away.checkSnapshot(d.members[1].ID, c.next); err != nil {
				t.Errorf("%s: the snapshot is refused: %v", name, err)
			}

			if is := away.replica.Commands.Proven(beta, []byte(c.bundle)); is != c.want {
				t.Errorf("%s: it is proven: %t", name, is)
			}
		}

		if !d.nodes[1].Commands.Proven(beta, []byte("ordered")) {
			t.Error("the bundle of a command in the log is not proven")
		}
	})
}
