package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/contain"
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

// inPond runs a test in a pond in virtual time.
func inPond(t *testing.T, test func(t *testing.T, p *pond)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		defer p.drain()

		test(t, p)
	})
}

// A frog is one node.
type frog struct {
	*Gossiper
	id      spiffeid.ID
	address string

	mu      sync.Mutex
	slow    time.Duration         // that a delivery takes
	relay   func(msg []byte) bool // whether to pass a message on, once verified
	got     []letter
	heads   map[spiffeid.ID][]string
	dialled map[string]int // connections, by address
	lines   []string       // of the log, with their errors
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
		heads: map[spiffeid.ID][]string{}, dialled: map[string]int{},
	}
	server, client := p.authorities.TLS(p.t, id)

	cfg := &Config{
		Node: id, Listener: p.wire.Listen(f.address), Dial: f.counts(p.wire.DialFrom(f.address)),
		ServerTLS: server, ClientTLS: client, Advertise: f.address,
		Seeds:  func() []string { return seeds },
		Allow:  func(id spiffeid.ID) bool { return strings.HasPrefix(id.Path(), "/roster/node/") },
		Logger: slog.New(frogLog{f}), Panics: contain.New(slog.New(slog.DiscardHandler)),
		Stretch: func(d time.Duration) time.Duration { return d },
		Bound:   func(*http.Server) {},
		Traffic: func(spiffeid.TrustDomain, int, int) {},
	}
	if change != nil {
		change(cfg)
	}

	g, err := Start(cfg, f)
	must(p.t, err)
	f.mu.Lock() // Deliver may run already
	defer f.mu.Unlock()
	f.Gossiper = g
	p.all = append(p.all, f)

	return f
}

// Deliver implements Mesh.
func (f *frog) Deliver(from spiffeid.ID, msg []byte) {
	time.Sleep(f.slow)
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

// Dropped implements Mesh.
func (f *frog) Dropped(spiffeid.ID) {}

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

// gather is populate, until all nodes are members.
func (p *pond) gather(each int, domains ...string) {
	p.t.Helper()
	p.populate(each, domains...)
	within(p.t, time.Minute, "all see all", p.allSee(p.all))
}

func (p *pond) drain() {
	var all sync.WaitGroup
	for _, f := range p.all {
		all.Go(func() { _ = f.Close() })
	}

	all.Wait()
	time.Sleep(time.Minute) // memberlist's probes end by themselves
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

// count returns how many lines of f's log have a text.
func (f *frog) count(text string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, line := range f.lines {
		if strings.Contains(line, text) {
			n++
		}
	}

	return n
}

// A frogLog keeps the lines of a frog.
type frogLog struct{ *frog }

func (frogLog) Enabled(context.Context, slog.Level) bool { return true }
func (l frogLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l frogLog) WithGroup(string) slog.Handler          { return l }

func (l frogLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Message

	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)

	return nil
}

// counts counts the connections that dial makes.
func (f *frog) counts(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (
	net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		f.mu.Lock()
		defer f.mu.Unlock()

		if err == nil {
			f.dialled[address]++
		}

		return conn, err
	}
}

// dials returns how often f has connected to another frog.
func (f *frog) dials(other *frog) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.dialled[other.address]
}

// request sends a request of f's to another frog, past f's own bounds.
func (f *frog) request(to *frog, path string, body []byte) error {
	_, _, err := f.transport.call(callTimeout, to.id, to.address, path, body, nil)
	return err
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

var must = directorytest.Must
