package node

import (
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/operatorproof"
	"github.com/roster-mesh/roster/trust"
)

// A farewell needs the request of an operator of the peer to end this very peering: a stolen key of one of the
// peer's nodes ends none.
//
// Requirement: MESH-025, SEC-019
func TestAFarewellNeedsThePeersOperator(t *testing.T) {
	alpha := spiffeid.RequireTrustDomainFromString("alpha.test")
	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	now := time.Now()

	ca, err := trust.NewCA(beta, now)
	must(t, err)

	other, err := trust.NewCA(beta, now)
	must(t, err)

	bundle, err := ca.Bundle().Marshal()
	must(t, err)

	peer := directory.Peering{Domain: beta, State: directory.PeeringActive, Bundle: bundle}
	target := "https://beta.test/v1/operator/peers/change"
	removal := `{"domain":"alpha.test","verb":"remove"}`

	request := func(ca *trust.CA, path, body string) *directory.OperatorRequest {
		svid, err := ca.Issue(path, time.Hour, now)
		must(t, err)

		pair := tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
		for _, c := range svid.Certificates {
			pair.Certificate = append(pair.Certificate, c.Raw)
		}

		proof, err := operatorproof.Make(&pair, operatorproof.Request{
			Domain: "beta.test", Method: http.MethodPost, URL: target, Body: sha256.Sum256([]byte(body)),
		}, now)
		must(t, err)

		return &directory.OperatorRequest{Method: http.MethodPost, Target: target, Body: []byte(body), Proof: proof}
	}

	honest := request(ca, "/ops/operator", removal)
	altered := *honest
	altered.Body = []byte(`{"domain":"alpha.test","verb":"remove" }`)

	for name, c := range map[string]struct {
		request *directory.OperatorRequest
		at      time.Time
		ok      bool
	}{
		"of an operator":       {honest, now.Add(10 * time.Minute), true},
		"without one":          {nil, now, false},
		"without a proof":      {&directory.OperatorRequest{Body: honest.Body}, now, false},
		"of a node":            {request(ca, "/roster/node/1", removal), now, false},
		"by another authority": {request(other, "/ops/operator", removal), now, false},
		"of another peering":   {request(ca, "/ops/operator", `{"domain":"gamma.test","verb":"remove"}`), now, false},
		"of another change":    {request(ca, "/ops/operator", `{"domain":"alpha.test","verb":"export"}`), now, false},
		"with another body":    {&altered, now, false},
		"of long ago":          {honest, now.Add(20 * time.Minute), false},
	} {
		if err := judgeFarewell(peer, alpha, c.request, c.at); (err == nil) != c.ok {
			t.Errorf("a farewell %s: %v", name, err)
		}
	}
}
