package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
)

// The load of the rolling restart: 500 requests a second, every other one a write.
const (
	rollingClients = 40
	rollingPeriod  = 80 * time.Millisecond // between two requests of one client
	longestHold    = 3 * time.Second       // of a write
)

// fixedPath is the read of the load; every answer has the registration.
const fixedPath = "/ad/l?agent=fixed"

// All three nodes of a domain are restarted one after the other, as an operator does: SIGTERM, the
// drain, the start, and the next one once the node is ready. Meanwhile clients read and write 500
// times a second, half of them by HTTP/1.1 and half by HTTP/2. They hold the addresses of all
// nodes, leave a node on Connection: close or GOAWAY, and repeat nothing that was sent. Nothing
// fails, and everything acknowledged is there.
// notes/users.md: "rolling restart: 18 of 76 CLI calls refused".
//
// Requirement: OPS-011, OPS-044
func TestARollingRestartLosesNoRequest(t *testing.T) {
	p := startProcesses(t, "--domains", "1", "--nodes", "3", "--sample", "0")

	for _, n := range p.Domains[0].Nodes {
		p.reload(n, "drain: 0s", "drain: 5s")
	}

	p.register(0, 0, "fixed")
	p.eventually("every node has the fixed registration", func() error {
		return errors.Join(p.finds(0, 0, "fixed"), p.finds(0, 1, "fixed"), p.finds(0, 2, "fixed"))
	})

	load := p.load()
	load.await(200)

	for range long(3, 1) {
		for _, n := range p.Domains[0].Nodes {
			idle := []*rollingClient{p.rollingClient(0, n), p.rollingClient(1, n)}
			for _, client := range idle {
				client.mustRead(p)
			}

			p.signal(n, syscall.SIGTERM)
			p.eventually(n.ID+" drains", func() error {
				if ready(n) == nil {
					return errors.New("it is ready")
				}

				return nil
			})

			// A connection that was idle when the drain began serves one more request.
			for _, client := range idle {
				client.mustRead(p)
				p.eventually("the client is told to leave", client.told)
				client.close()
			}

			p.ended(n)
			p.restart(n)
			load.await(100)
		}
	}

	load.stop()
	load.report(t)

	for n := range p.Domains[0].Nodes {
		at := p.client(0, n, "agent/ada")
		p.eventually("everything acknowledged is visible", func() error {
			return shows(t, at, &load.acknowledged)
		})
	}
}

// reload replaces a line of a running node's configuration and has the node read it again.
func (p *processes) reload(n dev.Node, old, line string) {
	p.t.Helper()

	text, err := os.ReadFile(n.Config)
	must(p.t, err)

	if !bytes.Contains(text, []byte(old+"\n")) {
		p.t.Fatalf("the configuration has no line %q:\n%s", old, text)
	}

	text = bytes.Replace(text, []byte(old+"\n"), []byte(line+"\n"), 1)
	must(p.t, errors.Join(os.WriteFile(n.Config, text, 0o600), syscall.Kill(n.PID, syscall.SIGHUP)))

	p.eventually("the configuration is reloaded", func() error {
		if log := p.logOf(n); !strings.Contains(log, "configuration reloaded") {
			return errors.New(log)
		}

		return nil
	})
}

// A rollingLoad is the load on a domain while its nodes are restarted.
type rollingLoad struct {
	acknowledged sync.Map // name -> true
	count        atomic.Int64
	cancel       context.CancelFunc
	running      sync.WaitGroup
	gate         sync.RWMutex // held for reading by each request
	began        time.Time
	p            *processes

	mu       sync.Mutex // guards the fields below
	failures []string
	failed   map[string]int             // of reads and writes
	took     map[string][]time.Duration // of reads and writes
	left     map[string]int             // by the reason
}

