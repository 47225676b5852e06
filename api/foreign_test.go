package api

import (
	"context"
	"encoding/base64"
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
	wantStatus(t, ask(t, s, "", "POST", "/v1/peerings", body), http.StatusNoContent)

	if len(redeemed) != 1 || redeemed[0].Domain != beta || len(redeemed[0].Addresses) != 1 {
		t.Errorf("redeemed %+v", redeemed)
	}

	// One that asks for it gets the inviting domain's description.
	describe := strings.Replace(body, `"secret"`, `"describe":true,"secret"`, 1)
	answer := ask(t, s, "", "POST", "/v1/peerings", describe)

	if text := textOf(t, answer); answer.StatusCode != http.StatusOK ||
		!strings.Contains(text, `"domain":"alpha.test"`) {
		t.Errorf("got %d %s", answer.StatusCode, text)
	}

	// What is no strict JSON is refused as ever.
	twice := strings.Replace(body, `"secret"`, `"domain":"gamma.test","secret"`, 1)
	wantStatus(t, ask(t, s, "", "POST", "/v1/peerings", twice), http.StatusBadRequest)
}

// Requirement: FORM-004
func TestATokenOfAnEarlierReleaseIsRead(t *testing.T) {
	encode := func(body string) string { return "roster-peer-1." + base64.RawURLEncoding.EncodeToString([]byte(body)) }

	token,
		err := operator.ParseToken(encode(`{"domain":"beta.test","invited":"alpha.test","later":[1],"secret":"s","until":1}`))
	if err != nil || token.Domain != "beta.test" || token.Secret != "s" {
		t.Errorf("got %+v, %v", token, err)
	}

	if peering, err := token.Peering(alpha, nil); err == nil || token.NeedsBundle() {
		t.Errorf("it has no bundle and no addresses: %+v, %v", peering, err)
	}

	for _, bad := range []string{`{"secret":"a","secret":"b"}`, `{"later":1}`, `[]`, `{"secret":1}`} {
		if _, err := operator.ParseToken(encode(bad)); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
}
