package problem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

const base = "https://ad.alpha.test:8400"

// declared returns the values of the constants of type Problem in a Go file.
func declared(t *testing.T, file string) []directory.Problem {
	t.Helper()

	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}

	var found []directory.Problem
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}

		name := ""
		switch typ := spec.Type.(type) {
		case *ast.Ident:
			name = typ.Name
		case *ast.SelectorExpr:
			name = typ.Sel.Name
		}

		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && name == "Problem" {
			text, _ := strconv.Unquote(lit.Value)
			found = append(found, directory.Problem(text))
		}

		return true
	})

	return found
}

// Requirement: AD-033
func TestEveryProblemHasARule(t *testing.T) {
	all := append(declared(t, "../errors.go"), declared(t, "rules.go")...)
	if len(all) < 25 {
		t.Fatalf("only %d problems were found in the sources", len(all))
	}

	for _, p := range all {
		if rule := problem.RuleOf(p); rule.Status < 400 || rule.Title == "" || rule.Explanation == "" {
			t.Errorf("%s has the rule %+v", p, rule)
		}
	}

	if ruled := problem.All(); len(ruled) != len(all) {
		t.Errorf("there are %d rules for %d problems", len(ruled), len(all))
	}
}

// The codes of the other drafts follow the status.
//
// Requirement: XU-027
func TestCodesFollowTheStatus(t *testing.T) {
	codes := map[int][][2]string{
		400: {{"invalid_request", "InvalidInput"}},
		401: {{"unauthorized", "Unauthorized"}},
		403: {{"forbidden", "Forbidden"}},
		404: {{"not_found", "NotFound"}},
		405: {{"invalid_request", "InvalidRequest"}},
		409: {{"conflict", "Conflict"}, {"stale_metadata", "Stale"}},
		412: {{"conflict", "PreconditionFailed"}},
		413: {{"invalid_request", "InvalidRequest"}},
		414: {{"invalid_request", "InvalidRequest"}},
		415: {{"invalid_request", "InvalidRequest"}},
		421: {{"invalid_request", "InvalidRequest"}},
		422: {{"unsupported_filter", "UnsupportedFilter"}, {"invalid_request", "InvalidInput"}},
		429: {{"rate_limited", "RateLimited"}},
		431: {{"invalid_request", "InvalidRequest"}},
		500: {{"internal", "InternalError"}},
		501: {{"not_supported", "NotInvocable"}},
		502: {{"unavailable", "AgentError"}},
		503: {{"unavailable", "Unavailable"}},
		504: {{"unavailable", "Timeout"}},
	}

	for _, p := range problem.All() {
		rule := problem.RuleOf(p)

		ok := false
		for _, c := range codes[rule.Status] {
			ok = ok || c == [2]string{rule.Code, rule.ErrorCode}
		}

		if !ok {
			t.Errorf("%s: %d %s %s is not in the table", p, rule.Status, rule.Code, rule.ErrorCode)
		}

		never := p == directory.PositionLost || p == directory.NotVoter // at this node

		again := (rule.Status == 429 || rule.Status == 503) && !never
		if again != (rule.Retry > 0) {
			t.Errorf("%s: %d with Retry-After %d", p, rule.Status, rule.Retry)
		}
	}
}

// Requirement: AD-033, AD-067
func TestTheBodyIsTheGolden(t *testing.T) {
	taken := directory.Refuse(directory.NameTaken, "Agent name 'summarizer-v2' already registered.")

	const requestID = "6f1c2d3e-0000-4000-8000-000000000001"

	want := `{"type":"https://ad.alpha.test:8400/problems/agent-name-taken","title":"Agent name already registered","status":409,` +
		`"detail":"Agent name 'summarizer-v2' already registered.","instance":"urn:uuid:6f1c2d3e-0000-4000-8000-000000000001",` +
		`"code":"conflict","message":"Agent name 'summarizer-v2' already registered.","correlation_id":"6f1c2d3e-0000-4000-8000-000000000001",` +
		`"error":{"code":"Conflict","message":"Agent name 'summarizer-v2' already registered."}}` + "\n"

	got := string(problem.Explain(fmt.Errorf("registering: %w", taken)).Body(base, requestID))
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// answered reads an answer that has to be a problem with all members.
func answered(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()

	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("the answer is %s: %s", got, w.Body)
	}

	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"type", "title", "status", "detail", "instance", "code", "message", "correlation_id",
		"error"} {
		if body[name] == nil || body[name] == "" {
			t.Errorf("the body has no %s: %s", name, w.Body)
		}
	}

	if body["status"] != float64(w.Code) || body["correlation_id"] != w.Header().Get("X-Request-Id") {
		t.Errorf("status %d, request %q, body %s", w.Code, w.Header().Get("X-Request-Id"), w.Body)
	}

	return body
}

func TestWriteTellsHowLongToWait(t *testing.T) {
	w := httptest.NewRecorder()
	problem.Write(w, base, &directory.Error{Problem: directory.AgentUnavailable, Detail: "later", RetryAfter: 17})

	body := answered(t, w)
	if w.Code != 503 || w.Header().Get("Retry-After") != "17" || body["retry_after"] != 17.0 {
		t.Errorf("%d, Retry-After %q, %v", w.Code, w.Header().Get("Retry-After"), body)
	}
}

func TestWriteKeepsTheCauseOfAnInternalErrorSecret(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "r-1")
	problem.Write(w, base, errors.New("secret cause"))

	body := answered(t, w)
	if w.Code != 500 || body["correlation_id"] != "r-1" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestRoutesRefuseUnknownPathsAndMethodsByAProblem(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /one", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	routes := problem.Routes(mux, base)
	serve := func(method, path string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		r.Header.Set("X-Request-Id", "r-2")
		routes.ServeHTTP(w, r)

		return w
	}

	if w := serve("POST", "/one"); w.Code != 204 || w.Header().Get("X-Request-Id") != "r-2" {
		t.Errorf("%d, request %q", w.Code, w.Header().Get("X-Request-Id"))
	}

	if w := serve("GET", "/one"); w.Code != 405 || w.Header().Get("Allow") != "POST" ||
		answered(t, w)["type"] != base+"/problems/method-not-allowed" {
		t.Errorf("%d, Allow %q, %s", w.Code, w.Header().Get("Allow"), w.Body)
	}

	forwarded, w := httptest.NewRequest("POST", "/one", nil), httptest.NewRecorder()
	forwarded.Header.Set("Via", "1.1 roster-gateway")

	if routes.ServeHTTP(w, forwarded); w.Code != 403 { // Requirement: SEC-009
		t.Errorf("a request by an intermediary: %d", w.Code)
	}

	if w := serve("GET", "/two"); w.Code != 404 || answered(t, w)["type"] != base+"/problems/not-found" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// An error's text is a sentence in a problem; names of parameters and values keep their case.
func TestDetailsAreSentences(t *testing.T) {
	for text, want := range map[string]string{
		"the last voter":                   "The last voter.",
		"lt must be 1 to 9, got 10":        "lt must be 1 to 9, got 10.",
		"this node is stopping. Try again": "This node is stopping. Try again.",
		"you may not see it.":              "You may not see it.",
	} {
		w := httptest.NewRecorder()
		problem.Write(w, "", directory.Refuse(directory.Conflict, "%s", text))

		if !strings.Contains(w.Body.String(), strconv.Quote(want)) {
			t.Errorf("%q is %s, want %q", text, w.Body, want)
		}
	}
}
