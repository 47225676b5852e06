package scenarios

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// Clients that send a byte a second, of a handshake, a header or a body, whether anybody
// wants it or not, are ended when that should have been there: none is let hold a
// connection for longer, and others are served all the while.
//
// Requirement: OPS-020
func TestSlowClientsAreEnded(t *testing.T) {
	const header, body = 10 * time.Second, 30 * time.Second
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Seed: seed})
		n := m.Domain("alpha.test").Nodes[0]
		post := func(path string) string {
			return "POST " + path + " HTTP/1.1\r\nHost: ad.alpha.test\r\nContent-Type: application/json\r\n" +
				"Content-Length: 60000\r\n\r\n"
		}

		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); all.Wait() }()

		var mu sync.Mutex
		ended := map[string][]time.Duration{}
		slow := []struct {
			what, as, begins string
			plain            bool
			bound            time.Duration
		}{
			{"a handshake", "", "\x16\x03\x01\x02\x00", true, header},
			{"a header", "", "GET /ad/l HTTP/1.1\r\nHost: ad.alpha.test\r\nX-Slow: ", false, header},
			{"a header of somebody", "/agent/ada", "GET /ad/l HTTP/1.1\r\nHost: ad.alpha.test\r\nX-Slow: ", false,
				header},
			{"a body", "/agent/ada", post("/ad/r?agent=slow"), false, body},
			{"a query", "", post("/discovery/query"), false, body},
			{"a body that was refused", "", post("/ad/r?agent=slow"), false, body},
			{"a body to nowhere", "", post("/nowhere"), false, body},
			{"a body that is never read", "", strings.Replace(post("/ad/l"), "POST", "GET", 1), false, body},
			{"a body of a stranger to nodes", "", post("/federation/v1/records"), false, body},
			{"a body of a tool", "", post("/mcp"), false, body},
		}

		const each = 5
		for _, s := range slow {
			for range each {
				all.Go(func() {
					took := dribble(ctx, m, n, s.as, s.begins, s.plain)
					mu.Lock()
					defer mu.Unlock()
					ended[s.what] = append(ended[s.what], took)
				})
			}
		}

		client := n.HTTP("/client/reader")
		for range 45 {
			req, err := http.NewRequestWithContext(ctx, "GET", n.URL()+"/ad/l", nil)
			must(t, err)

			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("others are not served: %v", err)
			}

			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("others are answered %s", resp.Status)
			}

			time.Sleep(time.Second)
		}

		mu.Lock()
		defer mu.Unlock()

		for _, s := range slow {
			if len(ended[s.what]) != each {
				t.Errorf("%s: %d of %d were ended", s.what, len(ended[s.what]), each)
			}

			for _, took := range ended[s.what] {
				if took > s.bound+2*time.Second {
					t.Errorf("%s: held a connection for %v", s.what, took)
				}
			}
		}
	})
}

// dribble sends the beginning of a request and then a byte a second until the node ends
// the connection, and returns the time until then.
func dribble(ctx context.Context, m *mesh.Mesh, n *mesh.Node, as, begins string, plain bool) time.Duration {
	tr := n.HTTP(as).Transport.(*http.Transport)
	began := time.Now()

	conn, err := tr.DialContext(ctx, "tcp", strings.TrimPrefix(n.URL(), "https://"))
	if err != nil {
		m.T.Errorf("no connection: %v", err)
		return 0
	}

	if !plain {
		config := tr.TLSClientConfig.Clone()
		config.NextProtos = []string{"http/1.1"}

		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			m.T.Errorf("no handshake: %v", err)
		}

		conn = secure
	}

	var reading sync.WaitGroup
	gone := make(chan struct{})
	reading.Go(func() {
		defer close(gone)

		sink := make([]byte, 4096)
		for {
			if _, err := conn.Read(sink); err != nil {
				return
			}
		}
	})
	defer reading.Wait()
	defer conn.Close()

	_, err = fmt.Fprint(conn, begins)
	for err == nil {
		select {
		case <-gone:
			err = net.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(time.Second):
			_, err = conn.Write([]byte{'x'})
		}
	}

	return time.Since(began)
}

// A body that arrives slowly, and at the rate that is asked of one, is waited for.
//
// Requirement: OPS-020
func TestASteadySlowBodyIsRead(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Seed: seed})
		n := m.Domain("alpha.test").Nodes[0]
		body := []byte(`{"base":"https://10.9.9.9/one","notes":"` + strings.Repeat("steady ", 8500) + `"}`)

		req, err := http.NewRequestWithContext(t.Context(), "POST", n.URL()+"/ad/r?agent=steady", &steady{rest: body})
		must(t, err)

		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
		began := time.Now()

		resp, err := n.HTTP("/agent/ada").Do(req)
		must(t, err)

		_ = resp.Body.Close()
		if took := time.Since(began); resp.StatusCode != http.StatusCreated || took < 35*time.Second {
			t.Errorf("after %v: %s", took, resp.Status)
		}
	})
}

// A steady body comes at 1.5 KiB a second.
type steady struct{ rest []byte }

func (s *steady) Read(b []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}

	time.Sleep(time.Second)
	n := copy(b, s.rest[:min(1536, len(s.rest))])
	s.rest = s.rest[n:]

	return n, nil
}
