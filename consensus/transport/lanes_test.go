package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A connection leaves nothing behind when it ends, so that members which come and go take no memory.
func TestALaneEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cluster := &Cluster{ctx: ctx, cancel: cancel, raft: newAcceptor(&net.TCPAddr{})}
		transport := NewRaftTransport(RaftOptions{Cluster: cluster, Log: hclog.NewNullLogger()})
		stop, stopped := make(chan struct{}), make(chan struct{})

		go func() {
			defer close(stopped)
			transport.Run(stop)
		}()

		open := func() int {
			transport.lanes.mu.Lock()
			defer transport.lanes.mu.Unlock()

			return len(transport.lanes.open)
		}

		for range 3 {
			here, there := net.Pipe()
			must(t, cluster.raft.give(ctx, there))
			synctest.Wait()

			if n := open(); n != 1 {
				t.Errorf("a connection has %d lanes", n)
			}

			must(t, here.Close())
			synctest.Wait()

			if n := open(); n != 0 {
				t.Errorf("%d lanes are left of a connection that has ended", n)
			}
		}

		close(stop)
		must(t, transport.Close())
		cancel()
		<-stopped
	})
}

// deadlines keeps the deadlines of a connection.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// Each piece of a snapshot has its time, whatever the sizes of its reads, and what comes behind the snapshot has any.
func TestASnapshotComesAtAPace(t *testing.T) {
	conn := &deadlines{}
	s := &snapshotReader{Reader: bytes.NewReader(make([]byte, 3*snapshotPiece)), lane: &lane{Conn: conn}}

	for b := make([]byte, 1000); ; {
		if _, err := s.Read(b); err != nil {
			break
		}
	}

	if n := len(conn.set); n != 4 || !conn.set[3].IsZero() || conn.set[2].IsZero() {
		t.Errorf("the deadlines are %v", conn.set)
	}
}

// A handshake that fails gives its place back: others would wait for it for ever.
func TestHandshakesGiveTheirPlacesBack(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	cluster := New(Options{Listener: listener, ServerTLS: &tls.Config{}, ClientTLS: &tls.Config{},
		Log: slog.New(slog.DiscardHandler), Known: func() []Member { return nil }})
	cluster.Serve(http.NotFoundHandler(), http.NotFoundHandler())

	for range 3 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		must(t, err)

		_, _ = conn.Write([]byte("no handshake"))
		_, _ = io.Copy(io.Discard, conn) // until the cluster closes it
		must(t, conn.Close())
	}

	must(t, cluster.Close()) // which waits for the handshakes

	if n := len(cluster.handshakes); n != 0 {
		t.Errorf("%d handshakes have a place", n)
	}
}

var must = directorytest.Must
