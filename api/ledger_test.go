package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// What exists never changes, and may be kept; what doesn't exist is not found, whoever asks.
//
// Requirement: LOG-001
func TestTheLedgerIsServedAsC2SPHasIt(t *testing.T) {
	s := newTestServer(t, whole)

	const immutable, soon = "public, max-age=31536000, immutable", "public, max-age=2"

	for path, want := range map[string]struct {
		status            int
		body, kind, cache string
	}{
		"/log/7/checkpoint":             {200, "checkpoint", "text/plain; charset=utf-8", soon},
		"/log/7/policy":                 {200, "policy", "text/plain; charset=utf-8", soon},
		"/log/7/start":                  {200, `{"epoch":7}`, "application/json", immutable},
		"/log/8/start":                  {status: 404},
		"/log/7/tile/0/000.p/1":         {200, "tile", "application/octet-stream", immutable},
		"/log/7/tile/entries/000.p/1":   {200, "tile of entries", "application/octet-stream", immutable},
		"/log/7/tile/0/000":             {status: 404},
		"/log/7/tile/0/x001/000.p/1":    {status: 404},
		"/log/7/tile/entries/000.p/256": {status: 404},
		"/log/7/tile/0/000.p/1/":        {status: 404},
		"/log/7/tile/8/000.p/1":         {status: 404},
		"/log/8/checkpoint":             {status: 404},
		"/log/07/checkpoint":            {status: 404},
		"/log/-7/policy":                {status: 404},
		"/log/7/tile/":                  {status: 404},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(method, "https://ad.alpha.test:8400"+path, nil))

			if w.Code != want.status {
				t.Errorf("%s %s: %d, want %d", method, path, w.Code, want.status)
			}

			if want.status != 200 {
				continue
			}

			h := w.Header()
			if h.Get("Content-Type") != want.kind || h.Get("Cache-Control") != want.cache {
				t.Errorf("%s %s: %s, %s", method, path, h.Get("Content-Type"), h.Get("Cache-Control"))
			}

			if got := w.Body.String(); method == http.MethodGet && got != want.body {
				t.Errorf("%s: %q, want %q", path, got, want.body)
			}
		}
	}

	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://ad.alpha.test:8400/log/checkpoint", nil))

	if w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != "/log/7/checkpoint" {
		t.Errorf("the newest checkpoint: %d, %s", w.Code, w.Header().Get("Location"))
	}
}
