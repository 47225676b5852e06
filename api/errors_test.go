package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/discovery"
)

// Every problem has a page at its type.
//
// Requirement: AD-033
func TestEveryProblemHasAPage(t *testing.T) {
	s := newTestServer(t, nil)
	for _, p := range problem.All() {
		body := wantStatus(t, ask(t, s, "", "GET", "/problems/"+string(p), ""), 200)
		if body["type"] != publicURL+"/problems/"+string(p) || body["status"] != float64(problem.RuleOf(p).Status) ||
			body["explanation"] == "" {
			t.Errorf("/problems/%s tells %v", p, body)
		}
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

	var (
		log  bytes.Buffer
		told int
	)
	s := newTestServer(t, func(cfg *Config) {
		cfg.Finder = abandoned{leave: leave}
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.Observe = func(_, _ string, status int, _ time.Duration) { told = status }
	})
	r := httptest.NewRequestWithContext(ctx, "POST", "https://ad.alpha.test:8400/discovery/query",
		strings.NewReader(`{"query":"anything"}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)

	if told != 499 || w.Body.Len() > 0 || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("status %d, body %s, log %s", told, w.Body, &log)
	}
}
