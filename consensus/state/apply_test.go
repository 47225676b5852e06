package state

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

// genesis is the committed time at which tests begin: 2026-11-01, in Unix
// milliseconds.
const genesis = int64(1793491200000)

// A drive applies commands to a state as a log would.
type drive struct {
	t     testing.TB
	state *State
	n     int
}

func newDrive(t testing.TB) *drive {
	d := &drive{t: t, state: New(alpha, index.New())}
	d.applies(0, Command{Epoch: &Epoch{uint64(genesis / 1000), "bootstrap"}})

	return d
}

// at applies one command, as an entry of its own, some seconds after genesis.
func (d *drive) at(seconds int64, c Command) Result {
	d.t.Helper()

	data, err := Marshal(&Batch{FirstVersion, genesis + seconds*1000, []Command{c}})
	if err != nil {
		d.t.Fatal(err)
	}

	b, err := DecodeBatch(data) // as from the log
	if err != nil {
		d.t.Fatal(err)
	}

	rs, err := d.state.Apply(b)
	if err != nil {
		d.t.Fatal(err)
	}

	return rs[0]
}

func meshGrant(owner directory.Identity) Granted {
	return Granted{Owner: owner, Grants: []grant{{Audience: directory.Mesh, All: true}}}
}

// registering is a register command as a leader makes it.
func (d *drive) registering(who directory.Identity, agent string, lifetime uint32) *Register {
	d.n++
	doc := document(d.t, agent)
	g := meshGrant(who)
	g.Policy = d.state.policy.basis

	r := &Register{
		Format: signed.StatementFormat, RID: directory.NewRID(genesis, [10]byte{byte(d.n >> 8), byte(d.n)}),
		Salt:   signed.Salt{byte(d.n)},
		Caller: who, Agent: agent, Kind: doc.Kind(), Document: doc.Bytes(), Lifetime: lifetime,
		Visibility: directory.Visibility{Mesh: true}, Granted: g,
	}
	if d.n%2 == 0 { // what a leader makes is as if apply had made it
		r.Made = must(r.prepared(d.t))
	}

	return r
}

// prepared is what a leader makes for r.
func (r *Register) prepared(t testing.TB) (*Made, error) {
	t.Helper()
	doc := directory.LoadDocument(r.Kind, r.Document)

	_, m, err := Project(r.Agent, doc, nil)
	if err != nil {
		return nil, err
	}

	m.Complete(r.Agent, doc, r.Provenance(), r.Salt, r.Granted)

	return m, nil
}

// bringerN0 is the origin of a command that the node n0 brought.
var bringerN0 = &Origin{From: must(alphaNode("n0"))}

func (d *drive) register(seconds int64, who directory.Identity, agent string, lifetime uint32) directory.RID {
	d.t.Helper()

	r := d.at(seconds, Command{Register: d.registering(who, agent, lifetime), Origin: bringerN0})
	if r.Err != nil {
		d.t.Fatal(r.Err)
	}

	return r.Outcome.RID
}

func (d *drive) refresh(seconds int64, who directory.Identity, rid directory.RID, lifetime uint32) Result {
	d.t.Helper()
	return d.at(seconds, Command{Refresh: &Refresh{RID: rid, Caller: who, Lifetime: lifetime}})
}

func (d *drive) entry(rid directory.RID) directory.Entry {
	d.t.Helper()

	e, ok := d.state.registrations.index.Get(rid)
	if !ok {
		d.t.Fatalf("%s is not in the index", rid)
	}

	return *e
}

// mesh returns the mesh stream above a revision.
func (d *drive) mesh(since uint64) []signed.Digest {
	ds, _ := d.state.streams.byAudience[directory.Mesh].scan(since, 1000, d.state.history.revision)
	return ds
}

