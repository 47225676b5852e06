package node

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// A connection ends with its client certificate, whether there is a request or not, and
// one without a certificate goes on.
//
// Requirement: TRUST-002
func TestConnectionsEndWithTheirCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		alpha := spiffeid.RequireTrustDomainFromString("alpha.test")
		ca, err := trust.NewCA(alpha, time.Now())
		must(err)
		issue := func(path string, life time.Duration) *trust.Source {
			svid, err := ca.Issue(path, life, time.Now())
			must(err)
			return trust.NewSource(svid)
		}
		bundles := trust.NewBundles()
		must(bundles.SetX509(alpha, ca.Bundle().X509Authorities()))
		s := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
			trust.ServerTLS(issue("/roster/node/1", time.Hour), bundles, nil), slog.New(slog.DiscardHandler))
		s.IdleTimeout = time.Hour
		callers, err := trust.NewCallers(trust.CallersConfig{}, bundles)
		must(err)
		endWithCertificates(s, callers.Holds)
		conns := make(chan net.Conn)
		ln := &handed{conns}
		go func() { _ = s.ServeTLS(ln, "", "") }()
		defer func() { must(s.Close()); synctest.Wait() }()

		replace := func() {}
		// connect returns a connection over which one request was answered, how long it
		// stays open, and whether the answer said that it ends.
		connect := func(shown *trust.Source) (told bool, open time.Duration) {
			ours, theirs := net.Pipe()
			conns <- theirs
			c := tls.Client(ours, trust.ClientTLS(shown, bundles, func(spiffeid.ID) error { return nil }, "http/1.1"))
			defer ours.Close()
			must(c.Handshake())
			synctest.Wait() // for the server's end of it
			replace()
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: alpha.test\r\n\r\n")
			must(err)
			in := bufio.NewReader(c)
			answer, err := http.ReadResponse(in, nil)
			must(err)
			began := time.Now()
			must(c.SetReadDeadline(began.Add(30 * time.Minute)))
			_, _ = in.ReadByte()
			return answer.Close, time.Since(began).Round(time.Second)
		}
		if told, open := connect(issue("/agent/ada", 10*time.Minute)); told || open != 10*time.Minute+lastWord {
			t.Errorf("a certificate of 10 minutes: told %v, open for %v", told, open)
		}
		if told, open := connect(issue("/agent/ada", giveUp/2)); !told || open != 0 {
			t.Errorf("a certificate that ends soon: told %v, open for %v", told, open)
		}
		if told, open := connect(nil); told || open != 30*time.Minute {
			t.Errorf("no certificate: told %v, open for %v", told, open)
		}
		other, err := trust.NewCA(alpha, time.Now())
		must(err)
		retired := issue("/agent/ada", time.Hour)
		replace = func() { must(bundles.SetX509(alpha, other.Bundle().X509Authorities())) }
		if told, open := connect(retired); !told || open != 0 {
			t.Errorf("a certificate whose CA is taken out: told %v, open for %v", told, open)
		}
	})
}

// handed is a listener of connections that a test makes.
type handed struct{ conns chan net.Conn }

func (h *handed) Accept() (net.Conn, error) {
	c, ok := <-h.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (h *handed) Close() error   { close(h.conns); return nil }
func (h *handed) Addr() net.Addr { return &net.TCPAddr{} }
