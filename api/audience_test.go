package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// To which peers a registration is sent is for its owner, commissioning tools and operators; it is
// hidden from others as the registration is.
//
// Requirement: MESH-025
func TestTheAudienceIsForOwnersAndOperators(t *testing.T) {
	const document = `{"base": "https://x.example"}`

	open := entry(t, alpha, "01JWNTC0000000000000000AD1", "printer", 1, document)
	secret := entry(t, alpha, "01JWNTC0000000000000000AD2", "secret-1", 2, document)
	foreign := entry(t, beta, "01JWNTC0000000000000000AD3", "theirs", 3, document)
	s := newTestServer(t, func(cfg *Config) {
		cfg.Recipients = func(*directory.Entry) []wire.Recipient {
			return []wire.Recipient{{Domain: "beta.test", Reason: wire.WithheldPolicy, Policies: []string{"stays"}}}
		}
	}, open, secret, foreign)

	owner := strings.TrimPrefix(open.Owner.String(), "spiffe://alpha.test")

	for _, c := range []struct {
		caller, agent string
		want          int
	}{
		{owner, "printer", http.StatusOK},
		{owner, open.RID.String(), http.StatusOK},
		{"/tool/commissioner", "secret-1", http.StatusOK},
		{"/ops/operator", "secret-1", http.StatusOK},
		{"/agent/another", "printer", http.StatusForbidden},
		{"/agent/another", "secret-1", http.StatusNotFound},
		{"/ops/operator", "theirs", http.StatusForbidden},
		{"/ops/operator", "nothing", http.StatusNotFound},
		{"", "printer", http.StatusUnauthorized},
		{"", "secret-1", http.StatusUnauthorized},
	} {
		answer := ask(t, s, c.caller, "GET", "/ad/r/"+c.agent+"/audience", "")
		text := textOf(t, answer)

		if answer.StatusCode != c.want || (c.want == http.StatusOK) != strings.Contains(text,
			`"peers":[{"domain":"beta.test","sent":false,"reason":"policy","policies":["stays"]}]`) {
			t.Errorf("%s asks for %s: %d %s, want %d", c.caller, c.agent, answer.StatusCode, text, c.want)
		}
	}
}