// load begins the load.
func (p *processes) load() *rollingLoad {
	ctx, cancel := context.WithCancel(p.t.Context())
	load := &rollingLoad{
		p: p, cancel: cancel, began: time.Now(), failed: map[string]int{}, took: map[string][]time.Duration{},
		left: map[string]int{},
	}

	for i := range rollingClients {
		client := p.rollingClient(i, p.Domains[0].Nodes...)
		client.current = i % len(client.addresses)
		client.leaving = load.leaves
		load.running.Go(func() {
			defer client.close()

			load.run(ctx, client, i)
		})
	}

	p.t.Cleanup(load.stop)

	return load
}

// run sends the requests of one client at its pace: requests that were late are made up for.
func (l *rollingLoad) run(ctx context.Context, client *rollingClient, number int) {
	next := time.Now().Add(rollingPeriod * time.Duration(number) / rollingClients)

	for i := 0; ; i++ {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return
		}

		next = next.Add(rollingPeriod)
		name := fmt.Sprintf("kept-%d-%d", number, i)
		kind := []string{"read", "write"}[i%2]

		l.gate.RLock()

		began := time.Now()
		err := l.call(client, kind, name)

		l.gate.RUnlock()
		l.count.Add(1)
		l.note(kind, time.Since(began), err)

		if kind == "write" && err == nil {
			l.acknowledged.Store(name, true)
		}
	}
}

// call makes one request. A call that was begun is finished when the load ends.
func (l *rollingLoad) call(client *rollingClient, kind, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	if kind == "write" {
		status, body, err := client.do(ctx, http.MethodPost, "/ad/r?lt=3600&agent="+name, compatDocument)
		if err == nil && status != http.StatusCreated {
			err = fmt.Errorf("%d %s", status, body)
		}

		return err
	}

	status, body, err := client.do(ctx, http.MethodGet, fixedPath, "")
	if err == nil && (status != http.StatusOK || !strings.Contains(body, `"agent":"fixed"`)) {
		err = fmt.Errorf("%d %s", status, body)
	}

	return err
}

func (l *rollingLoad) note(kind string, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.took[kind] = append(l.took[kind], took)

	if err != nil {
		l.failed[kind]++

		if len(l.failures) < 10 {
			l.failures = append(l.failures, fmt.Sprintf("%s after %s (%s): %v", kind, time.Since(l.began), took, err))
		}
	}
}

func (l *rollingLoad) leaves(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.left[reason]++
}

// await returns once so many more requests were answered.
func (l *rollingLoad) await(more int64) {
	l.p.t.Helper()

	until := l.count.Load() + more
	l.p.eventually("requests are answered", func() error {
		if n := l.count.Load(); n < until {
			return fmt.Errorf("%d answered, want %d", n, until)
		}

		return nil
	})
}

// pause waits for the requests that are under way, and begins no others until resume is called.
func (l *rollingLoad) pause() (resume func()) {
	l.gate.Lock()
	return l.gate.Unlock
}

// takeFailures returns how many requests have failed since it was called last, with examples.
func (l *rollingLoad) takeFailures() (many int, examples []string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	many, examples = l.failed["read"]+l.failed["write"], l.failures
	l.failed, l.failures = map[string]int{}, nil

	return many, examples
}

// stop ends the load. It is safe to call twice.
func (l *rollingLoad) stop() {
	l.cancel()
	l.running.Wait()
}

// report fails the test for each failed request, and logs the figures.
func (l *rollingLoad) report(t *testing.T) {
	t.Helper()

	elapsed := time.Since(l.began)
	t.Logf("%d requests in %s, %.0f a second; clients left nodes: %v", l.count.Load(),
		elapsed.Round(time.Millisecond), float64(l.count.Load())/elapsed.Seconds(), l.left)

	for _, kind := range []string{"read", "write"} {
		took := slices.Sorted(slices.Values(l.took[kind]))
		longest := took[len(took)-1]

		t.Logf("%d %ss, %d failed; p50 %s, p99 %s, longest %s", len(took), kind, l.failed[kind],
			took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond),
			longest.Round(time.Millisecond))

		if l.failed[kind] > 0 {
			t.Errorf("%d of %d %ss failed", l.failed[kind], len(took), kind)
		}

		if long(1, 0) == 1 && longest > longestHold {
			t.Errorf("a %s took %s", kind, longest)
		}
	}

	for _, failure := range l.failures {
		t.Error(failure)
	}
}

