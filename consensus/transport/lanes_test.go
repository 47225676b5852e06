package transport

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

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

var must = directorytest.Must
