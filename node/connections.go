package node

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/url"
	"sync"
	"time"
)

// A crowd is a listener with so many connections at most that a few addresses can't
// close a node to those it knows, and its memory is bounded (OPS-020). Who opens one is
// told when its handshake is over, so there are three rooms:
//
//   - the hall, for who showed no certificate: five eighths of all, of which one address
//     (a /64 of IPv6) has a share, and a /48 twice that;
//   - inside, for who showed one that holds: members, peers, operators, agents. They have
//     what the others left, which is a quarter at least, and one identity an eighth of
//     all; so have all of another domain, which names as many identities as it likes;
//   - the door, for who comes when the hall or their share of it is full: an eighth of
//     all, an address an eighth of that, and only until it is told who they are, within
//     headerTimeout. Where it is full, or their share of it, who came first goes: those
//     that say nothing can't keep it shut.
//
// What finds no room is closed at once.
type crowd struct {
	net.Listener
	most    int
	home    string // the own trust domain
	refused func() // told of each that is closed

	mu         sync.Mutex // guards the rest
	all        int
	hall, door room
	queue      list.List // of *present, at the door: who came first is first
	ids        tallies   // of inside
}

// nodeConnections is how many a listener for nodes has. Nodes of a domain, and of those it
// peers with, are few: they need an eighth of it.
const nodeConnections = 1024

// bounded bounds what one of the node's listeners accepts, and counts what it refuses.
func (n *Node) bounded(name string, ln net.Listener, most, share int) net.Listener {
	return bounded(ln, most, share, n.cfg.TrustDomain.Name(), n.metrics.connections.WithLabelValues(name).Inc)
}

// bounded bounds what ln accepts, and what of it one address has in the hall; most 0 is
// no bound, and share 0 an eighth of the hall.
func bounded(ln net.Listener, most, share int, home string, refused func()) net.Listener {
	if most == 0 {
		return ln
	}
	return &crowd{Listener: ln, most: most, home: home, refused: refused, hall: newRoom(most*5/8, share), door: newRoom(most/8, 0), ids: tallies{}}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, first := c.enter(conn)
		if first != nil {
			c.refused()
			_ = first.Close()
		}
		if p != nil {
			return p, nil
		}
		c.refused()
		_ = conn.Close()
	}
}

// enter gives a connection a room; p is nil where there is none. first, unless it is
// nil, is who made room at the door, and is to be closed.
func (c *crowd) enter(conn net.Conn) (p, first *present) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = &present{Conn: conn, crowd: c, from: originOf(conn.RemoteAddr())}
	if c.all < c.most && c.hall.enter(p.from) {
		c.all++
		p.in = &c.hall
		return p, nil
	}
	if c.all >= c.most || c.door.all >= c.door.most || !c.door.lets(p.from) {
		if first = c.foremost(p.from); first == nil {
			return nil, nil
		}
		c.leave(first)
	}
	c.all++
	c.door.enter(p.from)
	p.in, p.at, p.wait = &c.door, c.queue.PushBack(p), time.AfterFunc(headerTimeout, p.overdue)
	return p, first
}

// foremost returns who came first of those at the door by whose going there is a place
// for another from an origin: anyone, or where its share is full, one from there.
func (c *crowd) foremost(from origin) *present {
	lets, near := c.door.lets(from), c.door.near[from.near] >= c.door.share
	for at := c.queue.Front(); at != nil; at = at.Next() {
		if p := at.Value.(*present); lets || p.from.near == from.near || !near && p.from.far == from.far {
			return p
		}
	}
	return nil
}

// A present connection counts until it is closed.
type present struct {
	net.Conn
	crowd *crowd
	from  origin
	at    *list.Element // in the queue at the door; nil of what never was there
	wait  *time.Timer   // at the door, the same

	in   *room  // guarded by crowd.mu, as the rest: nil of who is inside
	id   string // of who is inside, as whose has it
	gone bool
}

// told takes who has opened a connection once its handshake is over; "" is somebody
// without a certificate. Who is at the door then, and finds no room, is closed.
func (p *present) told(id string) {
	if !p.crowd.place(p, id) {
		p.crowd.refused()
		_ = p.Close()
	}
}

// place gives p another room where it is to have one, and reports whether p has one.
func (c *crowd) place(p *present, id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.gone || p.in == nil:
		return true
	case id != "" && c.ids[id] < max(1, c.most/8):
		p.in.leave(p.from)
		c.ids[id]++
		p.in, p.id = nil, id
	case p.in == &c.hall:
		return true
	case !c.hall.enter(p.from):
		return false
	default:
		c.door.leave(p.from)
		p.in = &c.hall
	}
	c.passes(p)
	return true
}

// passes notes that p is at the door no more, if it was. c.mu is held.
func (c *crowd) passes(p *present) {
	if p.at != nil {
		c.queue.Remove(p.at)
		p.wait.Stop()
	}
}

// overdue closes who is at the door still.
func (p *present) overdue() {
	p.crowd.mu.Lock()
	late := !p.gone && p.in == &p.crowd.door
	p.crowd.mu.Unlock()
	if late {
		p.crowd.refused()
		_ = p.Close()
	}
}

// Close implements net.Conn.
func (p *present) Close() error {
	p.crowd.mu.Lock()
	p.crowd.leave(p)
	p.crowd.mu.Unlock()
	return p.Conn.Close()
}

// leave gives back what p has taken, once. c.mu is held.
func (c *crowd) leave(p *present) {
	if p.gone {
		return
	}
	p.gone = true
	c.all--
	if p.in != nil {
		p.in.leave(p.from)
	} else {
		c.ids.less(p.id)
	}
	c.passes(p)
}

// Settled takes the state of a connection whose handshake is over, which says who
// opened it.
func (p *present) Settled(state *tls.ConnectionState) {
	id := ""
	if len(state.PeerCertificates) > 0 && len(state.PeerCertificates[0].URIs) > 0 { // they hold, else there were no connection
		id = p.crowd.whose(state.PeerCertificates[0].URIs[0])
	}
	p.told(id)
}

// whose is what counts the connections of an identity: itself, or its domain where
// that is another.
func (c *crowd) whose(id *url.URL) string {
	if id.Host != c.home {
		return id.Host
	}
	return id.String()
}
