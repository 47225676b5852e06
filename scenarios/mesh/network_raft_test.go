package mesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// layer is a raft stream layer from one host.
type layer struct {
	net.Listener
	net  *Network
	host string
}

func (l layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()

	return l.net.Dial(ctx, l.host, string(addr))
}

// counter is a state machine that counts its commands.
type counter struct{ n int }

func (c *counter) Apply(*raft.Log) any                 { c.n++; return c.n }
func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return nil, fmt.Errorf("no snapshots here") }
func (c *counter) Restore(r io.ReadCloser) error       { return r.Close() }

// startRaft runs three members over n and returns them and how to stop them.
func startRaft(t *testing.T, n *Network) []*raft.Raft {
	t.Helper()

	var servers []raft.Server
	for i := range 3 {
		addr := fmt.Sprintf("10.0.0.%d:1", i)
		servers = append(servers, raft.Server{ID: raft.ServerID(addr), Address: raft.ServerAddress(addr)})
	}

	members := make([]*raft.Raft, 3)
	for i, s := range servers {
		host, _, _ := net.SplitHostPort(string(s.Address))

		l, err := n.Listen(string(s.Address))
		if err != nil {
			t.Fatal(err)
		}

		tr := raft.NewNetworkTransport(layer{l, n, host}, 2, 5*time.Second, io.Discard)
		cfg := raft.DefaultConfig()
		cfg.LocalID, cfg.LogOutput = s.ID, io.Discard
		store := raft.NewInmemStore()

		r, err := raft.NewRaft(cfg, &counter{}, store, store, raft.NewInmemSnapshotStore(), tr)
		if err != nil {
			t.Fatal(err)
		}

		r.BootstrapCluster(raft.Configuration{Servers: servers})
		members[i] = r
		t.Cleanup(func() {
			if err := r.Shutdown().Error(); err != nil {
				t.Error(err)
			}

			tr.Close()
			n.Kill(host) // NetworkTransport does not close accepted connections
		})
	}

	return members
}

// leader waits until one of the members leads.
func leader(t *testing.T, members ...*raft.Raft) (*raft.Raft, int) {
	t.Helper()

	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Millisecond) {
		for i, r := range members {
			if r != nil && r.State() == raft.Leader {
				return r, i
			}
		}
	}

	t.Fatal("no leader within a minute")

	return nil, 0
}

// Unmodified raft loses its leader to a cut, elects another, and has the old one
// back after an hour.
func TestRaftOverTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(5)
		n.SetAll(Link{Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.01})
		members := startRaft(t, n)

		first, at := leader(t, members...)
		for range 20 {
			if err := first.Apply([]byte("x"), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}

		for i := range members {
			if i != at {
				n.Cut(fmt.Sprintf("10.0.0.%d", at), fmt.Sprintf("10.0.0.%d", i))
			}
		}

		if err := first.Apply([]byte("lost"), time.Second).Error(); err == nil {
			t.Error("a leader without followers committed")
		}

		rest := append([]*raft.Raft(nil), members...)
		rest[at] = nil

		second, _ := leader(t, rest...)
		if err := second.Apply([]byte("x"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Hour)

		for i := range members {
			n.Heal(fmt.Sprintf("10.0.0.%d", at), fmt.Sprintf("10.0.0.%d", i))
		}

		time.Sleep(time.Minute)

		now, _ := leader(t, members...)
		if err := now.Apply([]byte("x"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)

		for i, r := range members {
			if got, want := r.AppliedIndex(), now.AppliedIndex(); got != want {
				t.Errorf("member %d has applied %d of %d", i, got, want)
			}
		}
	})
}