// Requirement: AD-017, AD-018, AD-034
func TestTheFirstComeHoldsTheName(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)
	before := d.entry(rid)
	size := d.state.history.ledger.Size

	r := d.at(2, Command{Register: d.registering(bob, "translator", 600)})
	problem(t, r.Err, directory.NameTaken)

	if want := "agent name 'translator' already registered"; r.Err.Error() != want {
		t.Errorf("the detail is %q, want %q", r.Err, want)
	}

	if after := d.entry(rid); after.Revision != before.Revision || d.state.history.ledger.Size != size ||
		d.state.history.revision != before.Revision {
		t.Error("a refused registration changed something")
	}

	again := d.registering(ada, "translator", 900)
	if r = d.at(3, Command{Register: again}); r.Err != nil || r.Outcome.RID != rid || r.Outcome.Created {
		t.Fatalf("a replace gave %+v", r)
	}

	after := d.entry(rid)
	if after.RegisteredAt != before.RegisteredAt || after.Created != before.Created ||
		after.Revision <= before.Revision ||
		after.UpdatedAt != genesis+3000 || after.ExpiresAt != genesis+903000 || after.Lifetime != 900 {
		t.Errorf("a replace made %+v of %+v", after, before)
	}

	if r = d.at(4, Command{Remove: &Remove{Format: 1, RID: rid, Caller: ada}}); r.Err != nil {
		t.Fatal(r.Err)
	}

	if taken := d.register(5, bob, "translator", 600); taken == rid {
		t.Error("the name was free, and its new holder got the old rid")
	}

	problem(t, d.refresh(6, ada, rid, 0).Err, directory.NotFound) // removed, not expired
}

func TestANoOpReplaceIsAChangeToo(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)
	first := d.mesh(0)[0]
	d.register(2, ada, "translator", 600)

	second := d.mesh(0)
	if len(second) != 1 || second[0].RID != rid || second[0].Op != signed.OpPut || second[0].H == first.H ||
		second[0].Revision != first.Revision+1 {
		t.Errorf("the stream went from %+v to %+v", first, second)
	}
}

// Requirement: AD-022, AD-024, AD-034, AD-058
func TestExpiryByCommittedTimeNotBySweep(t *testing.T) {
	d := newDrive(t)
	rid := d.register(0, ada, "translator", 60)
	problem(t, d.refresh(60, ada, rid, 0).Err, directory.RegistrationExpired) // the sweep has not run
	problem(t, d.refresh(60, bob, rid, 0).Err, directory.NotFound)

	if d.state.registrations.regs.get(rid) == nil {
		t.Fatal("a refused refresh changed something")
	}

	revision := d.state.history.revision

	taken := d.register(60, bob, "translator", 60) // end and put by one command
	if taken == rid || d.state.history.revision != revision+2 {
		t.Errorf("the name went from %s to %s by %d changes", rid, taken, d.state.history.revision-revision)
	}

	problem(t, d.refresh(61, ada, rid, 0).Err, directory.RegistrationExpired)
	problem(t, d.refresh(61, bob, rid, 0).Err, directory.NotFound)
	r := d.at(61, Command{Refresh: &Refresh{RID: rid, Caller: tool, Commissioning: true}})
	problem(t, r.Err, directory.RegistrationExpired)

	problem(t, d.refresh(60+formerSeconds-1, ada, rid, 0).Err, directory.RegistrationExpired)
	problem(t, d.refresh(60+formerSeconds, ada, rid, 0).Err, directory.NotFound)
}

