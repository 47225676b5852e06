package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/limit"
)

// A stage is a gateway, and the authority that its agents' certificates are of.
type stage struct {
	*gateway.Gateway
	authority *ca
}

func newStage(t testing.TB, change func(*gateway.Config)) *stage {
	t.Helper()
	authority := newCA(t, "alpha.test")

	cfg := gateway.Config{Domain: alpha.TrustDomain(),
		Guard: newGuard(t, gateway.GuardConfig{Allow: loopback,
			Judge: bundles(t, map[string]*ca{"alpha.test": authority})})}
	if change != nil {
		change(&cfg)
	}

	g := gateway.New(cfg)
	t.Cleanup(func() {
		bound, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()

		if err := g.Close(bound); err != nil {
			t.Errorf("the gateway doesn't end: %v", err)
		}
	})

	return &stage{g, authority}
}

// agent starts an agent's server.
func (s *stage) agent(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	return serve(t, s.authority.leaf(t, "127.0.0.1", alpha), h)
}

// entry is a registration of that document.
func entry(t testing.TB, kind directory.Kind, name, document string) *directory.Entry {
	t.Helper()

	doc, err := directory.ParseDocument(kind, []byte(document))
	must(t, err)

	p, err := kinds.Project(name, doc)
	must(t, err)

	return &directory.Entry{
		Origin: spiffeid.RequireTrustDomainFromString("alpha.test"), RID: directory.NewRID(1, [10]byte{}), Agent: name,
		Owner: directory.IdentityOf(alpha), Document: doc, Packed: directory.Pack(doc, p), Statement: 1,
	}
}

const translate = `{"name": "translate", "description": "Translates.", "inputs": {"type": "object",` +
	` "required": ["text"], "properties": {"text": {"type": "string"}}}, "outputs": {"type": "object",` +
	` "required": ["text"]}}`

func aidip(t testing.TB, endpoint, rest string) *directory.Entry {
	t.Helper()

	return entry(t, directory.KindAIDIP, "translator",
		fmt.Sprintf(`{"name": "T", "description": "D", "endpoint": %q, %s}`, endpoint, rest))
}

// Invoke counts a caller of no party as one of the own domain.
func (s *stage) Invoke(ctx context.Context, e *directory.Entry, in invoke.Request) (*invoke.Reply, error) {
	if in.Party == (limit.Caller{}) {
		in.Party = limit.Caller{Kind: limit.Own, ID: in.Caller.String()}
	}

	return s.Gateway.Invoke(ctx, e, in)
}

func invokeAgent(s *stage, e *directory.Entry, operation, body string) (string, error) {
	r, err := s.Invoke(context.Background(), e, invoke.Request{Operation: operation, Body: []byte(body),
		Caller: directory.IdentityOf(beta)})
	if err != nil {
		return "", err
	}

	return string(r.Body), nil
}

// echo answers with what it got, as text.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"text": %s}`, strictjson.AppendString(nil, string(body)))
}

