package scenarios

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// Strangers from a few addresses keep opening connections at the ports between nodes, and
// send nothing. A node that was cut off reaches its domain and its peer all the same.
//
// Requirement: OPS-020
func TestStrangersCloseNoPortToNodes(t *testing.T) {
	story(t)

	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan})
		ctx, lift := context.WithCancel(t.Context())

		var strangers sync.WaitGroup
		defer func() { lift(); strangers.Wait() }()

		lost := m.Domain("alpha.test").Nodes[2]
		for _, port := range lost.Listeners() {
			for i := range 800 { // 8 addresses exhaust the shared part of connLimiter
				strangers.Go(func() { exhaust(ctx, m.Net, fmt.Sprintf("10.99.0.%d", i%8), port) })
			}
		}

		m.Isolate(lost)
		m.Sleep(time.Minute)
		a := m.Register("alpha.test", "meanwhile", 3600)
		m.Heal()
		m.Eventually(30*time.Second, "all have it", func() error { return m.Seen(a) })
		m.Eventually(30*time.Second, "a write at the node that was lost", func() error {
			return m.Seen(m.RegisterAt(lost, "at-the-lost", 3600))
		})
		m.Eventually(time.Minute, "gossip is whole", m.Pooled)
	})
}

// exhaust keeps a silent connection from a host to a port, and opens another whenever
// one is closed.
func exhaust(ctx context.Context, n *mesh.Network, host, port string) {
	for ctx.Err() == nil {
		conn, err := n.Dial(ctx, host, port)
		if err == nil {
			hold(ctx, conn)
		}

		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

// hold reads until the other end closes or ctx is over.
func hold(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}
