package mesh

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// selfSigned returns a certificate for 10.0.0.2 and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(10, 0, 0, 2)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true,
	}

	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(leaf)

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// serve runs an HTTPS server at 10.0.0.2:443 and returns a client at 10.0.0.1.
func serve(t *testing.T, n *Network, h http.Handler, protos ...string) *http.Client {
	t.Helper()
	cert, pool := selfSigned(t)

	l, err := n.Listen("10.0.0.2:443")
	if err != nil {
		t.Fatal(err)
	}

	srv := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protos},
		ErrorLog: log.New(io.Discard, "", 0)}

	var done sync.WaitGroup
	done.Go(func() { srv.ServeTLS(l, "", "") })
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return n.Dial(ctx, "10.0.0.1", addr)
		},
		TLSClientConfig:   &tls.Config{RootCAs: pool, NextProtos: protos},
		ForceAttemptHTTP2: protos[0] == "h2",
		HTTP2:             &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		done.Wait()
	})

	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// An hour's cut under real TLS and HTTP: requests time out, a heal brings them
// back, and all of it takes no time.
func TestHTTPAcrossACut(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := New(3)
				n.SetAll(Link{Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.02})
				body := make([]byte, 3*window) // does not fit into a connection
				client := serve(t, n, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Write(body)
				}), proto)

				get := func() error {
					resp, err := client.Get("https://10.0.0.2:443/")
					if err != nil {
						return err
					}
					defer resp.Body.Close()

					b, err := io.ReadAll(resp.Body)
					if err == nil && (len(b) != len(body) || resp.TLS == nil || resp.TLS.NegotiatedProtocol != proto) {
						t.Errorf("%d bytes by %v", len(b), resp.Proto)
					}

					return err
				}
				if err := get(); err != nil {
					t.Fatal(err)
				}

				n.Cut("10.0.0.1", "10.0.0.2")

				start := time.Now()
				for time.Since(start) < time.Hour {
					if err := get(); err == nil {
						t.Fatal("an answer across a cut")
					}

					time.Sleep(time.Minute)
				}

				n.Heal("10.0.0.1", "10.0.0.2")

				if err := get(); err != nil {
					t.Errorf("after the heal: %v", err)
				}
			})
		})
	}
}

// Many requests at once, both protocols, with losses: nothing mixes.
func TestHTTPConcurrently(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := New(4)
				n.SetAll(Link{Delay: time.Millisecond, Loss: 0.05})
				client := serve(t, n, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, r.URL.Path)
				}), proto)

				var all sync.WaitGroup
				for i := range 50 {
					path := "/" + string(rune('A'+i))
					all.Go(func() {
						resp, err := client.Get("https://10.0.0.2:443" + path)
						if err != nil {
							t.Error(err)
							return
						}
						defer resp.Body.Close()

						if b, err := io.ReadAll(resp.Body); err != nil || string(b) == "" ||
							resp.Request.URL.Path != string(b) {
							t.Errorf("%s: %q, %v", path, b, err)
						}
					})
				}

				all.Wait()
			})
		})
	}
}