// Which operation is meant, what its input is, and what the agent gets.
//
// Requirement: AI-007, AI-008, AI-032, AI-033, WOA-007, WOA-008, WOA-025, WOA-028, WOA-029
func TestChoosing(t *testing.T) {
	s := newStage(t, nil)
	agent := s.agent(t, echo)
	detect := strings.Replace(strings.Replace(translate, "translate", "detect", 1), `"text": {"type"`,
		`"operation": {"type": "string"}, "text": {"type"`, 1)
	one := aidip(t, agent.URL, `"operations": [`+translate+`]`)
	two := aidip(t, agent.URL, `"operations": [`+translate+`, `+detect+`]`)
	own := aidip(t, agent.URL,
		`"inputs": {"type": "object", "properties": {"input": {"type": "object"}}}, "outputs": {}`)

	woa := entry(t, directory.KindWoA, "tr@host",
		fmt.Sprintf(`{"woa_version": "1", "agents": [`+
			`{"id": "tr", "name": "T", "description": "D", "transports": ["rest"],
		"inputs": {"type": "object", "required": ["text"]}, "outputs": {"type": "object"},
		"operations": [{"name": "default", "description": "D"}, {"name": "detect", "description": "D"}]}],
		"transports": {"rest": {"base": %q, "invoke_path": "/x/{agent_id}?as={agent_id}"}}}`, agent.URL))
	for _, tc := range []struct {
		name            string
		e               *directory.Entry
		operation, body string
		want            string            // what the agent got
		problem         directory.Problem // or why it got nothing
		pointer         string
	}{
		{"plain, one operation", one, "", `{"text":"a"}`, `{"text":"a"}`, "", ""},
		{"plain, by path", one, "translate", `{"text":"a"}`, `{"text":"a"}`, "", ""},
		{"unknown in path", one, "sum", `{"text":"a"}`, "", directory.NotFound, ""},
		{"operation named in the body", one, "", `{"text":"a","operation":"translate"}`, `{"text":"a"}`, "", ""},
		{"unknown in the body", one, "", `{"text":"a","operation":"sum"}`, "", directory.NotFound, ""},
		{"against the schema", one, "", `{"text":5}`, "", directory.BadInput, "/text"},
		{"not JSON", one, "", `{"text":`, "", directory.BadRequest, "/text"},
		{"nothing", one, "", ``, "", directory.BadRequest, ""},
		{"envelope", one, "", `{"input":{"text":"a"}}`, `{"text":"a"}`, "", ""},
		{"envelope with all", one, "", `{"agent":"translator","operation":"translate","input":{"text":"a"}}`,
			`{"text":"a"}`, "", ""},
		{"envelope with more", one, "", `{"agent":"translator","trace":1,"input":{"text":"a"}}`, `{"text":"a"}`, "",
			""},
		{"envelope, default of the only one", one, "", `{"operation":"default","input":{"text":"a"}}`, `{"text":"a"}`,
			"", ""},
		{"envelope against the schema", one, "", `{"input":{"text":5}}`, "", directory.BadInput, "/input/text"},
		{"envelope for another agent", one, "", `{"agent":"else","input":{"text":"a"}}`, "", directory.BadRequest,
			"/agent"},
		{"envelope, unknown operation", one, "", `{"operation":"sum","input":{"text":"a"}}`, "", directory.BadRequest,
			""},
		{"an envelope is none behind an operation", one, "translate", `{"input":{"text":"a"}}`, "", directory.BadInput,
			"/text"},
		{"two, none named", two, "", `{"text":"a"}`, "", directory.BadRequest, "/operation"},
		{"two, one named", two, "", `{"text":"a","operation":"translate"}`, `{"text":"a","operation":"translate"}`, "",
			""},
		{"two, whose schema has it, in its order", two, "", `{"operation":"detect","text":"a"}`,
			`{"operation":"detect","text":"a"}`, "", ""},
		{"two, by path", two, "translate", `{"text":"a"}`, `{"text":"a","operation":"translate"}`, "", ""},
		{"two, whose schema has it", two, "", `{"text":"a","operation":"detect"}`, `{"text":"a","operation":"detect"}`,
			"", ""},
		{"a schema with an input of its own", own, "", `{"input":{"a":1}}`, `{"input":{"a":1}}`, "", ""},
		{"no operation has a name", own, "x", `{}`, "", directory.NotFound, ""},
		{"woa, implied", woa, "", `{"input":{"text":"a"}}`,
			`{"agent":"tr","operation":"default","input":{"text":"a"}}`, "", ""},
		{"woa, plain", woa, "", `{"text":"a"}`, `{"agent":"tr","operation":"default","input":{"text":"a"}}`, "", ""},
		{"woa, its own id", woa, "", `{"agent":"tr","operation":"detect","input":{"text":"a"}}`,
			`{"agent":"tr","operation":"detect","input":{"text":"a"}}`, "", ""},
		{"an envelope without an input", own, "", `{"agent":"translator","input":{"a":1}}`,
			`{"agent":"translator","input":{"a":1}}`, "", ""},
		{"woa, no input", woa, "", `{"agent":"tr","operation":"detect"}`, "", directory.BadRequest, "/input"},
		{"woa, an input that is no object", woa, "", `{"agent":"tr","input":"a"}`, "", directory.BadRequest, "/input"},
		{"woa, another's", woa, "", `{"agent":"other","input":{"text":"a"}}`, "", directory.BadRequest, "/agent"},
	} {
		got, err := invokeAgent(s, tc.e, tc.operation, tc.body)

		want := ""
		if tc.want != "" {
			want = `{"text": ` + string(strictjson.AppendString(nil, tc.want)) + `}`
		}

		var told *directory.Error
		if got != want || tc.problem != "" && (!errors.As(err, &told) || told.Problem != tc.problem ||
			told.Pointer != tc.pointer) {
			t.Errorf("%s: %s, %v (%s)", tc.name, got, err, directory.ProblemOf(err))
		}
	}
}