// Requirement: AD-058
func TestFormersAreBounded(t *testing.T) {
	f := formers{owners: map[directory.RID]former{}}

	rid := func(n int) directory.RID {
		return directory.NewRID(1, [10]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	for i := range formerCount + 1 {
		f.remember(former{rid(i), ada, 1})
	}

	if _, ok := f.owner(rid(0), 1); ok || len(f.owners) != formerCount || len(f.queue) != formerCount {
		t.Errorf("%d and %d are remembered, want %d", len(f.owners), len(f.queue), formerCount)
	}

	if who, ok := f.owner(rid(1), 1); !ok || who != ada {
		t.Error("the oldest within the bound is forgotten")
	}
}

// Requirement: AD-001, AD-020, AD-024
func TestASweepEndsOnlyWhatIsPastItsDeadline(t *testing.T) {
	d := newDrive(t)
	short := d.register(0, ada, "short", 60)
	long := d.register(0, ada, "long", 61)

	expired, _ := d.state.registrations.Due(genesis/1000 + 60)
	if len(expired) != 1 || expired[0] != short {
		t.Fatalf("due at 60 s are %v", expired)
	}

	d.refresh(59, ada, long, 0)
	d.at(62, Command{Expire: &Sweep{1, []directory.RID{short, long, short}}})

	if _, ok := d.state.registrations.index.Get(short); ok {
		t.Error("the short one is still there")
	}

	if e := d.entry(long); e.ExpiresAt != genesis+120_000 {
		t.Errorf("the refreshed one ends at %d", e.ExpiresAt)
	}
}

func TestOwnersAndCommissioners(t *testing.T) {
	d := newDrive(t)
	rid := d.register(0, ada, "translator", 600)
	problem(t, d.refresh(1, bob, rid, 0).Err, directory.Forbidden)
	problem(t, d.at(1, Command{Remove: &Remove{Format: 1, RID: rid, Caller: bob}}).Err, directory.Forbidden)
	problem(t, d.at(1, Command{Update: &Update{Format: 1, RID: rid, Caller: bob}}).Err, directory.Forbidden)

	c := d.registering(tool, "translator", 700)

	c.Commissioning = true
	if r := d.at(2, Command{Register: c}); !errors.Is(r.Err, ErrMoved) { // asked about as tool's own
		t.Fatalf("grants for another owner were taken: %+v", r)
	}

	c.Granted.Owner = ada
	if r := d.at(2, Command{Register: c}); r.Err != nil || r.Outcome.RID != rid {
		t.Fatalf("a commissioner's replace: %+v", r)
	}

	if e := d.entry(rid); e.Owner != ada || e.Lifetime != 700 {
		t.Errorf("after it the registration is %+v", e)
	}

	d.applies(3, Command{Remove: &Remove{Format: 1, RID: rid, Caller: tool, Commissioning: true}})
}

func TestIfMatchIsTheCurrentRevision(t *testing.T) {
	d := newDrive(t)
	rid := d.register(0, ada, "translator", 600)

	now := d.entry(rid).Revision
	for _, c := range []struct {
		name string
		of   []uint64
		ok   bool
	}{{"another", []uint64{now + 1}, false}, {"none that is one", []uint64{}, false},
		{"one of two", []uint64{7, now}, true}} {
		r := d.at(1, Command{Refresh: &Refresh{RID: rid, Caller: ada, IfMatch: c.of}})
		if c.ok != (r.Err == nil) {
			t.Errorf("%s: %v", c.name, r.Err)
		}

		if r.Err != nil {
			problem(t, r.Err, directory.PreconditionFailed)
		}
	}

	absent := d.registering(ada, "nobody-yet", 600)
	absent.IfMatch = []uint64{1}
	problem(t, d.at(2, Command{Register: absent}).Err, directory.PreconditionFailed)
}

// Requirement: AD-020, AD-056
func TestARefreshChangesTheDeadlineAlone(t *testing.T) {
	d := newDrive(t)
	rid := d.register(0, ada, "translator", 600)

	before := d.entry(rid)
	if r := d.refresh(100, ada, rid, 0); r.Err != nil || r.Outcome.Granted != 600 {
		t.Fatalf("%+v", r)
	}

	after := d.entry(rid)
	if after.ExpiresAt != genesis+700_000 || after.Revision != before.Revision+1 {
		t.Errorf("it ends at %d, revision %d", after.ExpiresAt, after.Revision)
	}

	after.ExpiresAt, after.Revision = before.ExpiresAt, before.Revision
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("more than that changed: %+v, was %+v", after, before)
	}

	doc := document(t, "new")

	u := &Update{Format: 1, RID: rid, Caller: ada, Statement: before.Statement, Document: doc.Bytes(),
		Granted: meshGrant(ada)}
	if r := d.at(200, Command{Update: u}); r.Err != nil || r.Outcome.Granted != 600 {
		t.Fatalf("%+v", r)
	}

	if e := d.entry(rid); e.Revision != before.Revision+2 || e.ExpiresAt != genesis+800_000 ||
		string(e.Document.Bytes()) != string(doc.Bytes()) {
		t.Errorf("an update with a body made %+v", e)
	}

	if r := d.at(201, Command{Update: u}); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("an update of contents that have changed: %+v", r)
	}
}

