package federation

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An impersonator has a certificate, and says in everything else that it is
// another node: one that is there, or one that isn't.
//
// Requirement: MESH-016
func TestAnImpersonatorNeverBecomesAMember(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"n1", "ghost"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t)
				p.populate(1, "alpha.test", "beta.test", "gamma.test")
				defer p.drain()
				honest := p.all
				within(t, 20*time.Second, "all see all", p.allSee(honest))

				name := pondNode("alpha.test", victim)
				eve := p.start(name, []string{honest[0].address, honest[1].address, honest[2].address}, func(c *GossipConfig) {
					c.ServerTLS, c.ClientTLS = p.tls(pondNode("beta.test", "eve"))
				})
				for range 300 {
					time.Sleep(time.Second)
					for _, f := range honest {
						for _, m := range f.members() {
							if m.Address == eve.address || victim == "ghost" && m.ID == name {
								t.Fatalf("%s believes in %v", f.id, m)
							}
						}
						if len(f.alive()) != len(honest) {
							t.Fatalf("%s sees %v", f.id, f.alive())
						}
					}
				}
				// Its pings, which ask to be answered by the victim's name, reach nobody.
				_, err := eve.transport.WriteToAddress(message(wirePing, "SeqNo", 1, "Node", honest[1].id.String(), "SourceNode", name.String()), memberlist.Address{Name: honest[1].id.String()})
				must(t, err)
				time.Sleep(time.Second)
				if honest[1].count("name") == 0 {
					t.Error("a claim to another's name was not counted")
				}
			})
		})
	}
}

// A stranger's certificate is refused by TLS, and one that is refused nowhere but
// isn't a node's by Allow.
//
// Requirement: MESH-016
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.stranger = "mallory.test"
		p.populate(1, "alpha.test", "beta.test")
		defer p.drain()
		honest := p.all
		within(t, 20*time.Second, "both see both", p.allSee(honest))
		seeds := []string{honest[0].address, honest[1].address}
		p.start(spiffeid.RequireFromString("spiffe://alpha.test/agent/ada"), seeds, nil)
		p.start(pondNode("mallory.test", "n1"), seeds, nil)
		p.start(pondNode("mallory.test", "n2"), seeds, func(c *GossipConfig) { // whose own word is her own anchor's
			forged := newPond(t)
			c.ServerTLS, c.ClientTLS = forged.tls(pondNode("alpha.test", "n9"))
			for _, config := range []*tls.Config{c.ServerTLS, c.ClientTLS} {
				config.VerifyConnection = nil
			}
		})
		time.Sleep(5 * time.Minute)
		for _, f := range honest {
			if len(f.members()) != 2 || f.count("handshake") == 0 || f.count("not_allowed") == 0 {
				t.Errorf("%s sees %v, refused %v", f.id, f.members(), f.refused)
			}
		}
	})
}

// message builds one of memberlist's messages from names and values.
func message(kind byte, fields ...any) []byte {
	b := []byte{kind, 0x80 | byte(len(fields)/2)}
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(f))), f...)
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(f))
		case []byte:
			b = append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(f))), f...)
		}
	}
	return b
}

// A member that says that all others are dead makes them look for each other, and
// no more; not even an incarnation after which there is no other keeps them apart.
//
// Requirement: MESH-016
func TestALiarOnlyChangesHints(t *testing.T) {
	t.Parallel()
	for _, incarnation := range []int{1000, math.MaxUint32} {
		t.Run(fmt.Sprint(incarnation), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t)
				p.populate(3, "alpha.test", "beta.test")
				defer p.drain()
				within(t, 20*time.Second, "all see all", p.allSee(p.all))
				liar := p.all[5]
				unsettled := false
				for i := range 30 {
					for _, listener := range p.all[:5] {
						for _, victim := range p.all[:5] {
							for _, from := range []*frog{liar, victim} { // dead, and left by itself
								lie := message(wireDead, "Incarnation", min(incarnation+i, math.MaxUint32), "Node", victim.id.String(), "From", from.id.String())
								_, err := liar.transport.WriteToAddress(lie, memberlist.Address{Name: listener.id.String()})
								must(t, err)
							}
						}
					}
					time.Sleep(time.Second)
					unsettled = unsettled || !p.allSee(p.all)()
				}
				t.Log("the lies were believed:", unsettled)
				t.Log("over it in", within(t, 5*time.Minute, "all see all again", p.allSee(p.all)))
				for _, f := range p.all {
					for _, m := range f.members() {
						if i := slices.IndexFunc(p.all, func(o *frog) bool { return o.id == m.ID }); m.Address != p.all[i].address {
							t.Errorf("%s has %v", f.id, m)
						}
					}
				}
			})
		})
	}
}

