package consensus

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	alpha     = directorytest.Alpha
	beta      = directorytest.Beta
	ada       = directorytest.Ada
	bob       = directorytest.Bob
	document  = directorytest.Translator
	must      = directorytest.Must
	problem   = directorytest.WantProblem
	alphaNode = directorytest.Node
)

// A ca signs nodes' certificates.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t testing.TB) *ca {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	must(t, err)

	cert, _ := x509.ParseCertificate(der)

	return &ca{cert, key}
}

// configs returns a node's TLS configurations, which let every node of this
// authority through.
func (c *ca) configs(t testing.TB, id spiffeid.ID) (server, client *tls.Config) {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	u, _ := url.Parse(id.String())
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: []*url.URL{u}, DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}

	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, key.Public(), c.key)
	must(t, err)

	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	pair := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	server = &tls.Config{Certificates: pair, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
	client = &tls.Config{Certificates: pair, RootCAs: pool, ServerName: "node", MinVersion: tls.VersionTLS13}

	return server, client
}

// A network connects listeners and dialers in memory, and can cut an address
// off.
type network struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	cut       map[string]bool
	held      map[string]bool
	pipes     map[*pipe]string // end to the address that it belongs to
}

func newNetwork() *network {
	return &network{listeners: map[string]*memListener{}, cut: map[string]bool{}, held: map[string]bool{},
		pipes: map[*pipe]string{}}
}

type memListener struct {
	net    *network
	name   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type memAddr string

func (a memAddr) Network() string { return "mem" }
func (a memAddr) String() string  { return string(a) }

func (n *network) listen(name string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &memListener{net: n, name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[name] = l

	return l
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *memListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memListener) Addr() net.Addr { return memAddr(l.name) }

var errCut = errors.New("the network is cut")

// dialer returns the dial function of the node with that address.
func (n *network) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		n.mu.Lock()
		l := n.listeners[to]
		cut := n.cut[from] || n.cut[to]
		n.mu.Unlock()

		if l == nil || cut {
			return nil, errCut
		}

		a, b := newPipe(from, to)
		select {
		case l.conns <- b:
			n.mu.Lock()
			defer n.mu.Unlock()

			if n.cut[from] || n.cut[to] { // meanwhile: nobody would break this one
				return nil, errors.Join(errCut, a.Close())
			}

			n.pipes[a], n.pipes[b] = from, to
			a.hold(n.held[from] || n.held[to])

			return a, nil
		case <-l.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isolate breaks the connections of an address and refuses new ones until heal.
func (n *network) isolate(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.cut[name] = true
	for p, at := range n.pipes {
		if at == name {
			_ = p.Close()
			delete(n.pipes, p)
		}
	}
}

func (n *network) heal(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, name)
}

// hold lets nothing through from and to an address, and breaks nothing, until it is to do
// so no more: to others the node is as one that is stopped.
func (n *network) hold(name string, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.held[name] = held
	for p := range n.pipes {
		p.hold(n.held[p.from] || n.held[p.to])
	}
}

// A pipe is one end of a buffered connection in memory, deadlines included.
type pipe struct {
	in, out    *half
	from, to   string
	rdl, wrdl  deadline
	closedOnce sync.Once
	gone       atomic.Bool // closed at this end
}

// A half carries bytes one way.
type half struct {
	mu     sync.Mutex
	buf    []byte
	closed bool
	held   bool          // what is in buf, and the end, are not there yet
	moved  chan struct{} // closed and replaced at every change
}

func (h *half) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.moved)
	h.moved = make(chan struct{})
}

type deadline struct {
	mu sync.Mutex
	at time.Time
}

func (d *deadline) set(t time.Time) { d.mu.Lock(); d.at = t; d.mu.Unlock() }
func (d *deadline) get() time.Time  { d.mu.Lock(); defer d.mu.Unlock(); return d.at }

func newPipe(from, to string) (a, b *pipe) {
	x, y := &half{moved: make(chan struct{})}, &half{moved: make(chan struct{})}
	return &pipe{in: x, out: y, from: from, to: to}, &pipe{in: y, out: x, from: to, to: from}
}

func (p *pipe) hold(held bool) {
	for _, h := range []*half{p.in, p.out} {
		h.change(func() { h.held = held })
	}
}

