package gossip

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/contain"
)

// A Config configures this node's part in the mesh's gossip (federation.md, "Gossip
// transport"). The functions are called often and under locks: they must be quick and must not call
// the Mesh or the Gossiper.
type Config struct {
	Node      spiffeid.ID
	Listener  net.Listener // closed by gossip
	Dial      func(ctx context.Context, addr string) (net.Conn, error)
	ServerTLS *tls.Config            // requires a certificate of an allowed node
	ClientTLS *tls.Config            // requires the same of servers
	Advertise string                 // host:port at which other nodes dial the listener
	Seeds     func() []string        // current addresses (host:port) of possible members
	Allow     func(spiffeid.ID) bool // true for nodes of this domain and of active peerings
	Logger    *slog.Logger
	Timing    Timing

	// Stretch lengthens the waits of the search for lost members, for simulations of
	// weeks.
	Stretch func(time.Duration) time.Duration

	// Bound bounds the connections of the server before it starts.
	Bound func(*http.Server)

	// Panics counts panics on foreign bytes.
	Panics *contain.Panics

	// Traffic counts the bytes of bodies received from a domain's nodes and sent to them.
	Traffic func(td spiffeid.TrustDomain, in, out int)
}

// Timing is the pace of gossip. A zero field takes the default given in its comment, which
// suits a mesh over wide-area networks.
type Timing struct {
	Probe        time.Duration // between probes, each of the next member; 5 s
	ProbeTimeout time.Duration // 3 s
	Gossip       time.Duration // between rounds while messages are waiting; 500 ms
	PushPull     time.Duration // between exchanges of the full state with one member; 60 s
	Leave        time.Duration // longest wait of Close for the leave message to be sent; 2 s
}

const (
	retransmit  = 4 // × log10 of the pool's size: recipients of a broadcast
	awareness   = 8 // a probe lasts at most this multiple of its interval
	joinsAtOnce = 8
	round       = time.Second            // between searches for nodes to join
	shortRound  = 250 * time.Millisecond // if a new node is to be joined
	maxSeeds    = 256
)

func (t Timing) withDefaults() Timing {
	return Timing{
		Probe:        cmp.Or(t.Probe, 5*time.Second),
		ProbeTimeout: cmp.Or(t.ProbeTimeout, 3*time.Second),
		Gossip:       cmp.Or(t.Gossip, 500*time.Millisecond),
		PushPull:     cmp.Or(t.PushPull, time.Minute),
		Leave:        cmp.Or(t.Leave, 2*time.Second),
	}
}

// withDefaults returns c with defaults filled in, or an error that names the invalid field.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Node.IsZero():
		return c, errors.New("gossip: Node is missing")
	case c.Listener == nil || c.Dial == nil || c.ServerTLS == nil || c.ClientTLS == nil:
		return c, errors.New("gossip: Listener, Dial, ServerTLS and ClientTLS are required")
	case c.Seeds == nil || c.Allow == nil:
		return c, errors.New("gossip: Seeds and Allow are required")
	}

	if err := checkAddress(c.Advertise); err != nil {
		return c, fmt.Errorf("gossip: Advertise: %q: %w", c.Advertise, err)
	}

	c.Timing = c.Timing.withDefaults()

	return c, nil
}

// A Mesh receives the pool's messages and supplies this node's heads; federation implements
// it. Deliver and MergeHeads are called one at a time, with the ID that the sender's
// connection proved; they must not keep their arguments. Heads is called from several goroutines.
type Mesh interface {
	// Deliver takes a message of at most MaxMessage bytes.
	Deliver(from spiffeid.ID, msg []byte)

	// Heads returns the heads known to this node that a domain may have.
	Heads(to spiffeid.TrustDomain) [][]byte

	// MergeHeads takes the heads known to another node, each of at most MaxHead bytes.
	MergeHeads(from spiffeid.ID, heads [][]byte)

	// Dropped is called for each call of the others that was left out, because too many of that node's
	// waited.
	Dropped(from spiffeid.ID)
}

// A Gossiper spreads small messages among the nodes of the mesh and tracks the members of
// the pool. The sender of a message is authenticated, its contents are not: the gate of
// federation verifies them. A received message is passed on only by a call of Publish.
type Gossiper struct {
	cfg        Config
	transport  *transport
	pool       *pool
	broadcasts *broadcasts
	list       *memberlist.Memberlist
	stop       context.CancelFunc
	tasks      sync.WaitGroup
	closing    sync.Once
}

// Start joins the pool. It takes ownership of the listener, even if it fails.
func Start(given *Config, mesh Mesh) (*Gossiper, error) {
	cfg, err := given.withDefaults()
	if err != nil {
		if cfg.Listener != nil {
			_ = cfg.Listener.Close()
		}

		return nil, err
	}

	gossiper := &Gossiper{cfg: cfg}
	// memberlist calls the pool only after the transport is there.
	gossiper.pool = newPool(&gossiper.cfg, func(id spiffeid.ID) (string, bool) {
		return gossiper.transport.acquainted(id)
	})
	gossiper.transport = newTransport(&gossiper.cfg, mesh, gossiper.pool.address)

	gossiper.broadcasts = newBroadcasts(&gossiper.cfg, gossiper.pool.others, gossiper.transport.queue)
	if gossiper.list, err = memberlist.Create(gossiper.memberlist()); err != nil {
		_ = gossiper.transport.Shutdown()
		return nil, fmt.Errorf("gossip: %w", err)
	}

	ctx, stop := context.WithCancel(context.Background())
	gossiper.stop = stop
	gossiper.tasks.Go(func() { gossiper.rejoin(ctx) })
	gossiper.tasks.Go(func() { gossiper.broadcasts.run(ctx) })

	return gossiper, nil
}

