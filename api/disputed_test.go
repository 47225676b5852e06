package api

import (
	"io"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// What is shown of a domain that contradicted itself says so on every surface, from
// the moment on that it is frozen, and no longer once it is released.
//
// Requirement: MESH-022
func TestWhatIsDisputedSaysSo(t *testing.T) {
	var frozen []spiffeid.TrustDomain
	foreign := entry(t, beta, rid(2), "two", 381, aDocument)
	foreign.Received = &directory.Received{From: beta}
	s := newTestServer(t, func(cfg *Config) {
		whole(cfg)
		cfg.Frozen = func() []spiffeid.TrustDomain { return frozen }
	}, entry(t, alpha, rid(1), "one", 381, aDocument), foreign)

	marks := func(target string) int {
		resp := ask(t, s, "/client/reader", "GET", target, "")

		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %v", target, resp.StatusCode, err)
		}

		return strings.Count(string(b), `"disputed":true`)
	}
	for _, at := range []struct {
		frozen []spiffeid.TrustDomain
		want   int
	}{{nil, 0}, {[]spiffeid.TrustDomain{beta}, 1}, {nil, 0}} {
		frozen = at.frozen
		for _, target := range []string{"/ad/l", "/ad/l?brief=true", "/agents", "/ad/r/beta.test/" + rid(2)} {
			if got := marks(target); got != at.want {
				t.Errorf("%s with %v frozen: %d marks, want %d", target, at.frozen, got, at.want)
			}
		}
	}
}
