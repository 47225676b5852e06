package api

import (
	"fmt"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// An item that is kept is what it would be if it were written now: for each kind of
// reader, after a refresh, after the origin has another service, and where items
// share a place.
func TestKeptItemsAreAsIfWrittenNow(t *testing.T) {
	service := "https://one.beta.test"
	s := newTestServer(t, func(cfg *Config) {
		cfg.Service = func(spiffeid.TrustDomain) string { return service }
	})
	var entries []*directory.Entry
	for i := range 300 {
		origin := alpha
		if i%3 == 0 {
			origin = beta
		}
		e := entry(t, origin, fmt.Sprintf("01JWNTC00000000000%08d", i), fmt.Sprint("agent-", i), uint64(i+1), aDocument)
		e.Redacted = i%5 == 0
		entries = append(entries, e)
	}
	check := func(when string) {
		t.Helper()
		for range 2 {
			for _, e := range entries {
				for _, l := range []look{{}, {registrant: true}, {brief: true}, {registrant: true, brief: true}} {
					if got, want := s.item(e, l).text, s.appendItem(nil, e, l); string(got) != string(want) {
						t.Fatalf("%s, to %+v: kept %s, want %s", when, l, got, want)
					}
				}
			}
		}
	}
	check("at first")
	service = "https://two.beta.test"
	check("with another service")
	for i, e := range entries {
		refreshed := *e
		refreshed.ExpiresAt += int64(i)
		refreshed.Revision++
		entries[i] = &refreshed
	}
	check("refreshed")
}