// What an agent answers, and what the caller is told.
//
// Requirement: AI-009, AI-034, AI-035, AI-036, WOA-009
func TestAnswers(t *testing.T) {
	s := newStage(t, func(c *gateway.Config) {
		c.MaxBody = 3000
		c.PassHeaders = map[string][]string{"keyed": {"x-api-key"}}
	})
	for _, tc := range []struct {
		status      int
		media, body string
		problem     directory.Problem
		words       string
	}{
		{200, "application/json", `{"text":"a"}`, "", ""},
		{202, "application/json; charset=utf-8", `{"text":"a"}`, "", ""},
		{200, "application/json", `{"error":{"code":"X"},"text":"a"}`, directory.AgentFailed, ""},
		{200, "application/json", `{"error":"none","text":"a"}`, "", ""},
		{200, "application/hal+json", `{"text":"a"}`, "", ""},
		{200, "text/html", `{"text":"a"}`, directory.AgentFailed, "not JSON"},
		{200, "application/json", `{"other":1}`, directory.AgentFailed, "output schema"},
		{200, "application/json", `{"text":`, directory.AgentFailed, "not JSON"},
		{200, "text/html", `<p>`, directory.AgentFailed, "not JSON"},
		{200, "application/json", `{"text":"` + strings.Repeat("a", 4000) + `"}`, directory.AgentFailed, "larger"},
		{302, "application/json", `{}`, directory.AgentFailed, "302"},
		{400, "application/json", `{"error":{"message":"the words\n` + strings.Repeat("é", 1000) + `"}}`,
			directory.AgentBadRequest, "the words "},
		{401, "application/json", `{"detail":"secret"}`, directory.AgentFailed, "401"},
		{403, "application/json", `{"detail":"secret"}`, directory.AgentFailed, "403"},
		{404, "application/problem+json", `{"detail":"no such text"}`, directory.AgentNotFound, "no such text"},
		{409, "application/json", `{}`, directory.AgentConflict, ""},
		{413, "application/json", `{}`, directory.AgentTooLarge, ""},
		{422, "application/json", `{}`, directory.AgentUnprocessable, ""},
		{429, "application/json", `{}`, directory.AgentRateLimited, ""},
		{500, "application/json", `{"detail":"stack trace"}`, directory.AgentFailed, "500"},
		{503, "application/json", `{"detail":"internals"}`, directory.AgentUnavailable, ""},
	} {
		agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", tc.media)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(tc.status)
			io.WriteString(w, strings.ReplaceAll(tc.body, "\n", `\n`))
		})

		_, err := invokeAgent(s, aidip(t, agent.URL, `"operations": [`+translate+`]`), "", `{"text":"a"}`)
		if tc.problem == "" && err == nil {
			continue
		}

		var told *directory.Error
		if !errors.As(err, &told) || told.Problem != tc.problem || !strings.Contains(told.Detail, tc.words) ||
			len(told.Detail) > 600 ||
			strings.Contains(told.Detail, "secret") || strings.Contains(told.Detail, "trace") ||
			strings.Contains(told.Detail, "internals") {
			t.Errorf("%d %s: %v (%s)", tc.status, tc.body[:min(40, len(tc.body))], err, directory.ProblemOf(err))
		} else if tc.status == 503 && told.RetryAfter != 7 {
			t.Errorf("503 with Retry-After 7: told to wait for %d s", told.RetryAfter)
		}
	}

	// An answer that could have been a stream, and isn't, is bounded as any other; so is that of a batch.
	size := 4000
	large := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"text": %q}`, strings.Repeat("a", size))
	})

	for _, in := range []invoke.Request{{Body: []byte(`{"text":"a"}`), Stream: true},
		{Body: []byte(`[{"text":"a"}, {"text":"b"}]`)}} {
		if _, err := s.Invoke(t.Context(), aidip(t, large.URL, `"operations": [`+translate+`]`), in); err == nil ||
			directory.ProblemOf(err) != directory.AgentFailed {
			t.Errorf("%s, answered with over 3000 bytes: %v", in.Body, err)
		}

		size = 2000
	}

	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") == "mine" && r.Header.Get("Authorization") == "" {
			http.Error(w, `{"detail":"expired"}`, http.StatusUnauthorized)
		}
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)
	e.Agent = "keyed"

	_, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(`{"text":"a"}`),
		Header: http.Header{"X-Api-Key": {"mine"}, "Authorization": {"Bearer x"}}})
	if directory.ProblemOf(err) != directory.AgentUnauthorized {
		t.Errorf("the caller's own credentials are refused: %v", err)
	}
}

// What keeps an invocation from its agent.
//
// Requirement: XU-043, XU-065, AI-007
func TestNotInvocable(t *testing.T) {
	s := newStage(t, nil)
	operations := `"operations": [` + translate + `]`
	gone := s.agent(t, echo)
	gone.Close()

	for name, tc := range map[string]struct {
		e    *directory.Entry
		want directory.Problem
	}{
		"suspended": {aidip(t, "https://127.0.0.1:8443/", operations+`, "status": "suspended"`),
			directory.AgentUnavailable},
		"grpc": {aidip(t, "https://127.0.0.1:9/", operations+`, "protocols": ["grpc"]`),
			directory.NotInvocable},
		"plain http":   {aidip(t, "http://example.com/", operations), directory.EndpointRefused},
		"metadata":     {aidip(t, "https://169.254.169.254/", operations), directory.EndpointRefused},
		"private":      {aidip(t, "https://10.0.0.1/", operations), directory.EndpointRefused},
		"a port":       {aidip(t, "https://127.0.0.1:25/", operations), directory.EndpointRefused},
		"nobody there": {aidip(t, gone.URL, operations), directory.AgentFailed},
	} {
		_, err := invokeAgent(s, tc.e, "", `{"text":"a"}`)
		if directory.ProblemOf(err) != tc.want || strings.Contains(err.Error(), "169.254") {
			t.Errorf("%s: %v (%s)", name, err, directory.ProblemOf(err))
		}

		if name == "plain http" && !strings.Contains(err.Error(), `rule "scheme"`) {
			t.Errorf("%s: %v names no rule", name, err)
		}

		if fronted := s.Invocable(tc.e); fronted != (tc.want == directory.AgentFailed) {
			t.Errorf("%s: fronted is %v", name, fronted)
		}
	}
}

// Without a domain's memory, neither a key nor a proof is accepted: what it guards could happen twice. An answer
// takes the memory of its caller's share, or fails.
//
// Requirement: AI-012, SEC-004
func TestWhatAGatewayCannotKeep(t *testing.T) {
	s := newStage(t, nil)
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		if r.URL.Path == "/pieces" {
			_ = http.NewResponseController(w).Flush() // so that no length is declared
		}

		io.WriteString(w, `{"text":"a"}`)
	})

	at := func(path string) *directory.Entry { return aidip(t, agent.URL+path, `"operations": [`+translate+`]`) }
	body := []byte(`{"text":"a"}`)

	for name, in := range map[string]invoke.Request{
		"a key": {Body: body, Key: "k"}, "a proof": {Body: body, Proof: directory.Hash{1}},
	} {
		if _, err := s.Invoke(t.Context(), at("/"), in); directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}

	tools := newToolServer(t, s, false, "say").entry(t, 1)

	for name, e := range map[string]*directory.Entry{"whole": at("/"), "in pieces": at("/pieces"), "of a tool": tools} {
		held := int64(0)
		in := invoke.Request{Body: body, Hold: func(bytes int64) error {
			if held += bytes; held > 0 {
				return directory.Refuse(directory.RateLimited, "no memory")
			}

			return nil
		}}

		if _, err := s.Invoke(t.Context(), e, in); directory.ProblemOf(err) != directory.RateLimited {
			t.Errorf("%s, with a share that is used up: %v", name, err)
		}
	}
}

// Requirement: AI-011
func TestBatch(t *testing.T) {
	s := newStage(t, nil)

	var most, now atomic.Int32
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		for n := now.Add(1); ; {
			if had := most.Load(); n <= had || most.CompareAndSwap(had, n) {
				break
			}
		}

		defer now.Add(-1)
		echo(w, r)
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)
	got, err := invokeAgent(s, e, "", "\n"+`[{"text":"a"}, {"text":5}, {"text":"c"}, []]`)

	want := `[{"text": "{\"text\":\"a\"}"},{"error":{"code":"InvalidInput",`
	if err != nil || !strings.HasPrefix(got, want) || !strings.Contains(got, `(at /1/text)`) ||
		!strings.Contains(got, `,{"text": "{\"text\":\"c\"}"},`) {
		t.Errorf("%s, %v", got, err)
	}

	if _, err := invokeAgent(s, e, "translate", `[`+strings.Repeat(`{"text":"a"},`, 99)+`{"text":"a"}]`); err != nil ||
		most.Load() > 8 {
		t.Errorf("100 items: %v; %d at once", err, most.Load())
	}

	for _, body := range []string{`[]`, `[` + strings.Repeat(`{"text":"a"},`, 100) + `{"text":"a"}]`} {
		if _, err := invokeAgent(s, e, "", body); directory.ProblemOf(err) != directory.BadRequest {
			t.Errorf("%.20s: %v", body, err)
		}
	}
}

// An agent that says so gets the batch as it is, each item of which its schema is for.
//
// Requirement: AI-011
func TestABatchIsPassedOn(t *testing.T) {
	s := newStage(t, nil)
	asked := ""
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, r.URL.Query().Get("answer"))
	})
	takes := translate[:len(translate)-1] + `, "batch": true}`

	other := strings.Replace(takes, "translate", "other", 1)
	for _, tc := range []struct {
		name, operations, operation, body, answer string
		asked                                     string
		problem                                   directory.Problem
		pointer                                   string
	}{
		{"passed on", takes, "", `[{"text":"a"},{"text":"b"}]`, `[{"text":"A"},{"text":"B"}]`,
			`[{"text":"a"},{"text":"b"}]`, "", ""},
		{"with an item's error", takes, "translate", `[{"text":"a"},{"text":"b"}]`,
			`[{"error":{"code":"X","message":"no"}},{"text":"B"}]`, `[{"text":"a"},{"text":"b"}]`, "", ""},
		{"of several operations", takes + "," + other, "other", `[{"text":"a"}]`, `[{"text":"A"}]`,
			`[{"text":"a","operation":"other"}]`, "", ""},
		{"an item breaks the schema", takes, "", `[{"text":"a"},{"text":5}]`, ``, ``, directory.BadInput, "/1/text"},
		{"no items", takes, "", `[]`, ``, ``, directory.BadRequest, ""},
		{"too many", takes, "", `[` + strings.Repeat(`{"text":"a"},`, 100) + `{"text":"a"}]`, ``, ``,
			directory.BadRequest, ""},
		{"an output breaks the schema", takes, "", `[{"text":"a"}]`, `[{"words":"A"}]`, `[{"text":"a"}]`,
			directory.AgentFailed, ""},
		{"too few outputs", takes, "", `[{"text":"a"},{"text":"b"}]`, `[{"text":"A"}]`, `[{"text":"a"},{"text":"b"}]`,
			directory.AgentFailed, ""},
	} {
		asked = ""
		e := aidip(t, agent.URL+"/?answer="+url.QueryEscape(tc.answer), `"operations": [`+tc.operations+`]`)
		got, err := invokeAgent(s, e, tc.operation, tc.body)

		var told *directory.Error
		if asked != tc.asked || tc.problem == "" && got != tc.answer ||
			tc.problem != "" && (!errors.As(err, &told) || told.Problem != tc.problem || told.Pointer != tc.pointer) {
			t.Errorf("%s: asked %s; %s, %v", tc.name, asked, got, err)
		}
	}
}

// panicking is a source of tokens with a fault.
type panicking struct{}

func (panicking) JWTSVID(_ context.Context, audience string) (string, time.Time, error) {
	panic("no token for " + audience)
}

// What goes wrong here in one item of a batch is that item's failure, and no more; and
// a batch ends with its time, with what there is of it.
//
// Requirement: AI-011, AI-040
func TestBatchesEndWell(t *testing.T) {
	var log bytes.Buffer
	s := newStage(t, func(c *gateway.Config) {
		c.Tokens, c.Logger = panicking{}, slog.New(slog.NewTextHandler(&log, nil))
	})
	e := aidip(t, s.agent(t, echo).URL, `"operations": [`+translate+`]`)

	got, err := invokeAgent(s, e, "", `[{"text":5}, {"text":"a"}]`)
	if err != nil || !strings.Contains(got, `,{"error":{"code":"InternalError",`) ||
		strings.Contains(got, "no token") || !strings.Contains(log.String(), "no token for https://127.0.0.1") {
		t.Errorf("%s, %v; logged %s", got, err, &log)
	}

	s = newStage(t, func(c *gateway.Config) { c.StreamTimeout, c.Timeout = time.Second, 20*time.Second })
	ended := make(chan struct{}, 8)
	silent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) != `{"text":"now"}` {
			<-r.Context().Done()
			ended <- struct{}{}
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"text": "then"}`)
	})
	e = aidip(t, silent.URL, `"operations": [`+translate+`]`)

	got, err = invokeAgent(s, e, "", `[{"text":"now"}, {"text":"a"}]`)
	if err != nil || !strings.HasPrefix(got, `[{"text": "then"},{"error":{"code":"Timeout",`) {
		t.Errorf("%s, %v", got, err)
	}

	<-ended // the agent learns that nobody waits any more
	e = aidip(t, silent.URL, `"operations": [`+translate+`], "rate_limit": {"max_concurrent": 4}`)
	e.RID = directory.NewRID(2, [10]byte{}) // of whose places one caller may have half

	got, err = invokeAgent(s, e, "", `[{"text":"a"}, {"text":"b"}, {"text":"c"}]`)
	if err != nil || strings.Count(got, `"Timeout"`) != 3 || strings.Count(got, "was not asked") != 1 {
		t.Errorf("%s, %v", got, err)
	}
}

