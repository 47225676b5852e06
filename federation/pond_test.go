package federation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A pond is a mesh of gossiping nodes and what they share: certificates and a
// network.
type pond struct {
	t    *testing.T
	wire *wire
	all  []*frog

	stranger string // a domain for which nobody has a bundle

	mu  sync.Mutex
	cas map[spiffeid.TrustDomain]*pondCA
}

type pondCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPond(t *testing.T) *pond {
	return &pond{t: t, wire: newWire(), cas: map[spiffeid.TrustDomain]*pondCA{}}
}

// A frog is one node.
type frog struct {
	*gossip
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

func (p *pond) ca(td spiffeid.TrustDomain) *pondCA {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.cas[td]; c != nil {
		return c
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(p.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(p.t, err)
	cert, err := x509.ParseCertificate(der)
	must(p.t, err)
	p.cas[td] = &pondCA{cert, key}
	return p.cas[td]
}

// tls returns both configurations of a node that has a certificate for id.
func (p *pond) tls(id spiffeid.ID) (server, client *tls.Config) {
	ca := p.ca(id.TrustDomain())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(p.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 1, 0),
		URIs: []*url.URL{id.URL()}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	must(p.t, err)
	chain := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	verify := func(state tls.ConnectionState) error {
		leaf := state.PeerCertificates[0]
		peer, err := spiffeid.FromURI(leaf.URIs[0])
		if err != nil {
			return err
		}
		p.mu.Lock()
		anchor := p.cas[peer.TrustDomain()]
		p.mu.Unlock()
		if anchor == nil || peer.TrustDomain().Name() == p.stranger {
			return errors.New("no bundle for " + peer.TrustDomain().String())
		}
		roots := x509.NewCertPool()
		roots.AddCert(anchor.cert)
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}
	server = &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}, Certificates: []tls.Certificate{chain}, ClientAuth: tls.RequireAnyClientCert, VerifyConnection: verify}
	client = &tls.Config{Certificates: []tls.Certificate{chain}, InsecureSkipVerify: true, VerifyConnection: verify}
	return server, client
}

// start starts a node at an address of its own. change may alter its
// configuration.
func (p *pond) start(id spiffeid.ID, seeds []string, change func(*GossipConfig)) *frog {
	f := &frog{id: id, address: fmt.Sprintf("10.0.0.%d:7946", len(p.all)+1), heads: map[spiffeid.ID][]string{}, refused: map[string]int{}}
	server, client := p.tls(id)
	cfg := &GossipConfig{
		Node: id, Listener: p.wire.listen(f.address), Dial: p.wire.dialFrom(f.address),
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
	deliver := func(from spiffeid.ID, msg []byte) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.got = append(f.got, letter{from, string(msg)})
		if f.relay != nil && f.relay(msg) {
			f.publish("relayed", msg)
		}
	}
	heads := func(spiffeid.TrustDomain) [][]byte { return [][]byte{[]byte("head of " + id.String())} }
	merge := func(from spiffeid.ID, heads [][]byte) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.heads[from] = nil
		for _, h := range heads {
			f.heads[from] = append(f.heads[from], string(h))
		}
	}
	f.mu.Lock() // until f.gossip is there
	defer f.mu.Unlock()
	g, err := newGossip(cfg, deliver, heads, merge)
	must(p.t, err)
	f.gossip = g
	p.all = append(p.all, f)
	return f
}

// publish tells a message that is for everybody.
func (f *frog) publish(stream string, msg []byte) {
	f.gossip.publish(stream, msg, func(spiffeid.TrustDomain) bool { return true })
}

// populate starts nodes a1, a2, … of each domain, seeded with the very first and
// with their domain's first.
func (p *pond) populate(each int, domains ...string) {
	var first string
	for _, domain := range domains {
		var own string
		for i := range each {
			f := p.start(pondNode(domain, fmt.Sprint("n", i+1)), slices.DeleteFunc([]string{first, own}, func(s string) bool { return s == "" }), nil)
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
		all.Go(func() { _ = f.close() })
	}
	all.Wait()
}

// alive lists the members that f believes in, itself included.
func (f *frog) alive() []string {
	var names []string
	for _, m := range f.members() {
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
