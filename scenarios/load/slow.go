package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Limits on a slow client, and the allowance for a loaded machine.
const (
	slowHeader = 10 * time.Second
	slowBody   = 30 * time.Second
	slowSlack  = 5 * time.Second
)

// slow measures lookups while thousands of clients hold connections on which a
// handshake, a header or a body arrives a byte at a time (OPS-020), the time until each
// is closed, and their cost in memory.
func slow(ctx context.Context, bench *bench) (err error) {
	domain, err := bench.layOut(ctx, filepath.Join(bench.dir, "slow"), 1)
	if err != nil {
		return err
	}
	defer domain.close()

	if err := domain.start(ctx); err != nil {
		return err
	}

	const held = 1000
	if _, err := domain.fill(ctx, "s", 0, held, 86400); err != nil {
		return err
	}

	lookup := func(ctx context.Context, w, i int) error {
		return domain.get(ctx, 0, "/ad/l?agent="+name("s", (w*7919+i)%held))
	}

	count := 1000
	if bench.full {
		count = 10_000
	}

	if _, err := measureChecked(ctx, bench, lookup); err != nil { // warm
		return err
	}

	quiet, err := measureChecked(ctx, bench, lookup)
	if err != nil {
		return err
	}

	before, _, err := domain.nodes[0].resident()
	if err != nil {
		return err
	}

	clients := domain.openSlowClients(ctx, count)
	clients.open.Wait()

	crowded, err := measureChecked(ctx, bench, lookup)
	if err != nil {
		clients.cut()
		return err
	}

	most, _, err := domain.nodes[0].resident()
	there := clients.there()
	clients.all.Wait()
	at, failed := clients.most, clients.failed

	if err != nil {
		return err
	}

	a, q := crowded.at(.99), quiet.at(.99)
	bench.report.add(row{Section: "slow", What: "lookup p99 with slow clients", Value: ms(a), Unit: "ms",
		Yardstick: "without", Against: ms(q), Ratio: float64(a) / float64(q), Bar: atMost(2),
		Note: fmt.Sprintf("of %d, %d were there at once, and %d at the end of the turn; %d got no connection", count,
			at, there, failed)})
	bench.report.add(row{Section: "slow", What: "memory of a slow client",
		Value: float64(most-before) / 1024 / float64(max(1, there)), Unit: "KiB"})
	bench.report.add(row{Section: "slow", What: "longest wait for a header",
		Value: clients.longest[0].Seconds(),
		Unit:  "s", Bar: atMost((slowHeader + slowSlack).Seconds())})
	bench.report.add(row{Section: "slow", What: "longest wait for a body",
		Value: clients.longest[1].Seconds(),
		Unit:  "s", Bar: atMost((slowBody + slowSlack).Seconds())})
	bench.report.add(row{Section: "slow", What: "longest wait for a handshake",
		Value: clients.longest[2].Seconds(), Unit: "s", Bar: atMost((slowHeader + slowSlack).Seconds())})

	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func measureChecked(ctx context.Context, b *bench, op operation) (*sample, error) {
	s := measure(ctx, 4, b.turn, 0, op)
	return s, s.check()
}

// slowClients is a set of slow clients: of four, three send the beginning of a handshake, and one
// a header or a body.
type slowClients struct {
	open, all sync.WaitGroup // until each has its connection, and until each was ended
	cut       context.CancelFunc

	mu      sync.Mutex // guards the rest
	now     int
	most    int // at once
	failed  int
	longest [3]time.Duration // of headers, of bodies and of handshakes
}

// maxOpening bounds how many of them open a connection at once, and slowAddresses is from
// how many addresses they come: a node lets one have a share alone.
const (
	maxOpening    = 64
	slowAddresses = 8
)

func (d *domain) openSlowClients(ctx context.Context, count int) *slowClients {
	c := &slowClients{}
	ctx, c.cut = context.WithCancel(ctx)
	address := strings.TrimPrefix(d.Nodes[0].API, "https://")
	// these clients accept any certificate
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	opening := make(chan struct{}, maxOpening)
	// Completed handshakes cost so much time that the first clients would be gone before
	// the last are connected. So three of four begin a handshake when the others are
	// through.
	var shaken sync.WaitGroup
	shaken.Add(count / 4)
	c.open.Add(count)

	for i := range count {
		c.all.Go(func() {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%slowAddresses))}}

			dial, kind := dialer.DialContext, 2
			if i < count/4 {
				dial = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext
				kind = i % 2
			} else {
				shaken.Wait()
			}

			opening <- struct{}{}
			conn, err := dial(ctx, "tcp", address)
			<-opening
			c.open.Done()

			if i < count/4 {
				shaken.Done()
			}

			if err != nil {
				c.mu.Lock()
				c.failed++
				c.mu.Unlock()

				return
			}

			c.dribble(ctx, conn, kind)
		})
	}

	return c
}

// dribble sends a byte every few seconds until the node ends the connection.
func (c *slowClients) dribble(ctx context.Context, conn net.Conn, kind int) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	began := time.Now()
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	gone := make(chan struct{})
	go func() { // the answer, where there is one, and the end
		defer close(gone)

		sink := make([]byte, 512)
		for {
			if _, err := conn.Read(sink); err != nil {
				return
			}
		}
	}()
	begins := []string{"GET /ad/l HTTP/1.1\r\nHost: slow\r\nX-Slow: ",
		"POST /discovery/query HTTP/1.1\r\nHost: slow\r\nContent-Type: application/json\r\n" +
			"Content-Length: 60000\r\n\r\n", "\x16\x03\x01\x02\x00"}
	_, err := conn.Write([]byte(begins[kind]))
	pace := time.NewTicker(3 * time.Second)
	defer pace.Stop()

	for err == nil {
		select {
		case <-gone:
			err = net.ErrClosed
		case <-pace.C:
			_, err = conn.Write([]byte{'x'})
		}
	}

	took := time.Since(began)
	_ = conn.Close()
	<-gone
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now--
	if ctx.Err() == nil {
		c.longest[kind] = max(c.longest[kind], took)
	}
}

func (c *slowClients) there() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}
