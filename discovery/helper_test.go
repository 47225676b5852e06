package discovery_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery"
)

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
)

// An agent is a registration in short: what isn't told is left out of its
// document.
type agent struct {
	name, description string
	tags              []string
	skills            []skill
	examples          []string
	protocols         []string
	languages         []string
	status            string
	region            any
	owner             string // the agent's name where there is none
	origin            spiffeid.TrustDomain
	peersOnly         bool // hidden from readers that see what is for all of the mesh
	age               time.Duration
}

type skill struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
}

// lifetime is that of all registrations here.
const lifetime = 24 * time.Hour

// document returns the agent's registration as it would be posted to /ad/r.
func (a agent) document() []byte {
	doc := map[string]any{"base": "https://" + a.name + ".example"}
	put := func(name string, v any, told bool) {
		if told {
			doc[name] = v
		}
	}
	put("description", a.description, a.description != "")
	put("tags", a.tags, a.tags != nil)
	put("capabilities", a.skills, a.skills != nil)
	put("protocols", a.protocols, a.protocols != nil)
	put("supported_languages", a.languages, a.languages != nil)
	put("status", a.status, a.status != "")
	put("constraints", map[string]any{"region": a.region}, a.region != nil)

	examples := []map[string]any{}
	for _, text := range a.examples {
		examples = append(examples, map[string]any{"text": text})
	}

	put("examples", examples, a.examples != nil)

	b, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}

	return b
}

// A tester is a test, or one run of a property's.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// A world is a view and a finder that follows it.
type world struct {
	t      tester
	view   *index.View
	finder *discovery.Finder
	rids   map[string]directory.RID // by agent
	last   uint64
}

func newWorld(t tester, change func(*discovery.Config), agents ...agent) *world {
	t.Helper()
	w := &world{t: t, view: index.NewView(alpha), rids: map[string]directory.RID{}}

	cfg := discovery.Config{View: w.view}
	if change != nil {
		change(&cfg)
	}

	var err error
	if w.finder, err = discovery.New(cfg); err != nil {
		t.Fatal(err)
	}

	for _, a := range agents {
		w.put(a)
	}

	return w
}

// put registers an agent, or writes it anew where its name is registered.
func (w *world) put(a agent) *directory.Entry {
	w.t.Helper()

	doc, err := directory.ParseDocument(directory.KindAD, a.document())
	if err != nil {
		w.t.Fatal(err)
	}

	p, err := kinds.Project(a.name, doc)
	if err != nil {
		w.t.Fatal(err)
	}

	if a.owner == "" {
		a.owner = a.name
	}

	if a.origin.IsZero() {
		a.origin = alpha
	}

	w.last++

	rid, ok := w.rids[a.name]
	if !ok {
		rid = directory.NewRID(int64(w.last), [10]byte{})
		w.rids[a.name] = rid
	}

	at := time.Now().Add(-a.age).UnixMilli()

	e := &directory.Entry{
		Origin: a.origin, RID: rid, Agent: a.name,
		Owner:    directory.IdentityOf(spiffeid.RequireFromPath(a.origin, "/"+a.owner)),
		Document: doc, Packed: directory.Pack(doc, p), Visibility: directory.Visibility{Mesh: !a.peersOnly},
		Lifetime: uint32(lifetime / time.Second), RegisteredAt: at, UpdatedAt: at,
		ExpiresAt: at + lifetime.Milliseconds(),
		Created:   w.last, Revision: w.last, Statement: w.last,
	}
	if a.origin != alpha {
		e.Received = &directory.Received{At: time.Now().UnixMilli(), From: a.origin}
	}

	w.view.Origin(a.origin).Put(e)

	return e
}

func (w *world) remove(name string) {
	w.view.Own().Delete(w.rids[name])
	delete(w.rids, name)
}

// ask asks a request, given as JSON.
func (w *world) ask(request string) *discovery.Result {
	w.t.Helper()
	return w.askAs(discovery.Reader{}, request)
}

func (w *world) askAs(r discovery.Reader, request string) *discovery.Result {
	w.t.Helper()

	req, err := discovery.ParseRequest([]byte(request))
	if err != nil {
		w.t.Fatal(err)
	}

	res, err := w.finder.Find(context.Background(), discovery.Query{Request: req, Reader: r})
	if err != nil {
		w.t.Fatal(err)
	}

	for i := range res.Candidates {
		w.check(&res.Candidates[i])
	}

	return res
}

// check sees to what is true of every candidate: its components are within 0 and
// 1 and make its score.
func (w *world) check(c *discovery.Candidate) {
	w.t.Helper()

	k := c.Components
	for _, v := range []float64{k.Tag, k.Context, k.Example, k.Protocol, k.Freshness, k.Policy} {
		if v < 0 || v > 1 || math.IsNaN(v) {
			w.t.Errorf("%s has the components %+v", c.Entry.Agent, k)
		}
	}

	d := discovery.DefaultWeights

	again := (d.Tag*k.Tag + d.Context*k.Context + d.Example*k.Example + d.Protocol*k.Protocol) * k.Freshness * k.Policy
	if math.Abs(again-c.Score) > 1e-9 {
		w.t.Errorf("%s has the score %v; its components make %v", c.Entry.Agent, c.Score, again)
	}
}

// expect compares the names of the candidates, the best first.
func expect(t tester, res *discovery.Result, want ...string) {
	t.Helper()

	if got := names(res); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func names(res *discovery.Result) []string {
	ns := []string{}
	for _, c := range res.Candidates {
		ns = append(ns, c.Entry.Agent)
	}

	return ns
}

// public sees what is for all of the mesh.
var public = discovery.Reader{Key: "public", Sees: whole(func(e *directory.Entry) bool { return e.Visibility.Mesh })}

// whole shows what allowed says yes to, whole.
func whole(allowed func(*directory.Entry) bool) func(*directory.Entry) (directory.Redaction, bool) {
	return func(e *directory.Entry) (directory.Redaction, bool) { return directory.Redaction{}, allowed(e) }
}

func ridOf(i int) directory.RID { return directory.NewRID(int64(1000+i), [10]byte{}) }

func ownerOf(i int) directory.Identity {
	return directory.IdentityOf(spiffeid.RequireFromPathf(alpha, "/owner/%d", i))
}