// Requirement: MESH-007, MESH-013
func TestWhatIsAnnounced(t *testing.T) {
	sec := genesis / 1000
	d := newDrive(t)
	rid := d.register(0, ada, "translator", 400)

	put := d.mesh(0)[0]
	if put.Deadline != sec+400 || put.Lifetime != 400 {
		t.Fatalf("a put announces %+v", put)
	}

	// X2: a refresh announces nothing, until the margin of lt/4 is reached.
	d.refresh(200, ada, rid, 0)

	if ds := d.mesh(put.Revision); len(ds) != 0 {
		t.Errorf("a refresh announced %+v", ds)
	}

	if _, renewed := d.state.registrations.Due(sec + 299); len(renewed) != 0 {
		t.Error("announced before the margin")
	}

	_, renewed := d.state.registrations.Due(sec + 300)
	if len(renewed) != 1 || renewed[0] != rid {
		t.Fatalf("at the margin due are %v", renewed)
	}

	size := d.state.history.ledger.Size
	d.at(300, Command{Announce: &Sweep{1, renewed}})

	ds := d.mesh(put.Revision)
	if len(ds) != 1 || ds[0].Op != signed.OpRenew || ds[0].Deadline != sec+600 || ds[0].H != put.H || ds[0].M != put.M {
		t.Fatalf("announced is %+v", ds)
	}

	if d.state.history.ledger.Size != size+1 {
		t.Error("the announcement is not in the ledger")
	}

	d.at(301, Command{Announce: &Sweep{1, renewed}}) // nothing new to say

	if d.mesh(ds[0].Revision) != nil || d.state.history.ledger.Size != size+1 {
		t.Error("the same deadline was announced twice")
	}

	// X1: a lower deadline is announced by the same command.
	d.refresh(310, ada, rid, 60)

	low := d.mesh(ds[0].Revision)
	if len(low) != 1 || low[0].Deadline != sec+370 || low[0].Op != signed.OpRenew ||
		low[0].Revision != d.entry(rid).Revision {
		t.Fatalf("a lower deadline: %+v", low)
	}

	// X3: it expires before the highest deadline that was announced, so that is said.
	d.at(370, Command{Expire: &Sweep{1, []directory.RID{rid}}})

	end := d.mesh(low[0].Revision)
	if len(end) != 1 || end[0].Op != signed.OpEnd || end[0].H.IsZero() {
		t.Fatalf("an early end: %+v", end)
	}

	// G4: kept until x_max + skew by committed time, G5: the tip stays.
	d.register(659, bob, "other", 60)

	if len(d.mesh(0)) != 2 {
		t.Error("the end was freed before x_max + 60 s")
	}

	tip := d.state.streams.Tip(directory.Mesh)
	d.at(660, Command{Attest: &Attest{Node: spiffeid.RequireFromString("spiffe://alpha.test/roster/node/a"),
		Public: make([]byte, 32), Attestations: []string{"x"}}})

	if ds := d.mesh(0); len(ds) != 1 || ds[0].Op != signed.OpPut {
		t.Errorf("the end was not freed: %+v", ds)
	}

	// X3: at its announced deadline, in silence
	d.at(720, Command{Expire: &Sweep{1, []directory.RID{d.mesh(0)[0].RID}}})

	if len(d.mesh(0)) != 0 || d.state.streams.Tip(directory.Mesh) != tip {
		t.Errorf("after all: %+v, tip %d, was %d", d.mesh(0), d.state.streams.Tip(directory.Mesh), tip)
	}
}