// Each item of a batch counts as an invocation of its caller, and an agent has none of
// a batch that is too much.
//
// Requirement: AI-011, AI-040
func TestItemsOfABatchCount(t *testing.T) {
	s := newStage(t, nil)
	called := make(chan struct{}, 8)

	e := aidip(t, s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		called <- struct{}{}
		echo(w, r)
	}).URL, `"operations": [`+translate+`]`)
	for _, tc := range []struct {
		body   string
		counts []int // beyond one
		calls  int
	}{
		{`{"text":"a"}`, nil, 1},
		{`[{"text":"a"}, {"text":"b"}, {"text":"c"}]`, []int{2}, 3},
		{`[{"text":"a"}, {"text":"b"}, {"text":"c"}, {"text":"d"}]`, []int{3}, 0},
	} {
		var counts []int

		_, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(tc.body), Caller: directory.IdentityOf(beta),
			More: func(n int) error {
				counts = append(counts, n)
				if n > 2 {
					return directory.Refuse(directory.RateLimited, "too many")
				}

				return nil
			}})
		if refused := directory.ProblemOf(err) == directory.RateLimited; refused != (tc.calls == 0) ||
			!slices.Equal(counts, tc.counts) || len(called) != tc.calls {
			t.Errorf("%s: %v; counted %v, and the agent was called %d times", tc.body, err, counts, len(called))
		}

		for len(called) > 0 {
			<-called
		}
	}
}

