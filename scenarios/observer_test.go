package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// An observer asks a directory about names, some of which are hidden from it and some
// unregistered, in every way: by name and rid, by filters and words, by changes that it
// may not make, in watches and by the tools of MCP. Both kinds have the same answers,
// byte for byte, and hidden registrations change no answer about visible ones: no count,
// link, entity tag or score. The one exception is the 409 of a taken name, which is not
// asked for.
//
// Requirement: TRUST-014, AD-035
func TestHiddenIsAbsent(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		o := newObserver(t, seed)
		before := o.all()
		o.register("/agent/eve", o.hidden)
		o.m.Sleep(2 * time.Second) // time for delayed work of an index

		for what, after := range o.all() {
			if before[what] != after {
				t.Errorf("%s: before there was something hidden, and after:\n%s", what, differ(before[what], after))
			}
		}

		o.same()
		o.meaningful()
		t.Logf("%d questions", o.asked)
	})
}

// A subject is a name that the observer may know, with the document to register under
// it.
type subject struct {
	name, capability, word string
	rid                    directory.RID
}

type observer struct {
	*testing.T
	m                       *mesh.Mesh
	node                    *mesh.Node
	rng                     *rand.Rand
	shown, hidden, nobodies []*subject
	asked                   int
}

// newObserver makes names that are shown, hidden or unregistered, at random, and
// registers those that are shown.
func newObserver(t *testing.T, seed uint64) *observer {
	m := mesh.Start(t, mesh.Options{Seed: seed})
	o := &observer{T: t, m: m, node: m.Domain("alpha.test").Nodes[0], rng: rand.New(rand.NewPCG(seed, 14))}

	kinds := []*[]*subject{&o.shown, &o.hidden, &o.nobodies}
	for i := range directorytest.Sample(90, 18) {
		s := &subject{name: o.word("n"), capability: o.word("c"), word: o.word("w")}
		s.rid = directory.NewRID(time.Now().UnixMilli(), [10]byte{byte(o.rng.Uint32()), byte(i)})

		kind := kinds[o.rng.IntN(3)]
		if i < 3 {
			kind = kinds[i] // one of each at least
		}

		*kind = append(*kind, s)
	}

	o.govern()
	o.register("/agent/ada", o.shown)
	m.Sleep(2 * time.Second)

	return o
}

func (o *observer) word(first string) string { return fmt.Sprintf("%s%08x", first, o.rng.Uint32()) }

// govern hides eve's registrations.
func (o *observer) govern() {
	o.Helper()

	development, err := os.ReadFile("../trust/policy/development.cedar")
	if err != nil {
		o.Fatal(err)
	}

	text := string(development) + `
@id("eves-are-hidden")
forbid (principal, action in [Action::"read", Action::"invoke", Action::"export"], resource)
when { resource.owner == "spiffe://alpha.test/agent/eve" };
`

	body, err := json.Marshal(map[string]string{"policy": text})
	if err != nil {
		o.Fatal(err)
	}

	if status, _, answer := o.ask("/ops/operator", "PUT", "/v1/operator/policy", string(body)); status >= 300 {
		o.Fatalf("the policy: %d %s", status, answer)
	}
}

// register registers subjects as metadata that share words with each other and have
// one of their own.
func (o *observer) register(as string, list []*subject) {
	o.Helper()

	for _, s := range list {
		doc := fmt.Sprintf(`{"id":%q,"name":"Summarizer %s","description":"Summarizes reports and letters; %s.",`+
			`"tags":["common",%q],"status":"active","examples":[{"id":"e","text":"summarize a letter %s"}],`+
			`"bindings":[{"protocol":"https","endpoint":"https://%s.example"}]}`,
			s.name, s.word, s.word, s.capability, s.word, s.name)

		status, header, answer := o.ask(as, "POST", "/discovery/agents?lt=86400", doc)
		if status != http.StatusCreated {
			o.Fatalf("registering %s: %d %s", s.name, status, answer)
		}

		rid, err := directory.ParseRID(header.Get("Location")[strings.LastIndexByte(header.Get("Location"), '/')+1:])
		if err != nil {
			o.Fatal(err)
		}

		s.rid = rid
	}
}

