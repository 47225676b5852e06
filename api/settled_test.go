package api

import "testing"

// A node that was just started, and finds nobody who tells it what its domain has
// committed, does not call its domain empty: that would be read as an agent's
// end. What other domains told it, it answers.
//
// Requirement: OPS-017
func TestANodeThatKnowsNothingYetSaysSo(t *testing.T) {
	settled := false
	foreign := entry(t, beta, rid(1), "helper", 5, aDocument)

	s := newTestServer(t, func(cfg *Config) { cfg.CaughtUp = func() bool { return settled } }, foreign)
	for _, c := range []struct {
		target         string
		before, behind int
	}{
		{"/ad/r/" + rid(9), 503, 404},
		{"/ad/r/" + rid(9) + "?consistency=stale", 404, 404},
		{"/ad/r/" + rid(9) + "?origin=beta.test", 503, 404}, // which that route does not know
		{"/ad/r/alpha.test/" + rid(9), 503, 404},
		{"/ad/r/beta.test/" + rid(1), 200, 200},
		{"/ad/l", 503, 200},
		{"/ad/l?scope=domain", 503, 200},
		{"/ad/l?origin=alpha.test", 503, 200},
		{"/ad/l?origin=beta.test", 200, 200},
		{"/ad/l?consistency=stale", 200, 200},
		{"/ad/l?origin=b%C3", 400, 400},
		{"/.well-known/ad", 200, 200},
	} {
		for _, settled = range []bool{false, true} {
			want := c.before
			if settled {
				want = c.behind
			}

			if resp := ask(t, s, "/client/reader", "GET", c.target, ""); resp.StatusCode != want {
				t.Errorf("%s, settled %v: %d, want %d", c.target, settled, resp.StatusCode, want)
			} else if want == 503 && resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", c.target)
			}
		}
	}
}
