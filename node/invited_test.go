package node

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"

	apioperator "github.com/roster-mesh/roster/api/operator"
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