func (p *pipe) Read(b []byte) (int, error) {
	for {
		p.in.mu.Lock()

		n := 0
		if !p.in.held {
			n = copy(b, p.in.buf)
		}

		p.in.buf = p.in.buf[n:]
		closed, moved := p.gone.Load() || p.in.closed && !p.in.held, p.in.moved
		p.in.mu.Unlock()

		if n > 0 || len(b) == 0 {
			return n, nil
		}

		if closed {
			return 0, io.EOF
		}

		if err := wait(moved, p.rdl.get()); err != nil {
			return 0, err
		}
	}
}

func wait(moved <-chan struct{}, at time.Time) error {
	if at.IsZero() {
		<-moved
		return nil
	}

	// Several goroutines that read timers of the past crash the race detector of Go 1.26 in a bubble.
	left := time.Until(at)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}

	timer := time.NewTimer(left)
	defer timer.Stop()

	select {
	case <-moved:
		return nil
	case <-timer.C:
		return os.ErrDeadlineExceeded
	}
}

func (p *pipe) Write(b []byte) (n int, err error) {
	p.out.change(func() {
		if p.out.closed {
			err = io.ErrClosedPipe
			return
		}

		p.out.buf = append(p.out.buf, b...)
		n = len(b)
	})

	return n, err
}

func (p *pipe) Close() error {
	p.closedOnce.Do(func() {
		p.gone.Store(true)
		p.in.change(func() { p.in.closed = true })
		p.out.change(func() { p.out.closed = true })
	})

	return nil
}

func (p *pipe) LocalAddr() net.Addr  { return memAddr(p.from) }
func (p *pipe) RemoteAddr() net.Addr { return memAddr(p.to) }
func (p *pipe) SetDeadline(t time.Time) error {
	_ = p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}
func (p *pipe) SetReadDeadline(t time.Time) error {
	p.rdl.set(t)
	p.in.change(func() {}) // who waits looks again

	return nil
}
func (p *pipe) SetWriteDeadline(t time.Time) error { p.wrdl.set(t); return nil }

// A faultyLog is a member's log on a disk that is slow, hangs, or is full, once it is told to.
type faultyLog struct {
	raft.LogStore
	delay atomic.Int64                  // of each append
	hang  atomic.Pointer[chan struct{}] // nil, or closed when appends go on
	full  atomic.Bool
}

func (l *faultyLog) StoreLogs(entries []*raft.Log) error {
	time.Sleep(time.Duration(l.delay.Load()))

	if hang := l.hang.Load(); hang != nil {
		<-*hang
	}

	if l.full.Load() {
		return errors.New("no space left on device")
	}

	return l.LogStore.StoreLogs(entries)
}

// A domain is a group of members under test.
type domain struct {
	t       testing.TB
	ca      *ca
	net     *network
	dir     string
	members []Member
	nodes   []*Store // nil where stopped
	logs    map[int]*faultyLog
	tune    func(*Config)
}

// log returns the log of a member, which stays the same when it starts again.
func (d *domain) log(i int) *faultyLog {
	if d.logs == nil {
		d.logs = map[int]*faultyLog{}
	}

	if d.logs[i] == nil {
		d.logs[i] = &faultyLog{}
	}

	return d.logs[i]
}

// newDomain starts n members.
func newDomain(t testing.TB, n int, tune func(*Config)) *domain {
	t.Helper()

	d := &domain{t: t, ca: newCA(t), net: newNetwork(), dir: t.TempDir(), tune: tune}
	d.name(n)

	for i := range n {
		d.start(i)
	}

	t.Cleanup(d.close)

	return d
}

// name names so many further nodes, which don't run yet.
func (d *domain) name(more int) {
	for range more {
		i := len(d.members)
		d.members = append(d.members, Member{ID: valueOf(alphaNode(fmt.Sprintf("n%d", i))),
			Address: fmt.Sprintf("n%d.alpha.test:7000", i)})
		d.nodes = append(d.nodes, nil)
	}
}

func (d *domain) start(i int) {
	d.t.Helper()

	s, err := d.open(i)
	must(d.t, err)

	d.nodes[i] = s
}

func (d *domain) open(i int) (*Store, error) {
	d.t.Helper()
	m := d.members[i]
	server, client := d.ca.configs(d.t, m.ID)

	cfg := Config{
		Domain: alpha, Node: m.ID, Dir: filepath.Join(d.dir, fmt.Sprint(i)), Members: d.members,
		Listener: d.net.listen(m.Address), Dial: d.net.dialer(m.Address), ServerTLS: server, ClientTLS: client,
		Index: index.New(), Timing: LocalTiming,
		Grants: func(s Subject) []directory.Grant {
			if s.Visibility.Mesh {
				return []directory.Grant{{Audience: directory.Mesh, All: true}}
			}

			return nil
		},
		faulty: func(log raft.LogStore) raft.LogStore { d.log(i).LogStore = log; return d.log(i) },
	}
	if os.Getenv("ROSTER_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).
			With("node", i)
	}

	if d.tune != nil {
		d.tune(&cfg)
	}

	return Open(cfg)
}

