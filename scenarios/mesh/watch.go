package mesh

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A Watcher is a client that follows everything that one node shows, and comes
// again behind its last event when the connection ends.
type Watcher struct {
	Node *Node

	m *Mesh

	mu      sync.Mutex // guards the fields below
	has     map[string]apiclient.Item
	current bool // the state is complete
	resets  int
	streams int
	ends    map[string]time.Time // time of the event that a registration expired, by rid
}

// Watch follows a node's view until the test ends. Every event is checked against the
// events before it.
func (m *Mesh) Watch(n *Node) *Watcher {
	w := &Watcher{Node: n, m: m, has: map[string]apiclient.Item{}, ends: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())

	var following sync.WaitGroup
	c := n.client(reader)
	following.Go(func() { w.follow(ctx, c) })
	m.T.Cleanup(func() {
		cancel()
		following.Wait()
	})

	return w
}

func (w *Watcher) follow(ctx context.Context, client *apiclient.Client) {
	lastID := ""
	for ctx.Err() == nil {
		stream, err := client.Watch(ctx,
			apiclient.LookupOptions{ReadOptions: apiclient.ReadOptions{Consistency: "stale"}},
			lastID)
		if err == nil {
			w.mu.Lock()
			w.streams++
			w.mu.Unlock()
		}

		for err == nil {
			var e *apiclient.WatchEvent
			if e, err = stream.Next(); err == nil {
				w.apply(e)
			}

			lastID = stream.ID()
		}

		if stream != nil {
			_ = stream.Close()
		}

		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// apply applies an event, and fails the test if the event is impossible.
func (w *Watcher) apply(event *apiclient.WatchEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()

	rid := ""
	switch {
	case event.Item != nil:
		rid = event.Item.RID()
		if err := whole(w.Node, *event.Item); err != nil {
			w.m.T.Errorf("%s sends %s without its provenance: %v", w.Node.Name, event.Item.Agent, err)
		}
	case event.Removed != nil:
		rid = event.Removed.RID
	case event.Kind == "reset":
		clear(w.has)
		w.resets++
		w.current = false

		return
	case event.Kind == "current":
		w.current = true
		return
	default:
		return
	}

	if _, had := w.has[rid]; had != (event.Kind != "added") {
		w.m.T.Errorf("%s: %s of %s, sent before: %v", w.Node.Name, event.Kind, rid, had)
	}

	if event.Item != nil {
		w.has[rid] = *event.Item
		return
	}

	if delete(w.has, rid); event.Why == "expired" {
		w.ends[rid] = time.Now()
	}
}

// Streams returns the number of connections that the watcher has used, and how often the
// state was sent from the start.
func (w *Watcher) Streams() (streams, resets int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.streams, w.resets
}

// Expired returns the time of the event that an agent has expired.
func (w *Watcher) Expired(agent *Agent) (at time.Time, expired bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, expired = w.ends[agent.RID]

	return at, expired
}

// Agrees returns nil if the watcher's state equals the node's view.
func (w *Watcher) Agrees() error {
	shown, err := w.m.Lookup(w.Node)
	if err != nil {
		return err
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if !w.current {
		return fmt.Errorf("%s has not sent everything yet", w.Node.Name)
	}

	for rid, r := range shown {
		if sent, ok := w.has[rid]; !ok || sent.Provenance.Revision != r.Provenance.Revision {
			return fmt.Errorf("%s shows %s at revision %d and has sent %d", w.Node.Name, r.Agent,
				r.Provenance.Revision, sent.Provenance.Revision)
		}
	}

	for rid, sent := range w.has {
		if _, ok := shown[rid]; !ok {
			return fmt.Errorf("%s no longer shows %s and has not sent its end", w.Node.Name, sent.Agent)
		}
	}

	return nil
}
