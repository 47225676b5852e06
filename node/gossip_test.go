package node

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/credentials"
)

// A pipeListener accepts the ends of pipes.
type pipeListener struct {
	net.Listener
	ends chan net.Conn
}

// Accept implements net.Listener.
func (l pipeListener) Accept() (net.Conn, error) {
	end, open := <-l.ends
	if !open {
		return nil, net.ErrClosed
	}

	return end, nil
}

// Close implements net.Listener.
func (l pipeListener) Close() error { return nil }

// A connection of gossip ends with the certificate of its client.
//
// Requirement: OPS-020
func TestAConnectionOfGossipEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		td := spiffeid.RequireTrustDomainFromString("alpha.test")
		anyone := func(spiffeid.ID) error { return nil }

		ca, err := trust.NewCA(td, time.Now())
		must(t, err)

		svid, err := ca.Issue(trust.NodePath+"1", time.Hour, time.Now())
		must(t, err)

		source, bundles := trust.NewSource(svid), trust.NewBundles()
		must(t, bundles.SetX509(td, ca.Bundle().X509Authorities()))

		n := &Node{id: svid.ID, source: source, bundles: bundles, metrics: metrics.New("test")}
		n.cfg.TrustDomain, n.cfg.Gossip.Advertise = td, "10.0.0.1:8403"

		if n.callers, err = credentials.New(credentials.Config{}, bundles); err != nil {
			t.Fatal(err)
		}

		ln := pipeListener{ends: make(chan net.Conn)}
		cfg := n.gossip(ln, Env{})
		server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
		cfg.Bound(server)

		go func() {
			_ = server.Serve(tls.NewListener(cfg.Listener, trust.NodeServerTLS(source, bundles, anyone, nil)))
		}()

		near, far := net.Pipe()
		ln.ends <- far
		close(ln.ends)

		conn := tls.Client(near, trust.ClientTLS(source, bundles, anyone))
		defer conn.Close()

		began := time.Now()

		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}

		answers := bufio.NewReader(conn)

		response, err := http.ReadResponse(answers, nil)
		if err != nil || response.Close {
			t.Fatalf("the answer closes the connection: %v", err)
		}

		_, _ = io.Copy(io.Discard, response.Body)

		if _, err := answers.ReadByte(); err == nil || time.Since(began).Round(time.Minute) != time.Hour {
			t.Errorf("the connection ended after %s: %v", time.Since(began), err)
		}
	})
}
