package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/wire"
)

// An invitation is accepted while a node that it names is down, and another one answers something else
// than the bundle.
//
// Requirement: MESH-024
func TestAnInvitedBundleComesFromAnyAddress(t *testing.T) {
	serve := func(body string) *httptest.Server {
		return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(body))
		}))
	}

	down, other, up := serve(""), serve("another bundle"), serve("the bundle")
	down.Close()
	defer other.Close()
	defer up.Close()

	token := apioperator.Token{
		Domain: "alpha.test", BundleHash: sha256.Sum256([]byte("the bundle")),
		Addresses: []string{down.URL, other.URL, up.URL},
	}

	if bundle, err := new(peers).invitedBundle(t.Context(), &token); err != nil || string(bundle) != "the bundle" {
		t.Errorf("got %q, %v", bundle, err)
	}

	token.Addresses = token.Addresses[:2]

	if bundle, err := new(peers).invitedBundle(t.Context(), &token); err == nil {
		t.Errorf("without a node that has it: %q", bundle)
	}
}

// Nodes that don't answer an offer cost two seconds each, not the whole time of each. A refusal is told
// rather than an address that nobody answers, and no node is asked behind one that answers at once.
//
// Requirement: MESH-024
func TestAnOfferPassesSilentNodes(t *testing.T) {
	for name, c := range map[string]struct {
		addresses []string
		want      string // the answer or the refusal; "" for silence
		within    time.Duration
		asked     int
	}{
		"at once":              {[]string{"good", "silent"}, "good", 0, 1},
		"behind silent ones":   {[]string{"silent", "silent", "good"}, "good", 2 * offerPause, 3},
		"behind a closed port": {[]string{"closed", "good"}, "good", 0, 2},
		"refused, and silence": {[]string{"refusing", "silent", "closed"}, "refused", offerTime, 3},
		"nobody":               {[]string{"silent", "silent"}, "", offerTime + offerPause, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				asked := make(chan string, 9)

				said, err := firstAnswer(t.Context(), c.addresses, func(ctx context.Context,
					address string) (wire.Redemption, error) {
					asked <- address

					switch address {
					case "good":
						return wire.Redemption{Peering: wire.Peering{Domain: "good"}}, nil
					case "closed":
						return wire.Redemption{}, errors.New("connection refused")
					case "refusing":
						return wire.Redemption{}, &apiclient.Error{Code: "forbidden"}
					}

					<-ctx.Done()

					return wire.Redemption{}, ctx.Err()
				})

				var refused *apiclient.Error

				got := said.Domain
				if errors.As(err, &refused) {
					got = "refused"
				}

				if took := time.Since(began); got != c.want || (err == nil) != (c.want == "good") || took > c.within ||
					len(asked) != c.asked {
					t.Errorf("%q, %v after %v, with %d asked; want %q within %v, %d asked", got, err, took, len(asked),
						c.want, c.within, c.asked)
				}
			})
		})
	}
}
