package gossip

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/federation/gossip/gossiptest"
)

// A pond is a mesh of gossiping nodes and what they share: certificates and a
// network.
type pond struct {
	t    *testing.T
	wire *gossiptest.Network
	all  []*frog

	authorities gossiptest.Authorities
}

func newPond(t *testing.T) *pond {
	return &pond{t: t, wire: gossiptest.NewNetwork()}
}

// A frog is one node.
type frog struct {
	*Gossiper
	id      spiffeid.ID
	address string

	mu      sync.Mutex
	relay   func(msg []byte) bool // whether to pass a message on, once verified
	got     []letter
	heads   map[spiffeid.ID][]string
	refused map[string]int
}

type letter struct {
	from spiffeid.ID
	text string
}

func pondNode(domain, name string) spiffeid.ID {
	return spiffeid.RequireFromString("spiffe://" + domain + "/roster/node/" + name)
}

// start starts a node at an address of its own. change may alter its
// configuration.
func (p *pond) start(id spiffeid.ID, seeds []string, change func(*Config)) *frog {
	f := &frog{
		id: id, address: fmt.Sprintf("10.0.0.%d:7946", len(p.all)+1),
		heads: map[spiffeid.ID][]string{}, refused: map[string]int{},
	}
	server, client := p.authorities.TLS(p.t, id)

	cfg := &Config{
		Node: id, Listener: p.wire.Listen(f.address), Dial: p.wire.DialFrom(f.address),
		ServerTLS: server, ClientTLS: client, Advertise: f.address,
		Seeds: func() []string { return seeds },
		Allow: func(id spiffeid.ID) bool { return strings.HasPrefix(id.Path(), "/roster/node/") },
		Refused: func(reason string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.refused[reason]++
		},
	}
	if change != nil {
		change(cfg)
	}

	f.mu.Lock() // until f.Gossiper is there
	defer f.mu.Unlock()
	g, err := Start(cfg, f)
	must(p.t, err)
	f.Gossiper = g
	p.all = append(p.all, f)

	return f
}

// Deliver implements Mesh.
func (f *frog) Deliver(from spiffeid.ID, msg []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.got = append(f.got, letter{from, string(msg)})
	if f.relay != nil && f.relay(msg) {
		f.publish("relayed", msg)
	}
}

// Heads implements Mesh.
func (f *frog) Heads(spiffeid.TrustDomain) [][]byte {
	return [][]byte{[]byte("head of " + f.id.String())}
}

// MergeHeads implements Mesh.
func (f *frog) MergeHeads(from spiffeid.ID, heads [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.heads[from] = nil
	for _, h := range heads {
		f.heads[from] = append(f.heads[from], string(h))
	}
}

// publish tells a message that is for everybody.
func (f *frog) publish(stream string, msg []byte) {
	f.Gossiper.Publish(stream, msg, func(spiffeid.TrustDomain) bool { return true })
}

// populate starts nodes a1, a2, … of each domain, seeded with the very first and
// with their domain's first.
func (p *pond) populate(each int, domains ...string) {
	var first string
	for _, domain := range domains {
		var own string
		for i := range each {
			seeds := slices.DeleteFunc([]string{first, own}, func(s string) bool { return s == "" })

			f := p.start(pondNode(domain, fmt.Sprint("n", i+1)), seeds, nil)
			if own == "" {
				own = f.address
			}

			if first == "" {
				first = f.address
			}
		}
	}
}

func (p *pond) drain() {
	var all sync.WaitGroup
	for _, f := range p.all {
		all.Go(func() { _ = f.Close() })
	}

	all.Wait()
}

// alive lists the members that f believes in, itself included.
func (f *frog) alive() []string {
	var names []string
	for _, m := range f.Members() {
		if m.State == MemberAlive {
			names = append(names, m.ID.String())
		}
	}

	return names
}

// heard returns who sent f that text, once for each time.
func (f *frog) heard(text string) (from []spiffeid.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, l := range f.got {
		if l.text == text {
			from = append(from, l.from)
		}
	}

	return from
}

func (f *frog) count(reason string) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.refused[reason]
}

// within polls each virtual second until ok, and fails after bound.
func within(t *testing.T, bound time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()

	start := time.Now()
	for !ok() {
		if time.Since(start) > bound {
			t.Fatalf("not within %s: %s", bound, what)
		}

		time.Sleep(time.Second)
	}

	return time.Since(start)
}

func (p *pond) allSee(frogs []*frog) func() bool {
	return func() bool {
		for _, f := range frogs {
			if len(f.alive()) != len(frogs) {
				return false
			}
		}

		return true
	}
}

// contactWith returns f's contact with another node that it has met.
func (f *frog) contactWith(other *frog) *contact {
	f.transport.mu.Lock()
	defer f.transport.mu.Unlock()

	return f.transport.contacts[other.id]
}

// linkTo is the link with another frog that there is a contact with, nil for none.
func (f *frog) linkTo(other *frog) *link { return f.transport.linkOf(f.contactWith(other)) }

var must = directorytest.Must