// questions are about one subject: %n is its name, %r its rid, %c its capability, %w
// its word.
var questions = []struct{ method, path, body string }{
	{"GET", "/ad/r/%n", ""}, {"GET", "/ad/r/%r", ""}, {"GET", "/ad/r/alpha.test/%r", ""}, {"HEAD", "/ad/r/%n", ""},
	{"GET", "/ad/r/%n?consistency=stale", ""}, {"GET", "/ad/r/%r?consistency=linearizable", ""},
	{"GET", "/ad/r/%r/record", ""}, {"GET", "/ad/r/%r/proof", ""}, {"GET", "/ad/r/alpha.test/%r/record", ""},
	{"GET", "/ad/r/%n/proof", ""},
	{"GET", "/ad/l?agent=%n", ""}, {"GET", "/ad/l?agent=%n*", ""}, {"GET", "/ad/l?cap_name=%c", ""},
	{"GET", "/ad/l?tag=%c&count=1&page=0", ""},
	{"GET", "/ad/l?tag=%c&tag=common", ""}, {"GET", "/ad/l?agent=%n&origin=alpha.test", ""},
	{"GET", "/agents/%n", ""}, {"GET", "/agents/%r", ""}, {"GET", "/agents?tags=%c", ""},
	{"GET", "/agents?tags=%c&count=1", ""}, {"GET", "/agents?capabilities=%c", ""},
	{"GET", "/discovery/agents/%n", ""}, {"GET", "/discovery/agents/%r", ""},
	{"POST", "/discovery/query", `{"query":"%w","limit":5}`},
	{"POST", "/discovery/query", `{"query":"summarize a letter %w","limit":5,"include_evidence":true}`},
	{"POST", "/discovery/query", `{"query":"summarize","required_tags":["%c"]}`},
	{"POST", "/discovery/query", `{"query":"summarize","excluded_tags":["%c"],"limit":3}`},
	{"POST", "/agents/search", `{"query":"summarize %w","top":3}`},
	{"POST", "/agents/search", `{"filters":{"tags":["%c"]},"top":3}`},
	{"POST", "/agents/resolve", `{"intent":"summarize %w"}`},
	{"POST", "/discovery/query", `{"query":"summarize a letter","explain":"%n"}`},
	{"POST", "/discovery/query", `{"query":"summarize a letter","explain":"%r"}`},
	{"DELETE", "/ad/r/%r", ""}, {"DELETE", "/ad/r/%n", ""}, {"POST", "/ad/r/%r?lt=600", ""},
	{"POST", "/ad/r/alpha.test/%r?lt=600", ""}, {"DELETE", "/discovery/agents/%n", ""},
	{"POST", "/ad/refresh", `[{"id":"%r","lt":600}]`}, {"POST", "/ad/refresh", `[{"id":"%n"},{"id":"%r"}]`},
	{"POST", "/agents/%n/invoke", `{}`}, {"DELETE", "/agents/%r", ""},
	{"POST", "/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_agent","arguments":{"id":"%n"}}}`},
	{"POST", "/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"lookup_agents","arguments":{"agent":"%n"}}}`},
	{"POST", "/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call",` +
			`"params":{"name":"discover_agents","arguments":{"query":"%w"}}}`},
	{"GET", "/ad/watch?agent=%n", ""},
}

// rest lists questions about all names at once; hidden registrations must not change the
// answers.
var rest = []struct{ method, path, body string }{
	{"GET", "/ad/l", ""}, {"GET", "/ad/l?count=3&page=0", ""}, {"GET", "/ad/l?count=3&page=1", ""},
	{"GET", "/ad/l?tag=common&count=2", ""}, {"GET", "/ad/l?agent=n*&count=100", ""},
	{"GET", "/agents", ""}, {"GET", "/agents?count=2", ""}, {"GET", "/agents?tags=common&count=100", ""},
	{"POST", "/discovery/query", `{"query":"summarize reports","limit":100,"include_evidence":true}`},
	{"POST", "/discovery/query", `{"query":"letters","required_tags":["common"],"limit":2}`},
	{"POST", "/agents/search", `{"query":"summarize letters and reports","top":50}`},
	{"POST", "/agents/resolve", `{"intent":"summarize reports"}`},
	{"GET", "/.well-known/woa.json", ""}, {"GET", "/.well-known/agent-discovery", ""},
	{"GET", "/ad/watch", ""},
}

// observers are the callers: an identity that policy permits to see the rest, and an
// anonymous one.
var observers = []string{"/client/reader", ""}

// same asks every question about every name that the observer doesn't see.
func (o *observer) same() {
	o.Helper()

	for _, as := range observers {
		for i, q := range questions {
			first, of := o.about(o.nobodies[0], as, i), o.nobodies[0].name
			for _, s := range append(o.nobodies[1:len(o.nobodies):len(o.nobodies)], o.hidden...) {
				if got := o.about(s, as, i); got != first {
					o.Errorf("%s %s %s as %q distinguishes %s from %s:\n%s", q.method, q.path, q.body, as, s.name, of,
						differ(got, first))

					break
				}
			}
		}
	}
}

// about returns the answer to a question about a subject, without the parts that name
// it.
func (o *observer) about(s *subject, as string, i int) string {
	q := questions[i]
	fill := strings.NewReplacer("%n", s.name, "%r", s.rid.String(), "%c", s.capability, "%w", s.word)
	blank := strings.NewReplacer(s.name, "%n", s.rid.String(), "%r", s.capability, "%c", s.word, "%w")

	return blank.Replace(o.answer(as, q.method, fill.Replace(q.path), fill.Replace(q.body)))
}

// meaningful fails if the questions don't distinguish even shown names from unregistered
// ones: then equal answers for hidden ones would show little.
func (o *observer) meaningful() {
	o.Helper()

	telling := 0
	for i := range questions {
		if o.about(o.shown[0], observers[0], i) != o.about(o.nobodies[0], observers[0], i) {
			telling++
		}
	}

	if telling < len(questions)*3/4 {
		o.Errorf("only %d of %d questions distinguish shown names", telling, len(questions))
	}
}

// all asks about all names at once, and for the ranking of the rest beside words of
// hidden registrations.
func (o *observer) all() map[string]string {
	answers := map[string]string{}
	for _, as := range observers {
		for _, q := range rest {
			answers[as+" "+q.method+" "+q.path+" "+q.body] = o.answer(as, q.method, q.path, q.body)
		}

		for _, s := range o.hidden {
			body := fmt.Sprintf(`{"query":"summarize %s %s letters","limit":50,"include_evidence":true}`, s.word,
				o.shown[0].word)
			answers[as+" beside "+s.word] = o.answer(as, "POST", "/discovery/query", body)
		}
	}

	return answers
}

// whens are the header fields that depend on time only: the revision counts each change
// of the domain, by any identity, and names none.
var whens = []string{"Date", "Roster-Index", "X-Roster-Policy"}

// answer is all that the observer gets: status, header and body.
func (o *observer) answer(as, method, path, body string) string {
	status, header, answer := o.ask(as, method, path, body)
	for _, name := range whens {
		header.Del(name)
	}

	var b bytes.Buffer
	fmt.Fprintln(&b, status)
	_ = header.Write(&b) // sorted

	return b.String() + string(moments.ReplaceAll(answer, []byte("-")))
}

// moments are the parts of a body that depend on when it was made: the id of a problem,
// times, and the ids of a watch's events, which contain the revision as Roster-Index
// does.
var moments = regexp.MustCompile(`urn:uuid:[0-9a-f-]{36}|"generated_at":"[^"]*"|"age_seconds":[0-9.]+|(?m)^id: .*$`)

// differ returns the first line in which two answers differ.
func differ(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("%.600s\n%.600s", as[i], bs[i])
		}
	}

	return fmt.Sprintf("%d lines and %d", len(as), len(bs))
}

func (o *observer) ask(as, method, path, body string) (int, http.Header, []byte) {
	o.Helper()
	o.asked++
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, method, o.node.URL()+path, strings.NewReader(body))
	if err != nil {
		o.Fatal(err)
	}

	req.Header.Set("X-Request-Id", "observer")

	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}

	if path == "/mcp" {
		req.Header.Set("Accept", "application/json, text/event-stream")
	}

	resp, err := o.node.HTTP(as).Do(req)
	if err != nil {
		o.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()

	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") && strings.HasPrefix(path, "/ad/watch") {
		time.AfterFunc(time.Second, cancel) // the beginning only; a watch has no end
	}

	answer, err := io.ReadAll(resp.Body)
	if err != nil && ctx.Err() == nil {
		o.Fatalf("%s %s: %v", method, path, err)
	}

	return resp.StatusCode, resp.Header, answer
}