func (g *Gossiper) memberlist() *memberlist.Config {
	c := memberlist.DefaultWANConfig()
	c.Name = g.cfg.Node.String()
	c.Transport = g.transport
	c.RequireNodeNames = true // connections authenticate names, not addresses
	c.BindPort = placeholderPort
	c.EnableCompression = false
	c.UDPBufferSize = packetSize
	c.TCPTimeout = callTimeout
	c.RetransmitMult = retransmit
	c.AwarenessMaxMultiplier = awareness
	c.ProbeInterval = g.cfg.Timing.Probe
	c.ProbeTimeout = g.cfg.Timing.ProbeTimeout
	c.GossipInterval = g.cfg.Timing.Gossip
	c.PushPullInterval = g.cfg.Timing.PushPull
	c.Delegate = g.pool
	c.Alive = g.pool
	c.Events = g.pool
	// The level is debug, because other nodes can cause lines at will.
	c.Logger = slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug)

	return c
}

// Publish sends msg to members in its audience, at most once to each and, in a large pool,
// not to all. It replaces an earlier message of the same stream that is still being sent. A
// repetition of the stream's last message is ignored. A message over MaxMessage is refused.
func (g *Gossiper) Publish(stream string, msg []byte, may Audience) {
	if len(msg) > MaxMessage {
		g.cfg.Logger.Warn("gossip: message too large", "stream", stream, "bytes", len(msg))

		return
	}

	g.broadcasts.publish(stream, msg, may)
}

// Members lists the pool by name, this node included.
func (g *Gossiper) Members() []MemberStatus { return g.pool.status() }

// Close sends a leave message, for at most Timing.Leave, and ends gossip. When it returns,
// all deliveries have ended and all connections are closed. An error means that the leave
// message may not have been sent; other members then detect the loss by probes. A second
// call does nothing.
func (g *Gossiper) Close() (err error) {
	g.closing.Do(func() {
		g.stop()
		err = g.list.Leave(g.cfg.Timing.Leave)
		_ = g.list.Shutdown() // logs failures and returns nil

		// Waited for last, because Shutdown ends the requests for which rejoin waits.
		g.tasks.Wait()
	})

	return err
}

// rejoin is the loop that heals the pool, because memberlist doesn't once both sides of a
// partition have dropped each other. It joins at seeds that have not led to a member yet, at
// lost members, and at nodes that other members report as alive.
func (g *Gossiper) rejoin(ctx context.Context) {
	seeds := map[string]*sought{}
	for {
		var joins sync.WaitGroup
		for _, address := range g.targets(seeds) {
			joins.Go(func() {
				id := g.join(address)
				if seed := seeds[address]; seed != nil {
					seed.found = id
				}
			})
		}

		joins.Wait() // a request ends within callTimeout

		select {
		case <-ctx.Done():
			return
		case <-time.After(g.cfg.Stretch(shortRound)):
		}

		select {
		case <-ctx.Done():
			return
		case <-g.pool.wake:
		case <-time.After(g.cfg.Stretch(round - shortRound)):
		}
	}
}

// targets returns the addresses to join at now, at most joinsAtOnce.
func (g *Gossiper) targets(seeds map[string]*sought) []string {
	now := time.Now()
	wanted := g.cfg.Seeds()

	wanted = wanted[:min(len(wanted), maxSeeds)]
	for address := range seeds {
		if !slices.Contains(wanted, address) {
			delete(seeds, address)
		}
	}

	longest := g.cfg.Stretch(retryMost)

	// Half of the joins are left to seeds, so that many lost members don't keep them from being tried.
	addresses := g.pool.due(now, longest, joinsAtOnce/2)

	var due []string
	for _, address := range wanted {
		s := seeds[address]
		if s == nil {
			s = &sought{}
			seeds[address] = s
		}

		switch {
		case address == g.cfg.Advertise || g.pool.settled(s.found):
			s.tries = 0
		case !now.Before(s.next) && !slices.Contains(addresses, address) && !slices.Contains(due, address):
			due = append(due, address)
		}
	}

	// The seeds tried longest ago come first. Otherwise one peer's many dead addresses could
	// keep another peer's seeds from being tried.
	slices.SortStableFunc(due, func(a, b string) int { return seeds[a].next.Compare(seeds[b].next) })

	for _, address := range due[:min(len(due), joinsAtOnce-len(addresses))] {
		s := seeds[address]
		s.next = now.Add(pause(s.tries, longest))
		s.tries++
		addresses = append(addresses, address)
	}

	return addresses
}

// join joins at an address, and returns the node there.
func (g *Gossiper) join(address string) spiffeid.ID {
	id, err := g.transport.greet(address)
	if err == nil {
		// memberlist passes the part before the slash to the transport as the name of the node to dial.
		name := url.PathEscape(id.String()) + "/" + net.JoinHostPort(placeholderIP.String(), "1")
		_, err = g.list.Join([]string{name})
	}

	if err != nil {
		g.cfg.Logger.Debug("gossip: joining a member failed", "address", address, "err", err)
	}

	return id
}
