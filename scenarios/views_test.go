package scenarios

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A shown is a document of one kind and how every surface shows it, as
// api/testdata/views.json has it: at a fixed time and place.
type shown struct {
	Kind     string         `json:"-"`
	RID      string         `json:"rid"`
	Owner    string         `json:"owner"`
	Agent    string         `json:"agent"`
	Document jsontext.Value `json:"document"`
	Resource jsontext.Value `json:"resource"`
	Item     jsontext.Value `json:"item"`
	// AIDIP's and the discovery profile's.
	Metadata jsontext.Value `json:"agent_metadata"`
	Summary  jsontext.Value `json:"agent_summary"`
	Profile  jsontext.Value `json:"profile_metadata"`

	rid string // as it was given one here
}

// odd are unknown members, in a spelling that no encoder would produce again.
var odd = []strictjson.Member{
	{Name: "x-odd",
		Value: []byte(`{ "big":9007199254740993, "f":1.0e+2,"s":"\u00e9\/\ud83d\ude00" , "null":null,"a":[ ] }`)},
	{Name: "", Value: []byte(`-0.0`)},
}

func readShown(t *testing.T) (all []*shown) {
	t.Helper()

	b, err := os.ReadFile("../api/testdata/views.json")
	if err != nil {
		t.Fatal(err)
	}

	// The clock of a story begins in 2000, when no document can be newer than it.
	b = bytes.ReplaceAll(b, []byte("2026-05-08"), []byte("1999-05-08"))

	var byKind map[string]*shown
	if err := json.Unmarshal(b, &byKind); err != nil {
		t.Fatal(err)
	}

	for _, kind := range directory.KindNames() {
		g, ok := byKind[kind]
		if !ok {
			t.Fatalf("there is no golden of kind %s", kind)
		}

		g.Kind = kind
		all = append(all, g)
	}

	return all
}

// register registers the document, with unknown members, at a node of its domain.
func (g *shown) register(t *testing.T, m *mesh.Mesh, n *mesh.Node) {
	t.Helper()

	members, err := directory.ParseObject(g.Document)
	if err != nil {
		t.Fatal(err)
	}

	g.Document = strictjson.AppendObject(nil, append(members, odd...))

	var lt struct {
		LT int `json:"lt"`
	}
	if err := json.Unmarshal(g.Resource, &lt); err != nil {
		t.Fatal(err)
	}

	_, path, _ := strings.Cut(g.Owner, "alpha.test")
	target := fmt.Sprintf("/ad/r?agent=%s&kind=%s&lt=%d", url.QueryEscape(g.Agent), g.Kind, lt.LT)
	got := exchangeOf(t, n.HTTP(path), n.URL(), "POST", target, string(g.Document))
	got.want(t, 201)
	g.rid = strings.TrimPrefix(got.header.Get("Location"), "/ad/r/")
}

// at returns a golden as a node should show it: with the node's own times and addresses
// in place of the golden's, once those are judged.
func (g *shown) at(t *testing.T, golden jsontext.Value, n *mesh.Node, got map[string]any) map[string]any {
	t.Helper()
	text := strings.ReplaceAll(string(golden), g.RID, g.rid)

	var want map[string]any
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}

	// the document itself
	if want["kind"] == nil && (want["lt"] != nil || want["operations"] != nil || want["updated_at"] != nil) {
		for _, o := range odd {
			var v any
			if err := json.Unmarshal(o.Value, &v); err != nil {
				t.Fatal(err)
			}

			want[o.Name] = v
		}
	}

	is := got["provenance"].(map[string]any)
	was := want["provenance"].(map[string]any)

	home := n.Domain.Name == "alpha.test"
	if !home {
		if want["href"] != nil {
			want["href"] = "/ad/r/alpha.test/" + g.rid
		}

		was["origin_signature"] = "/ad/r/alpha.test/" + g.rid + "/record"
		was["received_from"] = "alpha.test"

		if was["registrant"] != nil {
			was["registrant_state"] = "verified"
		}

		was["verification"] = map[string]any{"state": "verified"}
		v := is["verification"].(map[string]any)
		move(t, v, was["verification"].(map[string]any), "checked_at", "key")
		move(t, is, was, "received_at")
	}

	g.judgeLogged(t, home, is["verification"].(map[string]any), was["verification"].(map[string]any))
	move(t, is, was, "revision", "origin_service", "origin_href")

	if !strings.HasSuffix(is["origin_href"].(string), "/ad/r/"+g.rid) ||
		!strings.HasPrefix(is["origin_href"].(string), is["origin_service"].(string)) {
		t.Errorf("%s: its origin is %v, %v", g.Kind, is["origin_service"], is["origin_href"])
	}

	for _, place := range []map[string]any{want, was} {
		from := got
		if place["origin_authority"] != nil {
			from = is
		}

		for _, clock := range []string{"registered_at", "updated_at", "expires_at"} {
			if at, ok := place[clock].(string); ok && strings.HasSuffix(at, ".000Z") { // not one that the document has
				move(t, from, place, clock)

				if _, err := time.Parse("2006-01-02T15:04:05.000Z", place[clock].(string)); err != nil ||
					!home && !strings.HasSuffix(place[clock].(string), ".000Z") {
					t.Errorf("%s: %s is %v at %s", g.Kind, clock, place[clock], n.Name)
				}
			}
		}
	}

	return want
}

