package attacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// Bars of answers that no client reads.
const (
	unreadMemory  = 64 << 20 // bytes of the resident set
	unreadStreams = 100      // of each connection
)

// An unreader is a client of HTTP/2 that opens no window, and reads nothing.
type unreader struct {
	conn   *tls.Conn
	frames *http2.Framer
}

// newUnreader connects to a node from a loopback address.
func newUnreader(ctx context.Context, node dev.Node, from string) (*unreader, error) {
	target, err := url.Parse(node.API)
	if err != nil {
		return nil, err
	}

	dialer := &tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: commandTimeout},
		Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
	}

	conn, err := dialer.DialContext(ctx, "tcp", target.Host)
	if err != nil {
		return nil, err
	}

	made := &unreader{conn: conn.(*tls.Conn), frames: http2.NewFramer(conn, conn)}
	_, err = io.WriteString(conn, http2.ClientPreface)

	if err == nil {
		err = made.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	}

	return made, err
}

// request sends as many small requests, each on a stream of its own.
func (u *unreader) request(streams int, host string) error {
	var block bytes.Buffer

	encoder := hpack.NewEncoder(&block)
	for i := range streams {
		block.Reset()

		for _, field := range [][2]string{
			{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", "/.well-known/ad"},
		} {
			if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				return err
			}
		}

		if err := u.frames.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
		}); err != nil {
			return err
		}
	}

	return nil
}

// unreaders connects as many of them from each of some addresses.
func (m *runningMesh) unreaders(node dev.Node, addresses, each int) (made []*unreader) {
	m.t.Helper()

	var (
		all sync.WaitGroup
		mu  sync.Mutex
	)

	for i := range addresses {
		all.Go(func() {
			for range each {
				u, err := newUnreader(m.t.Context(), node, fmt.Sprintf("127.0.1.%d", i+1))
				if err != nil {
					continue // the node has closed it: that is a bound
				}

				mu.Lock()
				made = append(made, u)
				mu.Unlock()
			}
		})
	}

	all.Wait()
	m.t.Cleanup(func() {
		for _, u := range made {
			_ = u.conn.Close()
		}
	})

	return made
}

// A client that asks for answers and opens no window for them holds a place for each, and loses it
// within seconds. So a thousand of them, with a hundred requests each, take little memory, and another
// caller is served meanwhile (finding 25).
//
// Requirement: SEC-001
func TestUnreadAnswersHoldTheirPlaces(t *testing.T) {
	t.Setenv("GOGC", "20") // to measure what is held, not garbage

	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]
	before := m.memoryOf(node)

	target, err := url.Parse(node.API)
	must(t, err)

	clients := m.unreaders(node, 3, 333)

	for _, u := range clients {
		_ = u.request(unreadStreams, target.Host) // the node may have closed it
	}

	var resident int64

	p50, p99 := m.operatorTakes(node, 4*time.Second, func() {
		resident = max(resident, m.residentOf(node)-before.resident)
	})
	t.Logf("%d connections: %.1f MiB resident more; the operator waits %s, %s at p99", len(clients),
		float64(resident)/(1<<20), p50, p99)

	if most := mostMemory(unreadMemory); resident > most {
		t.Errorf("%d bytes are resident more, at most %d are allowed", resident, most)
	}

	if most := launch.Within(operatorWaits); p50 > most {
		t.Errorf("the operator waits %s, want at most %s", p50, most)
	}

	// Places come back without an end of the connections.
	launch.Eventually(t, "answers that are not read end", func() error {
		client := m.stranger("127.0.1.1")
		defer client.CloseIdleConnections()

		status, _, err := ask(t.Context(), client, "GET", node.API+"/.well-known/ad", nil)
		if err == nil && status != 200 {
			err = fmt.Errorf("answered with %d", status)
		}

		return err
	})
}