// A rollingClient holds the addresses of a domain's nodes and a connection to one of them. It
// goes to the next node once the connection is closed or about to be, and repeats a request only
// if it was certainly not processed: it wasn't sent, or the node's GOAWAY excludes it.
type rollingClient struct {
	addresses []string
	current   int
	transport *http.Transport
	conn      *http.ClientConn
	leaving   func(reason string)
}

// rollingClient returns a client of some nodes: the even ones speak HTTP/1.1, the odd ones HTTP/2.
func (p *processes) rollingClient(number int, nodes ...dev.Node) *rollingClient {
	p.t.Helper()

	transport := p.http(0, "agent/ada").Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(number%2 == 0)
	transport.Protocols.SetHTTP2(number%2 == 1)

	client := &rollingClient{transport: transport, leaving: func(string) {}}
	for _, n := range nodes {
		client.addresses = append(client.addresses, n.API)
	}

	return client
}

// mustRead reads the fixed registration over the connection that the client has, or its first.
func (c *rollingClient) mustRead(p *processes) {
	p.t.Helper()

	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()

	if c.conn != nil && c.conn.Available() == 0 {
		p.t.Errorf("an idle connection to %s was closed: %v", c.addresses[0], c.conn.Err())
	}

	status, body, err := c.do(ctx, http.MethodGet, fixedPath, "")
	if err != nil || status != http.StatusOK {
		p.t.Errorf("over a connection to %s: %d %s %v", c.addresses[0], status, body, err)
	}
}

// told returns nil once the node has asked the client to leave.
func (c *rollingClient) told() error {
	if c.conn == nil || c.conn.Available() == 0 {
		return nil
	}

	return errors.New("the connection takes more requests")
}

// do sends a request and returns the answer.
func (c *rollingClient) do(ctx context.Context, method, target, body string) (status int, answer string, err error) {
	for {
		if err := c.connect(ctx); err != nil {
			return 0, "", err
		}

		var sent atomic.Bool
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteHeaders: func() { sent.Store(true) },
		})

		req, err := http.NewRequestWithContext(traced, method, c.addresses[c.current]+target, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}

		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}

		resp, err := c.conn.RoundTrip(req)
		if err != nil {
			excluded := strings.Contains(err.Error(), "graceful shutdown GOAWAY")
			if sent.Load() && !excluded {
				c.leave("broken")
				return 0, "", err
			}

			c.leave("not sent")

			continue
		}

		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()

		if resp.Close {
			c.leave("Connection: close")
		}

		return resp.StatusCode, string(text), err
	}
}

// connect makes a connection to the first node that accepts one, unless there is one.
func (c *rollingClient) connect(ctx context.Context) error {
	if c.conn != nil && c.conn.Available() == 0 {
		c.leave("GOAWAY or closed")
	}

	for tried := 0; c.conn == nil; tried++ {
		if tried >= len(c.addresses) {
			return errors.New("no node accepts a connection")
		}

		at, err := url.Parse(c.addresses[c.current])
		if err != nil {
			return err
		}

		if c.conn, err = c.transport.NewClientConn(ctx, "https", at.Host); err != nil {
			c.conn = nil
			c.leave("no connection")
		}
	}

	return nil
}

// leave has the next request go to the next node.
func (c *rollingClient) leave(reason string) {
	c.close()
	c.current = (c.current + 1) % len(c.addresses)
	c.leaving(reason)
}

func (c *rollingClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