// Requirement: AI-040
func TestPace(t *testing.T) {
	s := newStage(t, nil)
	started, goOn := make(chan struct{}), make(chan struct{})
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) { started <- struct{}{}; <-goOn; echo(w, r) })
	e := aidip(t, agent.URL, `"operations": [`+translate+
		`], "rate_limit": {"max_concurrent": 1, "requests_per_second": 1000}`)
	done := make(chan error, 1)
	go func() { _, err := invokeAgent(s, e, "", `{"text":"a"}`); done <- err }()
	<-started

	var told *directory.Error
	if _, err := invokeAgent(s, e, "", `{"text":"a"}`); !errors.As(err, &told) ||
		told.Problem != directory.RateLimited || told.RetryAfter != 1 {
		t.Errorf("a second one at once: %v", err)
	}

	close(goOn)

	if err := <-done; err != nil {
		t.Error(err)
	}

	slow := aidip(t, "https://127.0.0.1:1025", `"operations": [`+translate+`], "max_calls_per_minute": 1`)
	slow.RID = directory.NewRID(2, [10]byte{})
	_, first := invokeAgent(s, slow, "", `{"text":"a"}`)

	_, second := invokeAgent(s, slow, "", `{"text":"a"}`)
	if directory.ProblemOf(first) != directory.AgentFailed || !errors.As(second, &told) ||
		told.Problem != directory.RateLimited || told.RetryAfter != 80 {
		t.Errorf("three quarters of once a minute: %v, then %v", first, second)
	}

	never := aidip(t, "https://127.0.0.1:1025",
		`"operations": [`+translate+`], "rate_limit": {"requests_per_second": 1e-300}`)
	never.RID = directory.NewRID(3, [10]byte{})

	_, _ = invokeAgent(s, never, "", `{"text":"a"}`)
	if _, err := invokeAgent(s, never, "", `{"text":"a"}`); !errors.As(err, &told) || told.RetryAfter != 24*3600 {
		t.Errorf("hardly ever: %v", err)
	}
}

// A stream comes as it is made, and ends with its reader.
//
// Requirement: AI-010
func TestStream(t *testing.T) {
	s := newStage(t, nil)
	goOn, ended := make(chan struct{}), make(chan struct{})
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: one\n\n")
		w.(http.Flusher).Flush()
		<-goOn
		io.WriteString(w, "data: two\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)
	ctx, cancel := context.WithCancel(t.Context())

	r, err := s.Invoke(ctx, e, invoke.Request{Body: []byte(`{"text":"a"}`), Stream: true})
	must(t, err)
	defer r.Stream.Close()
	buf := make([]byte, 100)
	n, _ := r.Stream.Read(buf)
	close(goOn)

	m, _ := r.Stream.Read(buf[n:])
	if got := string(buf[:n+m]); got != "data: one\n\ndata: two\n\n" {
		t.Errorf("read %q", got)
	}

	cancel()

	if _, err := r.Stream.Read(buf); !errors.Is(err, context.Canceled) {
		t.Errorf("after the client has gone: %v", err)
	}

	if _, err := s.Invoke(ctx, e, invoke.Request{Body: []byte(`{"text":"a"}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call of a client that has gone: %v", err)
	}

	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the agent was not told")
	}
}
