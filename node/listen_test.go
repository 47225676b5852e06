package node

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/trust"
)

// A one is a listener of one connection.
type one struct {
	net.Listener
	conns chan net.Conn
}

func (l one) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}

	return nil, net.ErrClosed
}

func (one) Close() error   { return nil }
func (one) Addr() net.Addr { return &net.TCPAddr{} }

// A client that asks and never reads the answer holds a handler, and what it
// answers, for a bounded time.
func TestAnAnswerThatNobodyReadsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		s := listener.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()

			for err := error(nil); err == nil; {
				_, err = w.Write(bytes.Repeat([]byte("x"), 1<<16))
			}

			took <- time.Since(start)
		}), nil, slog.New(slog.DiscardHandler))
		client, server := net.Pipe()
		defer client.Close()
		l := one{conns: make(chan net.Conn, 1)}
		l.conns <- server
		close(l.conns)
		go func() { _ = s.Serve(l) }()
		defer s.Close()

		if _, err := client.Write([]byte("GET / HTTP/1.1\r\nHost: ad.alpha.test\r\n\r\n")); err != nil {
			t.Fatal(err)
		}

		select {
		case d := <-took:
			if d < time.Minute {
				t.Errorf("given up after %v, which a slow client may need", d)
			}
		case <-time.After(10 * time.Minute):
			t.Error("a handler still writes to a client that has not read for ten minutes")
		}
	})
}

// Connections by an authority that a bundle drops are closed, also if that comes while those of
// another one have their time to end.
//
// Requirement: TRUST-002
func TestEachChangeOfBundlesClosesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		bundles := trust.NewBundles()

		open := map[spiffeid.TrustDomain]bool{} // by domain: whether a client's connection is open
		dialled := dialledConns{byConn: map[*dialledConn]func() error{}}

		for _, name := range []string{"first.test", "second.test"} {
			td := spiffeid.RequireTrustDomainFromString(name)

			ca, err := trust.NewCA(td, time.Now())
			must(t, err)

			must(t, bundles.SetX509(td, ca.Bundle().X509Authorities()))

			open[td] = true
			conn, other := net.Pipe()
			defer other.Close()

			dialled.byConn[&dialledConn{conn, &dialled}] = func() error {
				_, err := bundles.GetX509BundleForTrustDomain(td)
				return err
			}
		}

		var loop sync.WaitGroup

		loop.Go(func() {
			dialled.followBundles(ctx, bundles, func() {
				for td := range open {
					open[td] = open[td] && bundles.Has(td)
				}
			})
		})
		synctest.Wait()

		for _, td := range bundles.Domains() {
			bundles.Remove(td)
			<-time.After(time.Second)
		}

		<-time.After(2 * answerGrace)
		cancel()
		loop.Wait()

		for td := range open {
			if open[td] {
				t.Errorf("a client's connection by the authority of %s that was dropped is open", td)
			}
		}

		if n := len(dialled.byConn); n > 0 {
			t.Errorf("%d connections to nodes are open that a dropped authority has certified", n)
		}
	})
}

// A node that is started a moment after its predecessor was killed has its address.
func TestAnAddressThatIsLetGoOfIsListenedAt(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	address := before.Addr().String()
	time.AfterFunc(200*time.Millisecond, func() { _ = before.Close() })

	ln, err := Network{}.orTCP().Listen(address)
	must(t, err)

	_ = ln.Close()
}
