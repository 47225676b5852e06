package api

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/directory"
)

// openPeerings takes every invitation, and notes who redeemed one.
type openPeerings struct {
	operator.Peers
	redeemed *[]directory.Peering
}

func (openPeerings) Invited(string, spiffeid.TrustDomain) bool { return true }

func (o openPeerings) Redeem(_ context.Context, _ string, peer directory.Peering) (directory.Peering, bool, error) {
	*o.redeemed = append(*o.redeemed, peer)

	return directory.Peering{Domain: alpha, Bundle: []byte(`{"keys":[]}`), Addresses: []string{"https://a.test"}},
		len(*o.redeemed) > 2, nil
}

// Requirement: FORM-004
func TestAnotherDomainMayRedeemWithMembersOfALaterRelease(t *testing.T) {
	var redeemed []directory.Peering
	s := newTestServer(t, func(cfg *Config) { cfg.Peerings = openPeerings{redeemed: &redeemed} })

	body := `{"later":{"x":[1]},"domain":"beta.test","secret":"s","bundle":{"keys":[],"later":1},` +
		`"addresses":["https://ad.beta.test:8401"],"bundle_endpoint":{"later":null}}`

	// The answer is the inviting domain's description.
	answer := ask(t, s, "", "POST", "/v1/peerings", body)

	if text := textOf(t, answer); answer.StatusCode != http.StatusOK ||
		!strings.Contains(text, `"domain":"alpha.test"`) {
		t.Errorf("got %d %s", answer.StatusCode, text)
	}

	if len(redeemed) != 1 || redeemed[0].Domain != beta || len(redeemed[0].Addresses) != 1 {
		t.Errorf("redeemed %+v", redeemed)
	}

	// What is no strict JSON is refused as ever.
	twice := strings.Replace(body, `"secret"`, `"domain":"gamma.test","secret"`, 1)
	wantStatus(t, ask(t, s, "", "POST", "/v1/peerings", twice), http.StatusBadRequest)
}