func (d *domain) stop(i int) {
	d.t.Helper()

	if s := d.nodes[i]; s != nil {
		d.nodes[i] = nil
		if err := s.Close(); err != nil {
			d.t.Errorf("close node %d: %v", i, err)
		}
	}
}

func (d *domain) close() {
	for i := range d.nodes {
		d.stop(i)
	}
}

// eventually waits until ok, for at most half a minute.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()

	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}

		time.Sleep(5 * time.Millisecond)
	}
}

// ready waits until every running member is, and has said what it reads, and until the log's
// version in force is the highest that all read.
func (d *domain) ready() {
	d.t.Helper()

	for i, s := range d.nodes {
		if s != nil {
			eventually(d.t, fmt.Sprintf("node %d is ready: %v", i, s.Ready()), func() bool {
				return s.Ready() == nil && s.joiner.isSeated() && s.raised()
			})
		}
	}
}

// SetPeering replaces a peering whatever it is.
func (s *Store) SetPeering(ctx context.Context, p directory.Peering) error {
	w := state.Peer(p)
	_, err := s.forwarder.write(ctx, &message.Request{Peer: &w})

	return err
}

// raised reports whether the version of the log in force is the highest that all members read.
func (s *Store) raised() bool {
	return s.cfg.Timing.Sweep > time.Minute || // nobody looks
		ask(s.Replica, func(now *state.State) bool {
			return now.Members().Written().Log >= now.Members().ReadByAll(s.cfg.reads).Log
		})
}

// leader returns the leading member's number, and another running one's.
func (d *domain) leader() (leader, other int) {
	d.t.Helper()
	leader, other = -1, -1
	eventually(d.t, "a member leads", func() bool {
		for i, s := range d.nodes {
			switch {
			case s == nil:
			case s.IsLeader():
				leader = i
			default:
				other = i
			}
		}

		return leader >= 0
	})

	return leader, other
}

// writers has so many write until stop is called, each a thousand times a second and
// at each member that runs in turn. guard is held to look which do.
func (d *domain) writers(many int, guard sync.Locker, write func(s *Store, writer, i int)) (stop func()) {
	done := make(chan struct{})

	var all sync.WaitGroup
	for w := range many {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}

				guard.Lock()
				s := d.nodes[(w+i)%len(d.nodes)]
				guard.Unlock()

				if s != nil {
					write(s, w, i)
				}
			}
		})
	}

	return func() { close(done); all.Wait() }
}

// settled waits until all running members have applied the same.
func (d *domain) settled() {
	d.t.Helper()
	eventually(d.t, "all members are at the same position", func() bool {
		leader, _ := d.leader()

		at := d.nodes[leader].Replica.Position()
		for _, s := range d.nodes {
			if s != nil && s.Replica.Position() != at {
				return false
			}
		}

		return true
	})
}

// put is a registration that the mesh may have.
func put(t testing.TB, who directory.Identity, agent string, lifetime uint32) directory.RegisterRequest {
	return directory.RegisterRequest{
		Caller: directory.Caller{Identity: who}, Agent: agent, Document: document(t, agent), Lifetime: lifetime,
		Visibility: directory.Visibility{Mesh: true},
	}
}

// register registers an agent of ada's at a member.
func (d *domain) register(at int, agent string, lifetime uint32) directory.Outcome {
	d.t.Helper()

	out, err := d.nodes[at].Register(d.t.Context(), put(d.t, ada, agent, lifetime))
	must(d.t, err)

	return out
}

// setPolicy puts a policy in force at a member.
func (d *domain) setPolicy(ctx context.Context, at int, text string) {
	d.t.Helper()

	_, err := d.nodes[at].SetPolicy(ctx, []byte(text), nil)
	must(d.t, err)
}

// quiet has the members of a domain exchange few messages, for tests of minutes: a heartbeat costs as much in virtual
// time as in real time.
func quiet(c *Config) {
	c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease = 4*time.Second, 4*time.Second, 3*time.Second
	c.Timing.Commit, c.Timing.Write = time.Second, 30*time.Second
}

// inDomain runs a test in virtual time, with a domain of so many members that are ready.
func inDomain(t *testing.T, members int, tune func(*Config), test func(*testing.T, *domain)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, members, tune)
		d.ready()
		test(t, d)
	})
}