func TestARefreshWithinTheMarginIsAnnouncedSoon(t *testing.T) {
	sec := genesis / 1000
	d := newDrive(t)

	rid := d.register(0, ada, "translator", 400)
	if e, r := d.state.registrations.Due(sec + 310); len(e)+len(r) != 0 {
		t.Fatal("due without a refresh")
	}

	d.refresh(390, ada, rid, 0)

	if _, renewed := d.state.registrations.Due(sec + 390); len(renewed) != 1 {
		t.Error("a refresh ten seconds before the announced deadline waits")
	}

	if _, renewed := d.state.registrations.Due(sec + 391); len(renewed) != 1 {
		t.Error("what was not committed is not tried again")
	}
}

func TestGrantsChange(t *testing.T) {
	d := newDrive(t)
	rid := d.register(0, ada, "translator", 400)
	first := d.mesh(0)[0]
	item := RegrantItem{RID: rid, Statement: d.entry(rid).Statement}
	some := []grant{
		{Audience: directory.Mesh, Reg: []string{"agent", "kind"}, Doc: []string{"base"}},
		{Audience: directory.Only(beta), All: true},
	}
	item.Granted = Granted{Grants: some}
	size := d.state.history.ledger.Size
	d.at(10, Command{Regrant: &Regrant{[]RegrantItem{item}}})
	mesh := d.mesh(first.Revision)
	peer, _ := d.state.streams.byAudience[directory.Only(beta)].scan(0, 10, d.state.history.revision)

	if len(mesh) != 1 || mesh[0].Op != signed.OpPut || mesh[0].H != first.H || mesh[0].M == first.M {
		t.Fatalf("other members in mesh: %+v, was %+v", mesh, first)
	}

	if len(peer) != 1 || peer[0].M != first.M || peer[0].Revision != mesh[0].Revision ||
		d.state.history.revision != first.Revision+1 {
		t.Errorf("a stream of its own: %+v", peer)
	}

	if d.state.history.ledger.Size != size+2 {
		t.Errorf("%d leaves, want one for each audience", d.state.history.ledger.Size-size)
	}

	d.at(11, Command{Regrant: &Regrant{[]RegrantItem{item}}})

	if d.state.history.revision != mesh[0].Revision {
		t.Error("the same grants are a change")
	}

	item.Granted.Grants = some[1:]
	d.at(12, Command{Regrant: &Regrant{[]RegrantItem{item}}})

	if ds := d.mesh(mesh[0].Revision); len(ds) != 1 || ds[0].Op != signed.OpDrop {
		t.Errorf("a grant that is gone: %+v", ds)
	}

	item.Granted.Grants = some
	item.Statement--
	d.at(12, Command{Regrant: &Regrant{[]RegrantItem{item}}})

	if len(d.state.registrations.regs.get(rid).grants) != 1 {
		t.Error("an answer about other contents was taken")
	}

	item.Statement++
	d.at(13, Command{Peer: &peerBeta})
	d.at(14, Command{Regrant: &Regrant{[]RegrantItem{item}}})

	if len(d.state.registrations.regs.get(rid).grants) != 1 {
		t.Error("an answer from before the peering changed was taken")
	}

	c := d.registering(ada, "translator", 400)

	c.Granted.Policy = 0
	if r := d.at(15, Command{Register: c}); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("a registration with such an answer: %+v", r)
	}

	u := &Update{Format: 1, RID: rid, Caller: ada, Statement: item.Statement, Document: c.Document, Granted: c.Granted}
	if r := d.at(16, Command{Update: u}); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("an update with such an answer: %+v", r)
	}
}

var peerBeta = Peer{Domain: beta, State: directory.PeeringActive, Addresses: []string{"https://b0.beta.test:8400"},
	Mesh: true}

