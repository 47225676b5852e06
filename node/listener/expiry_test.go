package listener

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// issued returns a certificate that ca issues, with its key.
func issued(t testing.TB, ca *trust.CA, path string, life time.Duration) tls.Certificate {
	t.Helper()

	svid, err := ca.Issue(path, life, time.Now())
	must(t, err)

	c := tls.Certificate{PrivateKey: svid.PrivateKey}
	for _, cert := range svid.Certificates {
		c.Certificate = append(c.Certificate, cert.Raw)
	}

	return c
}

// A connection ends with its client's certificate, whichever protocol is spoken and
// though nobody asks anything; a little before that, answers say so.
//
// Requirement: AD-070
func TestAConnectionEndsWithItsCertificate(t *testing.T) {
	ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString("alpha.test"), time.Now())
	must(t, err)

	certificate := func(path string, life time.Duration) tls.Certificate { return issued(t, ca, path, life) }
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}),
		&tls.Config{Certificates: []tls.Certificate{certificate("/roster/node/1", time.Hour)},
			ClientAuth: tls.RequestClientCert},
		slog.New(slog.DiscardHandler))
	holds := func(*tls.ConnectionState, time.Time) bool { return true }
	ExpireWithCertificates(s, holds)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.ServeTLS(ln, "", "")
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})

	for _, protocol := range []string{"http/1.1", "h2"} {
		short := certificate("/agent/ada", 3*time.Second)
		leaf, _ := x509.ParseCertificate(short.Certificate[0])

		conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{
			Certificates: []tls.Certificate{short}, InsecureSkipVerify: true, NextProtos: []string{protocol},
		})
		must(t, err)
		defer conn.Close()

		if protocol == "h2" {
			_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		} else {
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: ad.alpha.test\r\n\r\n")
		}

		must(t, err)

		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))

		said, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%s: the connection did not end: %v", protocol, err)
		}

		if early := time.Until(leaf.NotAfter); protocol == "h2" && early > 0 {
			t.Errorf("it ended %s before its certificate", early)
		}

		if protocol == "http/1.1" && !strings.Contains(string(said), "Connection: close\r\n") {
			t.Errorf("shortly before its certificate's end the client is told %q", said)
		}
	}
}

// A connection whose certificate is no longer valid once its handshake is done, because a bundle has changed
// meanwhile, ends although its client asks nothing: closeInvalid did not know it yet.
//
// Requirement: AD-070
func TestABundleThatChangesDuringAHandshakeEndsTheConnection(t *testing.T) {
	ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString("alpha.test"), time.Now())
	must(t, err)

	s := NewServer(http.NotFoundHandler(),
		&tls.Config{Certificates: []tls.Certificate{issued(t, ca, "/roster/node/1", time.Hour)},
			ClientAuth: tls.RequestClientCert}, slog.New(slog.DiscardHandler))
	ExpireWithCertificates(s, func(*tls.ConnectionState, time.Time) bool { return false })

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.ServeTLS(ln, "", "")
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})

	conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{
		Certificates:       []tls.Certificate{issued(t, ca, "/agent/ada", time.Hour)},
		InsecureSkipVerify: true, NextProtos: []string{"h2"},
	})
	must(t, err)
	defer conn.Close()

	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	// The server may have closed the connection already, which the read below sees too.
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")

	var timeout net.Error
	if _, err := io.ReadAll(conn); errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the connection did not end: %v", err)
	}
}

// A closed connection is not kept in memory until its certificate ends.
func TestAClosedConnectionIsForgotten(t *testing.T) {
	ca := newCA(t, spiffeid.RequireTrustDomainFromString("alpha.test"))
	timers := &expiryTimers{valid: func(*tls.ConnectionState, time.Time) bool { return true },
		byConn: map[*tls.Conn]*time.Timer{}}

	closed := func() weak.Pointer[tls.Conn] {
		near, far := net.Pipe()
		client := tls.Client(far, &tls.Config{Certificates: []tls.Certificate{issued(t, ca, "/agent/ada", time.Hour)},
			InsecureSkipVerify: true})
		server := tls.Server(near, &tls.Config{ClientAuth: tls.RequireAnyClientCert,
			Certificates: []tls.Certificate{issued(t, ca, "/roster/node/1", time.Hour)}})

		shaken := make(chan error, 1)
		go func() { shaken <- errors.Join(client.Handshake(), far.Close()) }()

		must(t, server.Handshake())
		timers.stateChanged(server, http.StateActive)

		if len(timers.byConn) != 1 {
			t.Fatal("the connection has no timer")
		}

		must(t, errors.Join(near.Close(), <-shaken))
		timers.stateChanged(server, http.StateClosed)

		return weak.Make(server)
	}()

	again := time.Tick(time.Millisecond)
	for range 1000 {
		runtime.GC()

		if closed.Value() == nil && len(timers.byConn) == 0 {
			return
		}

		<-again
	}

	t.Error("a closed connection is kept")
}
