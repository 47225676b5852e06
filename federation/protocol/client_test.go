package protocol_test

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/federation/protocol"
)

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, net.ErrClosed }

// The failure to reach a node is shown to operators: it names the node and the cause, and not the
// query of the request.
func TestAFailureNamesNodeAndCause(t *testing.T) {
	var failed error

	client := &protocol.Client{
		HTTP:   func(spiffeid.TrustDomain) *http.Client { return &http.Client{Transport: unreachable{}} },
		Failed: func(_ protocol.Node, err error) { failed = err },
	}
	node := protocol.Node{Domain: spiffeid.RequireTrustDomainFromString("beta.test"), Base: "https://beta.test:8443"}

	_, got := client.Get(t.Context(), node, protocol.PathPages, url.Values{"since": {"17"}}, 1024)
	_, posted := client.Post(t.Context(), node, protocol.PathRecords, []byte("{}"), "")

	for _, err := range []error{got, posted} {
		const want = "ask https://beta.test:8443: use of closed network connection"
		if err == nil || err.Error() != want || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want %s", err, want)
		}
	}

	if failed == nil || !strings.Contains(failed.Error(), "closed") {
		t.Errorf("reported %v", failed)
	}
}