// judgeLogged demands that a verification says whether the registration is in the ledger and whether that is
// witnessed: at home it is logged from the start, and a peer says so, and where, once it knows.
func (g *shown) judgeLogged(t *testing.T, home bool, is, want map[string]any) {
	t.Helper()

	logged, said := is["logged"].(bool)
	if !said || home && !logged {
		t.Errorf("%s: logged is %v", g.Kind, is["logged"])
	}

	if logged {
		move(t, is, want, "log")
	}

	move(t, is, want, "logged", "witnessed")

	if is["witnessed"] == true {
		move(t, is, want, "witnesses")
	}
}

// move takes members from an answer that no golden can know.
func move(t *testing.T, from, to map[string]any, names ...string) {
	t.Helper()

	for _, name := range names {
		if from[name] == nil || from[name] == "" {
			t.Errorf("there is no %s in %v", name, from)
		}

		to[name] = from[name]
	}
}

// Each kind of document is shown on each surface as in the goldens, at its origin and at
// a peer's node. The record's bytes are those that were written, unknown members
// included.
//
// Requirement: AD-015, AD-051, AD-054, AD-063, AI-024, AI-029
func TestEveryKindOnEverySurface(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 1, Seed: seed, Link: wan, Configure: func(c *config.Config) {
			c.Gateway.Enabled = true
		}})
		home := m.Domain("alpha.test").Nodes[0]
		peer := m.Domain("beta.test").Nodes[0]

		all := readShown(t)
		for _, g := range all {
			g.register(t, m, home)
		}

		m.Eventually(time.Minute, "the peer has them all", func() error {
			got := exchangeOf(t, peer.HTTP("/client/reader"), peer.URL(), "GET", "/ad/l?origin=alpha.test", "")
			if n := len(hrefs(got.want(t, 200))); n != len(all) {
				return fmt.Errorf("it has %d of %d", n, len(all))
			}

			return nil
		})

		for _, n := range []*mesh.Node{home, peer} {
			ask := askAt(t, m, n, "/client/reader")
			for _, g := range all {
				path := "/ad/r/" + g.rid
				got := ask("GET", path).want(t, 200)
				sameJSON(t, g.Kind+" in full at "+n.Name, got, g.at(t, g.Resource, n, got))

				listed := ask("GET", "/ad/l?agent="+url.QueryEscape(g.Agent)).want(t, 200)["agents"].([]any)
				if len(listed) != 1 {
					t.Fatalf("%s: %d of it are listed at %s", g.Kind, len(listed), n.Name)
				}

				item := listed[0].(map[string]any)
				sameJSON(t, g.Kind+" listed at "+n.Name, item, g.at(t, g.Item, n, item))
				got = ask("GET", "/discovery/agents/"+g.rid).want(t, 200)
				sameJSON(t, g.Kind+" as a profile at "+n.Name, got, g.at(t, g.Profile, n, got))
				g.recordHolds(t, ask("GET", path+"/record"))
				g.isAgent(t, n, ask)
			}
		}
	})
}

// isAgent demands that AIDIP's surface shows the goldens, in full and in a list.
func (g *shown) isAgent(t *testing.T, n *mesh.Node, ask asker) {
	t.Helper()

	if g.Metadata == nil {
		return
	}

	got := ask("GET", "/agents/"+g.rid).want(t, 200)

	want := g.at(t, g.Metadata, n, got)
	if g.Kind == "a2a" {
		delete(want, "gateway") // this card names a transport that A2A does not have
	}

	sameJSON(t, g.Kind+" as AIDIP's metadata at "+n.Name, got, want)

	var all []map[string]any
	if err := json.Unmarshal(ask("GET", "/agents").body, &all); err != nil {
		t.Fatal(err)
	}

	i := slices.IndexFunc(all, func(x map[string]any) bool { return x["id"] == got["id"] })
	if i < 0 {
		t.Fatalf("%s is not among the agents at %s", g.Kind, n.Name)
	}

	sameJSON(t, g.Kind+" as AIDIP's summary at "+n.Name, all[i], g.at(t, g.Summary, n, all[i]))
}

// recordHolds demands that a signed record opens to the document's own bytes.
func (g *shown) recordHolds(t *testing.T, got *answer) {
	t.Helper()

	if got.status != 200 {
		t.Fatalf("%s: its record: %d %s", g.Kind, got.status, got.body)
	}

	r, err := signed.ParseRecord(string(got.body))
	if err != nil {
		t.Fatal(err)
	}

	payload, err := directory.B64.DecodeString(strings.Split(r.JWS, ".")[1])
	if err != nil {
		t.Fatal(err)
	}

	c, err := signed.OpenRecord(payload, r.Disclosures)
	if err != nil {
		t.Fatal(err)
	}

	want, err := directory.ParseDocument(directory.Kind(g.Kind), g.Document)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(c.Document.Bytes(), want.Bytes()) || string(c.Document.Kind()) != g.Kind ||
		!bytes.Contains(want.Bytes(), odd[0].Value) {
		t.Errorf("%s: the record has\n%s\nwritten was\n%s", g.Kind, c.Document.Bytes(), want.Bytes())
	}
}

func sameJSON(t *testing.T, what string, got, want map[string]any) {
	t.Helper()

	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got, jsontext.Multiline(true), json.Deterministic(true))
		w, _ := json.Marshal(want, jsontext.Multiline(true), json.Deterministic(true))
		t.Errorf("%s is\n%s\nwant\n%s", what, g, w)
	}
}
