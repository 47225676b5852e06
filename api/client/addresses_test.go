package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// learner returns a client of one node over j that learns the others.
func learner(t *testing.T, j *journey) *Client {
	t.Helper()

	c, err := New(Config{Addresses: []string{"https://one"}, Learn: true, HTTP: &http.Client{Transport: j}})
	must(t, err)

	return c
}

// naming answers a lookup, and names nodes if it is asked for them.
func naming(r *http.Request, nodes string) *http.Response {
	resp := listing(r)
	if r.Header.Get("Roster-Nodes") != "" {
		resp.Header.Set("Roster-Nodes", nodes)
	}

	return resp
}

// A client that knows one node goes to the others, which that node named, when it is away.
func TestAClientLearnsTheOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := false
		j := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) {
			if away && r.URL.Host != "three:8400" {
				return nil, errRefused
			}

			return naming(r, "https://two:8400, http://plain.test, http://127.0.0.1:8400, "+
				"https://u:p@four, https://one, https://three:8400/, nonsense"), nil
		}}

		c := learner(t, j)
		lookup := func() {
			t.Helper()

			if _, err := c.Lookup(t.Context(), LookupOptions{}); err != nil {
				t.Fatal(err)
			}
		}

		lookup()

		away = true

		lookup()
		lookup()

		if got := j.hosts(); got != "one one two:8400 three:8400 three:8400" {
			t.Errorf("asked %s", got)
		}
	})
}

// Nodes are asked for the others once a minute, and only if the configuration permits it.
func TestNodesAreAskedForTheOthersAtTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		j := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) {
			asked += len(r.Header.Values("Roster-Nodes"))
			return naming(r, strings.Repeat("https://two, ", 30)+"https://three"), nil
		}}

		c := learner(t, j)
		for range 10 {
			_, _ = c.Lookup(t.Context(), LookupOptions{})
			time.Sleep(11 * time.Second)
		}

		if asked != 2 || c.addresses.count() != 3 {
			t.Errorf("asked %d times, %d addresses", asked, c.addresses.count())
		}

		own := travel(t, j)
		if _, err := own.Lookup(t.Context(), LookupOptions{}); err != nil || asked != 2 || own.addresses.count() != 3 {
			t.Errorf("%v: asked %d times, %d addresses", err, asked, own.addresses.count())
		}
	})
}

// A node that closes its connections is about to leave: the next request goes elsewhere.
func TestAClosingNodeIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) {
			resp := listing(r)
			resp.Close = r.URL.Host == "one"

			return resp, nil
		}}

		c := travel(t, j)
		for range 3 {
			if _, err := c.Lookup(t.Context(), LookupOptions{}); err != nil {
				t.Fatal(err)
			}
		}

		if got := j.hosts(); got != "one two two" {
			t.Errorf("asked %s", got)
		}
	})
}

// A client that fails fast asks each address once if none can be connected to, and waits all
// the same while nodes answer that they are unavailable.
func TestAClientMayFailFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := func(*http.Request) (*http.Response, error) { return nil, errRefused }
		j := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) { return fail(r) }}

		c, err := New(Config{
			Addresses: []string{"https://one", "https://two"}, FailFast: true, HTTP: &http.Client{Transport: j},
		})
		must(t, err)

		if _, err := c.Lookup(t.Context(), LookupOptions{}); !errors.Is(err, ErrUnavailable) || j.hosts() != "one two" {
			t.Errorf("%v: asked %s", err, j.hosts())
		}

		election := time.Now().Add(time.Second)
		fail = func(r *http.Request) (*http.Response, error) {
			if time.Now().Before(election) {
				return problem(r, 503, "unavailable", 1), nil
			}

			return response(r, 204, nil, ""), nil
		}

		if _, err := c.Deregister(t.Context(), "weather"); err != nil {
			t.Errorf("a removal in an election: %v", err)
		}
	})
}

// When the time of the caller ends, the directory's own refusal is returned, if it gave one.
func TestTheRefusalIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journey{answer: func(r *http.Request, attempt int) (*http.Response, error) {
			if attempt == 1 {
				return problem(r, 503, "unavailable", 1), nil
			}

			<-r.Context().Done()

			return nil, r.Context().Err()
		}}

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()

		var refused *Error
		if _, err := travel(t, j).Lookup(ctx, LookupOptions{}); !errors.As(err, &refused) || refused.Status != 503 {
			t.Errorf("got %v", err)
		}
	})
}

// A member may name any address, such as a thief of its key does. A server there gets no
// request unless it shows the certificate of a node, whatever host name its certificate holds.
//
// Requirement: TRUST-001
func TestALearnedAddressMustBeANodes(t *testing.T) {
	alpha := newAuthority(t, "spiffe://alpha.test")

	named := svidOf("spiffe://alpha.test/roster/node/1")
	named.URIs, named.DNSNames = nil, []string{"localhost"}
	shown := alpha.issue(t, named)

	var asked atomic.Int32

	evil := startNode(t, shown, tls.NoClientCert)
	evil.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	second := startNode(t, alpha.issue(t, svidOf("spiffe://alpha.test/roster/node/2")), tls.NoClientCert)
	first := startNode(t, alpha.issue(t, svidOf("spiffe://alpha.test/roster/node/1")), tls.NoClientCert)
	answer := first.Config.Handler
	first.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Roster-Nodes", onLocalhost(evil)+", "+second.URL)
		answer.ServeHTTP(w, r)
	})

	// By host name the certificate holds, as one of a public authority does.
	nodes := &NodeTrust{
		Domain: "alpha.test", Authorities: func() []*x509.Certificate { return []*x509.Certificate{alpha.cert} },
	}
	config := nodes.TLS()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if state.PeerCertificates[0].Equal(shown.Leaf) && state.ServerName == "localhost" {
			return nil
		}

		return nodes.verify(state)
	}

	for _, row := range []struct {
		configured string
		asked      int32
	}{
		{first.URL, 0},
		{onLocalhost(evil), 1}, // the address of a configuration is accepted by its host name
	} {
		client, err := New(Config{Addresses: []string{row.configured}, TLS: config, Learn: true})
		must(t, err)

		_, err = client.Lookup(t.Context(), LookupOptions{})
		if row.asked == 0 && (err != nil || client.addresses.count() != 3) {
			t.Fatalf("%v; %d addresses", err, client.addresses.count())
		}

		client.CloseIdleConnections()

		if row.asked == 0 {
			first.Close()

			if _, err = client.Lookup(t.Context(), LookupOptions{}); err != nil || client.Address() != second.URL {
				t.Errorf("asked %s, not the second node %s: %v", client.Address(), second.URL, err)
			}
		}

		client.CloseIdleConnections()

		if got := asked.Swap(0); got != row.asked {
			t.Errorf("%s: a server that is no node got %d requests, want %d", row.configured, got, row.asked)
		}
	}

	if _, err := New(Config{Addresses: []string{first.URL}, Learn: true}); err == nil {
		t.Error("a client learns addresses without a bundle")
	}
}

// onLocalhost is a server's address with a host name.
func onLocalhost(s *httptest.Server) string {
	return strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
}
