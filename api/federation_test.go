package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A problem with no more than its type and detail, as the federation writes one,
// gets what all surfaces say beside these.
//
// Requirement: AD-033
func TestABareProblemIsCompleted(t *testing.T) {
	for _, c := range []struct{ sent, problem, detail string }{
		{`{"type":"/problems/bad-query","title":"Bad Request","status":400,"detail":"origin is \"x y\""}`, "bad-query", `origin is "x y"`},
		{`{"type":"/problems/forbidden","detail":"of another status"}`, "bad-request", "of another status"},
		{`{"type":"/problems/bad-query","detail":"` + strings.Repeat("x", 8000) + `"}`, "bad-request", ""},
		{`not JSON`, "bad-request", ""},
	} {
		s := newTestServer(t, func(cfg *Config) {
			cfg.Federation = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprint(w, c.sent)
			})
		})
		resp := ask(t, s, "", "GET", "/federation/v1/heads?origin=x", "")
		body := wantStatus(t, resp, 400)
		if body["type"] != publicURL+"/problems/"+c.problem || c.detail != "" && body["detail"] != c.detail {
			t.Errorf("%.80s became %v", c.sent, body)
		}
		for _, member := range []string{"title", "detail", "instance", "code", "message", "correlation_id", "error"} {
			if body[member] == nil || body[member] == "" {
				t.Errorf("%.80s became a body without %s: %v", c.sent, member, body)
			}
		}
	}
}
