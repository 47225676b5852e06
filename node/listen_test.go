package node

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/node/listener"
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

// A node that is started a moment after its predecessor was killed has its address.
func TestAnAddressThatIsLetGoOfIsListenedAt(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := before.Addr().String()
	time.AfterFunc(200*time.Millisecond, func() { _ = before.Close() })

	ln, err := Network{}.orTCP().Listen(address)
	if err != nil {
		t.Fatal(err)
	}

	_ = ln.Close()
}
