package api

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// problems returns the values of the constants of type Problem in a Go file.
func problems(t *testing.T, file string) []directory.Problem {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []directory.Problem
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		name := ""
		switch typ := v.Type.(type) {
		case *ast.Ident:
			name = typ.Name
		case *ast.SelectorExpr:
			name = typ.Sel.Name
		}
		if lit, ok := v.Values[0].(*ast.BasicLit); ok && name == "Problem" {
			text, _ := strconv.Unquote(lit.Value)
			found = append(found, directory.Problem(text))
		}
		return true
	})
	return found
}

// Requirement: AD-033
func TestEveryProblemHasARulingAndAPage(t *testing.T) {
	all := append(problems(t, "../directory/errors.go"), problems(t, "errors.go")...)
	if len(all) < 25 {
		t.Fatalf("only %d problems were found in the sources", len(all))
	}
	s := newTestServer(t, nil)
	for _, p := range all {
		rule, ok := rulings[p]
		if !ok {
			t.Errorf("%s has no ruling", p)
			continue
		}
		body := wantStatus(t, ask(t, s, "", "GET", "/problems/"+string(p), ""), 200)
		if body["type"] != publicURL+"/problems/"+string(p) || body["status"] != float64(rule.status) || body["explanation"] == "" {
			t.Errorf("/problems/%s tells %v", p, body)
		}
	}
	if len(rulings) != len(all) {
		t.Errorf("there are %d rulings for %d problems", len(rulings), len(all))
	}
}

// The codes of the other drafts follow the status (spec: "Errors, one body for
// all surfaces").
//
// Requirement: XU-027
func TestCodesFollowTheStatus(t *testing.T) {
	codes := map[int][][2]string{
		400: {{"invalid_request", "InvalidInput"}}, 401: {{"unauthorized", "Unauthorized"}}, 403: {{"forbidden", "Forbidden"}},
		404: {{"not_found", "NotFound"}}, 405: {{"invalid_request", "InvalidRequest"}}, 409: {{"conflict", "Conflict"}, {"stale_metadata", "Stale"}},
		412: {{"conflict", "PreconditionFailed"}}, 413: {{"invalid_request", "InvalidRequest"}}, 414: {{"invalid_request", "InvalidRequest"}},
		415: {{"invalid_request", "InvalidRequest"}}, 422: {{"unsupported_filter", "UnsupportedFilter"}, {"invalid_request", "InvalidInput"}}, 429: {{"rate_limited", "RateLimited"}}, 431: {{"invalid_request", "InvalidRequest"}},
		500: {{"internal", "InternalError"}}, 501: {{"not_supported", "NotInvocable"}}, 502: {{"unavailable", "AgentError"}},
		503: {{"unavailable", "Unavailable"}}, 504: {{"unavailable", "Timeout"}},
	}
	for p, rule := range rulings {
		ok := false
		for _, c := range codes[rule.status] {
			ok = ok || c == [2]string{rule.xu, rule.cui}
		}
		if !ok {
			t.Errorf("%s: %d %s %s is not in the table", p, rule.status, rule.xu, rule.cui)
		}
		if (rule.status == 429 || rule.status == 503) != (rule.retry > 0) {
			t.Errorf("%s: %d with Retry-After %d", p, rule.status, rule.retry)
		}
	}
}

// Requirement: AD-033, AD-067
func TestProblemBodyIsTheGolden(t *testing.T) {
	r := explain(fmt.Errorf("registering: %w", directory.Refuse(directory.NameTaken, "Agent name 'summarizer-v2' already registered.")))
	want := `{"type":"https://ad.alpha.test:8400/problems/agent-name-taken","title":"Agent name already registered","status":409,` +
		`"detail":"Agent name 'summarizer-v2' already registered.","instance":"urn:uuid:6f1c2d3e-0000-4000-8000-000000000001",` +
		`"code":"conflict","message":"Agent name 'summarizer-v2' already registered.","correlation_id":"6f1c2d3e-0000-4000-8000-000000000001",` +
		`"error":{"code":"Conflict","message":"Agent name 'summarizer-v2' already registered."}}` + "\n"
	if got := string(problemBody(publicURL, "6f1c2d3e-0000-4000-8000-000000000001", r, rulings[r.err.Problem])); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What carries no problem is internal, and its cause stays here.
func TestCausesAreNotTold(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) {
		cfg.Federation = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret cause") })
	})
	resp := ask(t, s, "", "GET", "/federation/v1/heads", "")
	body := wantStatus(t, resp, 500)
	if got := fmt.Sprint(body); strings.Contains(got, "secret cause") {
		t.Errorf("the client is told %s", got)
	}
}

// abandoned is a finder whose caller goes away while it searches.
type abandoned struct {
	Finder
	leave context.CancelFunc
}

func (f abandoned) Find(ctx context.Context, _ discovery.Query) (*discovery.Result, error) {
	f.leave()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A client that goes away is no fault of the directory: nothing is logged as one.
func TestAClientThatHasGoneIsNoFault(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	var log bytes.Buffer
	var told int
	s := newTestServer(t, func(cfg *Config) {
		cfg.Finder = abandoned{leave: leave}
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.Observe = func(_, _ string, status int, _ time.Duration) { told = status }
	})
	r := httptest.NewRequestWithContext(ctx, "POST", "https://ad.alpha.test:8400/discovery/query", strings.NewReader(`{"query":"anything"}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if told != 499 || w.Body.Len() > 0 || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("status %d, body %s, log %s", told, w.Body, &log)
	}
}
