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
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A pond is a mesh of gossiping nodes and what they share: certificates and a
// network.
type pond struct {
	t    *testing.T
	wire *wire
	cas  map[spiffeid.TrustDomain]*pondCA
	all  []*frog
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
	got     []string // sender and message
	heads   map[spiffeid.ID][]string
	refused map[string]int
}

func pondNode(domain, name string) spiffeid.ID {
	return spiffeid.RequireFromString("spiffe://" + domain + "/roster/node/" + name)
}

func (p *pond) ca(td spiffeid.TrustDomain) *pondCA {
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
		anchor := p.cas[peer.TrustDomain()]
		if anchor == nil {
			return errors.New("no bundle for " + peer.TrustDomain().String())
		}
		roots := x509.NewCertPool()
		roots.AddCert(anchor.cert)
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}
	server = &tls.Config{Certificates: []tls.Certificate{chain}, ClientAuth: tls.RequireAnyClientCert, VerifyConnection: verify}
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
		f.got = append(f.got, from.String()+" "+string(msg))
	}
	heads := func() [][]byte { return [][]byte{[]byte("head of " + id.String())} }
	merge := func(from spiffeid.ID, heads [][]byte) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.heads[from] = nil
		for _, h := range heads {
			f.heads[from] = append(f.heads[from], string(h))
		}
	}
	g, err := newGossip(cfg, deliver, heads, merge)
	must(p.t, err)
	f.gossip = g
	p.all = append(p.all, f)
	return f
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

func (f *frog) heard(text string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, g := range f.got {
		if _, msg, _ := strings.Cut(g, " "); msg == text {
			n++
		}
	}
	return n
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

// A mesh that was cut in two for longer than memberlist remembers the dead comes
// together again by itself.
//
// Requirement: MESH-015
func TestNineNodesHealAfterALongCut(t *testing.T) {
	for _, split := range []int{3, 4} { // a whole domain away; and a domain torn apart
		t.Run(fmt.Sprint(split), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t)
				p.populate(3, "alpha.test", "beta.test", "gamma.test")
				defer p.drain()
				t.Log("met in", within(t, 20*time.Second, "all see all", p.allSee(p.all)))

				side := map[string]bool{}
				for _, f := range p.all[:split] {
					side[f.address] = true
				}
				p.wire.setCut(func(a, b string) bool { return side[a] != side[b] })
				t.Log("parted in", within(t, 10*time.Minute, "each side sees itself alone", func() bool {
					return p.allSee(p.all[:split])() && p.allSee(p.all[split:])()
				}))
				time.Sleep(30 * time.Minute)

				p.wire.setCut(nil)
				t.Log("healed in", within(t, time.Minute, "all see all again", p.allSee(p.all)))
				time.Sleep(5 * time.Minute)
				if !p.allSee(p.all)() {
					t.Error("the pool fell apart again")
				}
			})
		})
	}
}