// Requirement: MESH-020
func TestKeyDocuments(t *testing.T) {
	d := newDrive(t)
	node := func(n string) spiffeid.ID {
		return spiffeid.RequireFromString("spiffe://alpha.test/roster/node/" + n)
	}
	key := func(n string, b byte, att string) Command {
		return Command{Attest: &Attest{node(n), append(make([]byte, 31), b), []string{att}, nil}}
	}
	d.at(1, Command{Peer: &peerBeta})

	if d.state.keys.issued != nil {
		t.Fatal("a key document without a key")
	}

	d.at(2, key("b", 1, "one"))
	d.at(3, key("a", 2, "two"))

	doc := d.state.keys.issued
	if doc.Seq != d.state.history.revision || doc.Expires != genesis/1000+3+86400 || len(doc.Keys) != 2 ||
		doc.Keys[0].Node != node("a") || len(doc.Mesh) != 1 {
		t.Fatalf("issued is %+v", doc)
	}

	size := d.state.history.ledger.Size
	d.at(4, key("a", 2, "two"))

	if d.state.keys.issued != doc || d.state.history.ledger.Size != size {
		t.Error("the same attestation issues another document")
	}

	d.at(5, key("a", 2, "newer"))

	if got := d.state.keys.issued.Keys[0].Attestations; len(got) != 1 || got[0] != "newer" ||
		d.state.history.ledger.Size != size+1 {
		t.Errorf("the attestations are %q", got)
	}

	gone := peerBeta
	gone.Mesh = false
	d.at(6, Command{Peer: &gone})

	if len(d.state.keys.issued.Mesh) != 0 {
		t.Errorf("nothing is exported to a peer that is listed: %+v", d.state.keys.issued)
	}

	d.at(6, Command{Peer: &peerBeta})
	gone = peerBeta
	gone.State = directory.PeeringTerminated
	d.at(6, Command{Peer: &gone})

	if len(d.state.keys.issued.Mesh) != 0 || d.state.keys.issued.Seq != d.state.history.revision {
		t.Errorf("after the peering ended: %+v", d.state.keys.issued)
	}

	seq := d.state.keys.issued.Seq
	d.at(7, Command{Issue: &Issue{seq - 1}})

	if d.state.keys.issued.Seq != seq {
		t.Error("two leaders issued for one reason")
	}

	d.at(8, Command{Issue: &Issue{seq}})

	if d.state.keys.issued.Seq != seq+1 || d.state.keys.issued.Expires != genesis/1000+8+86400 {
		t.Errorf("issued again is %+v", d.state.keys.issued)
	}
}

func TestAnUnknownFormatStopsTheMember(t *testing.T) {
	d := newDrive(t)
	c := d.registering(ada, "translator", 600)

	const unknown = 9
	c.Format = unknown
	d.state.members.written.Formats = map[signed.Structure]uint{signed.StructureStatement: unknown}

	before := d.state.history.ledger.Root()
	if _, err := d.state.Apply(&Batch{1, genesis, []Command{{Register: c}}}); err == nil {
		t.Fatal("an unknown statement format was applied")
	}

	if d.state.history.ledger.Root() != before || d.state.registrations.index.Len() != 0 {
		t.Error("it changed something")
	}
}

func TestNothingBeforeTheHistoryBegins(t *testing.T) {
	d := &drive{t: t, state: New(alpha, index.New())}
	problem(t, d.at(0, Command{Register: d.registering(ada, "translator", 600)}).Err, directory.Unavailable)
	d.at(1, Command{Epoch: &Epoch{5, "bootstrap"}})
	d.at(2, Command{Epoch: &Epoch{6, "bootstrap"}})

	if got := (directory.Position{Epoch: 5, Revision: 1}); d.state.history.Position() != got ||
		d.state.history.ledger.Size != 1 {
		t.Errorf("at %s with %d leaves, want %s with 1", d.state.history.Position(), d.state.history.ledger.Size, got)
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	d := newDrive(t)
	d.register(100, ada, "first", 600)

	rid := d.register(50, ada, "second", 600) // a new leader with a slow clock
	if e := d.entry(rid); e.ExpiresAt != genesis+700_000 {
		t.Errorf("it ends at %d, want 700 s after genesis", e.ExpiresAt-genesis)
	}
}
