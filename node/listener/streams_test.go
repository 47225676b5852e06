package listener

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/net/http2"

	"github.com/roster-mesh/roster/trust"
)

// A stranger's connection of HTTP/2 has few requests at once, and ends with the first that is aborted.
// Neither holds for a client with a certificate.
//
// Requirement: SEC-001
func TestStreamsOfStrangersAreBounded(t *testing.T) {
	ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString("alpha.test"), time.Now())
	must(t, err)

	s := NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }),
		&tls.Config{Certificates: []tls.Certificate{issued(t, ca, "/roster/node/1", time.Hour)},
			ClientAuth: tls.RequestClientCert},
		slog.New(slog.DiscardHandler))
	ExpireWithCertificates(s, func(*tls.ConnectionState, time.Time) bool { return true })
	CloseAborted(s)

	must(t, BoundStreams(s))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	limited := Limit{Max: 64, OwnDomain: "alpha.test", Operator: func(string) bool { return false },
		Rejected: func() {}}.Listen(ln)
	served := make(chan struct{})

	go func() {
		defer close(served)
		_ = s.ServeTLS(limited, "", "")
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})

	for _, known := range []bool{false, true} {
		config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
		if known {
			config.Certificates = []tls.Certificate{issued(t, ca, "/agent/ada", time.Hour)}
		}

		streams, ended := abortedCall(t, ln.Addr().String(), config)
		if bounded := streams == strangersStreams; bounded == known {
			t.Errorf("a client with a certificate %v may have %d streams", known, streams)
		}

		if ended == known {
			t.Errorf("after an aborted call, the connection of a client with a certificate %v: ended %v", known, ended)
		}
	}
}

// abortedCall connects, makes a call that is aborted, and returns how many streams the server allows and
// whether it has ended the connection.
func abortedCall(t *testing.T, address string, config *tls.Config) (streams uint32, ended bool) {
	t.Helper()

	conn, err := tls.Dial("tcp", address, config)
	must(t, err)
	defer conn.Close()

	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))

	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}

	frames := http2.NewFramer(conn, conn)
	must(t, frames.WriteSettings())

	block := []byte{0x82, 0x84, 0x87, 0x01, 0x01, 'x'} // GET, /, https, and an authority (RFC 7541, appendix A)
	if err := frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block, EndStream: true, EndHeaders: true,
	}); err != nil {
		t.Fatal(err)
	}

	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return streams, true
		}

		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := frame.Value(http2.SettingMaxConcurrentStreams); ok {
				streams = n
			}
		case *http2.RSTStreamFrame:
			if err := frames.WritePing(false, [8]byte{}); err != nil {
				return streams, true
			}
		case *http2.PingFrame:
			return streams, false
		}
	}
}

// A stranger's connection of HTTP/2 has the bounds of the others, and is followed as they are.
//
// Requirement: SEC-001
func TestStrangersHaveTheBoundsOfAll(t *testing.T) {
	var (
		served   *http.Server
		followed bool
	)

	s := NewServer(http.NotFoundHandler(), &tls.Config{Certificates: []tls.Certificate{{}}},
		slog.New(slog.DiscardHandler))
	s.ConnState = func(net.Conn, http.ConnState) { followed = true }
	s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(by *http.Server, _ *tls.Conn, _ http.Handler) { served = by },
	}
	must(t, BoundStreams(s))

	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()

	s.TLSNextProto["h2"](s, tls.Server(near, s.TLSConfig), nil)

	if served == s || served.WriteTimeout != s.WriteTimeout || served.ReadHeaderTimeout != s.ReadHeaderTimeout ||
		served.IdleTimeout != s.IdleTimeout || served.MaxHeaderBytes != s.MaxHeaderBytes {
		t.Errorf("strangers are served by %+v", served)
	}

	if served.ConnState == nil {
		t.Fatal("strangers' connections are not followed")
	}

	if served.ConnState(near, http.StateIdle); !followed {
		t.Error("strangers' connections are followed by another function")
	}
}

// A server that can't speak HTTP/2 by its settings doesn't start, and one that isn't to speak it has no
// strangers to bound.
func TestStreamsOfAServerWithoutHTTP2(t *testing.T) {
	s := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{{}},
		CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}}}
	if err := BoundStreams(s); err == nil {
		t.Error("a server without the cipher suites of HTTP/2 is accepted")
	}

	t.Setenv("GODEBUG", "http2server=0")

	s = NewServer(http.NotFoundHandler(), &tls.Config{Certificates: []tls.Certificate{{}}},
		slog.New(slog.DiscardHandler))
	if err := BoundStreams(s); err != nil || s.TLSNextProto["h2"] != nil {
		t.Errorf("a server that isn't to speak HTTP/2 does, or: %v", err)
	}
}
