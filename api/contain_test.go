package api

import (
	"log/slog"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
)

// An entry that makes this program panic is left out of a lookup, which has the others.
//
// Requirement: FORM-006
func TestALookupLeavesOutAnEntryThatPanics(t *testing.T) {
	document := `{"base":"https://agent.example/"}`
	panics := contain.New(slog.New(slog.DiscardHandler))
	s := newTestServer(t, func(cfg *Config) {
		cfg.Panics = panics
		cfg.Service = func(td spiffeid.TrustDomain) string {
			if td == gamma {
				panic("a mistake that one entry finds")
			}

			return ""
		}
	},
		entryOf(t, directory.KindAD, alpha, rid(1), "good", 1, document),
		entryOf(t, directory.KindAD, beta, rid(2), "good-too", 2, document),
		entryOf(t, directory.KindAD, gamma, rid(3), "bad", 3, document),
	)

	body := wantStatus(t, ask(t, s, "", "GET", "/ad/l", ""), 200)

	agents, _ := body["agents"].([]any)
	if len(agents) != 2 || panics.Count(contain.Listing) != 1 {
		t.Errorf("%d agents, %d panics: %v", len(agents), panics.Count(contain.Listing), body)
	}
}