// Nodes that don't exist, however many are told of, become neither members nor a
// burden.
//
// Requirement: MESH-016
func TestRumouredNodesAreNotBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.populate(1, "alpha.test", "beta.test", "gamma.test")
		defer p.drain()
		within(t, 20*time.Second, "all see all", p.allSee(p.all))
		a, liar := p.all[0], p.all[2]
		for i := range 500 {
			rumour := message(wireAlive, "Incarnation", 1, "Node", pondNode("beta.test", fmt.Sprint("ghost", i)).String(),
				"Addr", []byte(placeholderIP), "Port", placeholderPort, "Meta", []byte(liar.address), "Vsn", []byte{1, 5, 2, 0, 0, 0})
			_, err := liar.transport.WriteToAddress(rumour, memberlist.Address{Name: a.id.String()})
			must(t, err)
			time.Sleep(10 * time.Millisecond)
		}
		a.pool.mu.Lock()
		n := len(a.pool.sought)
		a.pool.mu.Unlock()
		if n == 0 || n > maxDomainNodes || len(a.members()) != 3 {
			t.Errorf("%d are sought, members %v", n, a.members())
		}
		time.Sleep(5 * time.Minute)
		a.pool.mu.Lock()
		defer a.pool.mu.Unlock()
		if len(a.pool.sought) != 0 || len(a.pool.members) != 3 {
			t.Errorf("still sought: %d, members %v", len(a.pool.sought), a.pool.members)
		}
	})
}

func TestAtMostThreeOfAnotherDomain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.populate(5, "alpha.test", "beta.test")
		defer p.drain()
		alpha, beta := p.all[:5], p.all[5:]
		of := func(f *frog, domain string) (n int) {
			for _, m := range f.members() {
				if m.State == MemberAlive && m.ID.TrustDomain().Name() == domain {
					n++
				}
			}
			return n
		}
		settled := func() bool {
			for _, f := range alpha {
				if of(f, "alpha.test") != 5 || of(f, "beta.test") != 3 {
					return false
				}
			}
			return true
		}
		within(t, time.Minute, "five of one's own and three of theirs", settled)
		time.Sleep(10 * time.Minute)
		if !settled() {
			t.Error("it didn't last")
		}
		for _, f := range beta[:2] {
			must(t, f.close())
		}
		within(t, 5*time.Minute, "three of theirs again", func() bool { return of(alpha[4], "beta.test") == 3 })
	})
}

// A node that comes back elsewhere is found there, without a death in between.
func TestANodeMayMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.populate(3, "alpha.test", "beta.test")
		defer p.drain()
		within(t, 20*time.Second, "all see all", p.allSee(p.all))
		old := p.all[4]
		must(t, old.close())
		p.all = slices.Delete(p.all, 4, 5)
		p.all = append(p.all, nil) // so that the address is a new one
		p.all = append(p.all[:5], p.start(old.id, []string{p.all[0].address}, nil))
		now := p.all[5]
		if now.address == old.address {
			t.Fatal("it didn't move")
		}
		within(t, time.Minute, "all see it where it is", func() bool {
			for _, f := range p.all {
				if !slices.Contains(f.members(), MemberStatus{now.id, now.address, MemberAlive}) {
					return false
				}
			}
			return p.allSee(p.all)()
		})
	})
}

// What is no longer allowed is no longer a member, and nothing passes to or from
// it.
func TestAPeeringThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		var over atomic.Bool
		a := p.start(pondNode("alpha.test", "n1"), nil, func(c *GossipConfig) {
			c.Allow = func(id spiffeid.ID) bool { return id.TrustDomain() == c.Node.TrustDomain() || !over.Load() }
		})
		b := p.start(pondNode("beta.test", "n1"), []string{a.address}, nil)
		defer p.drain()
		within(t, 20*time.Second, "both see both", p.allSee(p.all))
		a.publish("x", []byte("before"))
		within(t, 10*time.Second, "b hears a", func() bool { return len(b.heard("before")) > 0 })

		over.Store(true)
		a.publish("x", []byte("after"))
		b.publish("x", []byte("after"))
		time.Sleep(2 * time.Second)
		if c := a.contactWith(b); c != nil && c.link() != nil {
			t.Error("its link is still there")
		}
		time.Sleep(5 * time.Minute)
		if len(a.members()) != 1 || len(a.heard("after"))+len(b.heard("after")) != 0 {
			t.Errorf("a sees %v and heard %v; b heard %v", a.members(), a.got, b.got)
		}
	})
}
