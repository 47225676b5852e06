package gossip

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
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
			inPond(t, func(t *testing.T, p *pond) {
				p.gather(1, "alpha.test", "beta.test", "gamma.test")
				honest := p.all

				name := pondNode("alpha.test", victim)

				eve := p.start(name, []string{honest[0].address, honest[1].address, honest[2].address},
					func(c *Config) {
						c.ServerTLS, c.ClientTLS = p.authorities.TLS(t, pondNode("beta.test", "eve"))
					})
				for range 300 {
					time.Sleep(time.Second)

					for _, f := range honest {
						for _, m := range f.Members() {
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
				_, err := eve.transport.WriteToAddress(message(wirePing, "SeqNo", 1, "Node", honest[1].id.String(),
					"SourceNode", name.String()), memberlist.Address{Name: honest[1].id.String()})
				must(t, err)
				time.Sleep(time.Second)

				if honest[1].count(errClaim.Error()) == 0 {
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
	inPond(t, func(t *testing.T, p *pond) {
		p.authorities.Stranger = "mallory.test"
		p.gather(1, "alpha.test", "beta.test")
		honest := p.all
		seeds := []string{honest[0].address, honest[1].address}
		p.start(spiffeid.RequireFromString("spiffe://alpha.test/agent/ada"), seeds, nil)
		p.start(pondNode("mallory.test", "n1"), seeds, nil)
		p.start(pondNode("mallory.test", "n2"), seeds, func(c *Config) { // whose own word is her own anchor's
			forged := newPond(t)

			c.ServerTLS, c.ClientTLS = forged.authorities.TLS(t, pondNode("alpha.test", "n9"))
			for _, config := range []*tls.Config{c.ServerTLS, c.ClientTLS} {
				config.VerifyConnection = func(tls.ConnectionState) error { return nil }
			}
		})
		time.Sleep(5 * time.Minute)

		for _, f := range honest {
			if len(f.Members()) != 2 || f.count("TLS handshake error") == 0 || f.count(errNotAllowed.Error()) == 0 {
				t.Errorf("%s sees %v, log %q", f.id, f.Members(), f.lines)
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
			inPond(t, func(t *testing.T, p *pond) {
				p.gather(3, "alpha.test", "beta.test")
				liar := p.all[5]

				unsettled := false
				for i := range 30 {
					for _, listener := range p.all[:5] {
						for _, victim := range p.all[:5] {
							for _, from := range []*frog{liar, victim} { // dead, and left by itself
								lie := message(wireDead, "Incarnation", min(incarnation+i, math.MaxUint32), "Node",
									victim.id.String(), "From", from.id.String())
								_, err := liar.transport.WriteToAddress(lie,
									memberlist.Address{Name: listener.id.String()})
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
					for _, m := range f.Members() {
						if i := slices.IndexFunc(p.all, func(o *frog) bool {
							return o.id == m.ID
						}); m.Address != p.all[i].address {
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
	inPond(t, func(t *testing.T, p *pond) {
		p.gather(1, "alpha.test", "beta.test", "gamma.test")

		a, liar := p.all[0], p.all[2]
		for i := range 500 {
			rumour := message(wireAlive, "Incarnation", 1, "Node",
				pondNode("beta.test", fmt.Sprint("ghost", i)).String(),
				"Addr", []byte(placeholderIP), "Port", placeholderPort, "Meta", []byte(liar.address), "Vsn",
				[]byte{1, 5, 2, 0, 0, 0})
			_, err := liar.transport.WriteToAddress(rumour, memberlist.Address{Name: a.id.String()})
			must(t, err)
			time.Sleep(10 * time.Millisecond)
		}

		a.pool.mu.Lock()
		n := len(a.pool.sought)
		a.pool.mu.Unlock()

		if n == 0 || n > maxDomainNodes || len(a.Members()) != 3 {
			t.Errorf("%d are sought, members %v", n, a.Members())
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
	inPond(t, func(t *testing.T, p *pond) {
		p.populate(5, "alpha.test", "beta.test")
		alpha, beta := p.all[:5], p.all[5:]
		of := func(f *frog, domain string) (n int) {
			for _, m := range f.Members() {
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
			must(t, f.Close())
		}

		within(t, 5*time.Minute, "three of theirs again", func() bool { return of(alpha[4], "beta.test") == 3 })
	})
}

// A node that comes back elsewhere is found there, without a death in between.
func TestANodeMayMove(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		p.gather(3, "alpha.test", "beta.test")
		old := p.all[4]
		must(t, old.Close())
		p.all = slices.Delete(p.all, 4, 5)
		p.all = append(p.all, nil) // so that the address is a new one
		p.all = append(p.all[:5], p.start(old.id, []string{p.all[0].address}, nil))

		now := p.all[5]
		if now.address == old.address {
			t.Fatal("it didn't move")
		}

		within(t, time.Minute, "all see it where it is", func() bool {
			for _, f := range p.all {
				if !slices.Contains(f.Members(), MemberStatus{now.id, now.address, MemberAlive}) {
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
	inPond(t, func(t *testing.T, p *pond) {
		var over atomic.Bool
		a := p.start(pondNode("alpha.test", "n1"), nil, func(c *Config) {
			c.Allow = func(id spiffeid.ID) bool { return id.TrustDomain() == c.Node.TrustDomain() || !over.Load() }
		})
		b := p.start(pondNode("beta.test", "n1"), []string{a.address}, nil)
		within(t, 20*time.Second, "both see both", p.allSee(p.all))
		a.publish("x", []byte("before"))
		within(t, 10*time.Second, "b hears a", func() bool { return len(b.heard("before")) > 0 })

		over.Store(true)
		a.publish("x", []byte("after"))
		b.publish("x", []byte("after"))
		time.Sleep(5 * time.Minute)

		if len(a.Members()) != 1 || len(a.heard("after"))+len(b.heard("after")) != 0 {
			t.Errorf("a sees %v and heard %v; b heard %v", a.Members(), a.got, b.got)
		}
	})
}

// newTestPool is the pool of a node of alpha's that has met who is in met.
func newTestPool(met map[spiffeid.ID]string) *pool {
	return newPool(&Config{
		Node: pondNode("alpha.test", "n1"), Logger: slog.New(slog.DiscardHandler),
		Allow: func(id spiffeid.ID) bool { return id.TrustDomain().Name() != "stranger.test" },
	}, func(id spiffeid.ID) (string, bool) { address, ok := met[id]; return address, ok })
}

// claimed is what is said of a node that is at that address.
func claimed(id spiffeid.ID, address string) *memberlist.Node {
	return &memberlist.Node{Name: id.String(), Addr: placeholderIP, Port: placeholderPort, Meta: []byte(address),
		PMin: memberlist.ProtocolVersionMin, PMax: memberlist.ProtocolVersionMax,
		PCur: memberlist.ProtocolVersion2Compatible}
}

// Nobody is in the pool but who proved to be where they are said to be, speaks as all
// others do, and has room left by its domain's other nodes.
//
// Requirement: MESH-016
func TestWhoIsLetIntoThePool(t *testing.T) {
	const here, there = "10.0.0.2:7946", "10.0.0.3:7946"
	id := pondNode("beta.test", "n1")
	ours := uint8(memberlist.ProtocolVersion2Compatible)
	met := map[spiffeid.ID]string{id: here}

	p := newTestPool(met)
	for name, c := range map[string]struct {
		change func(*memberlist.Node)
		want   error
	}{
		"as it should be": {func(*memberlist.Node) {}, nil},
		"elsewhere":       {func(n *memberlist.Node) { n.Meta = []byte(there) }, errNotMet},
		"whom nobody met": {func(n *memberlist.Node) { n.Name = pondNode("beta.test", "n2").String() }, errNotMet},
		"this node":       {func(n *memberlist.Node) { n.Name = p.cfg.Node.String() }, nil},
		"a stranger": {func(n *memberlist.Node) {
			n.Name = pondNode("stranger.test", "n1").String()
		}, errNotAllowed},
		"no ID":             {func(n *memberlist.Node) { n.Name = "n1" }, errClaimed},
		"another IP":        {func(n *memberlist.Node) { n.Addr = net.IPv4(10, 0, 0, 1) }, errClaimed},
		"another port":      {func(n *memberlist.Node) { n.Port = 7946 }, errClaimed},
		"no address":        {func(n *memberlist.Node) { n.Meta = []byte("beta.test") }, errClaimed},
		"a later protocol":  {func(n *memberlist.Node) { n.PMin = ours + 1 }, errClaimed},
		"an earlier one":    {func(n *memberlist.Node) { n.PMax = ours - 1 }, errClaimed},
		"another now":       {func(n *memberlist.Node) { n.PCur = ours + 1 }, errClaimed},
		"a delegate's":      {func(n *memberlist.Node) { n.DCur = 1 }, errClaimed},
		"a delegate's most": {func(n *memberlist.Node) { n.DMax = 1 }, errClaimed},
		"and least":         {func(n *memberlist.Node) { n.DMin = 1 }, errClaimed},
	} {
		n := claimed(id, here)
		c.change(n)

		if err := p.NotifyAlive(n); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	for i := range maxForeign {
		p.NotifyJoin(claimed(pondNode("beta.test", fmt.Sprint("m", i)), there))
		p.NotifyJoin(claimed(pondNode("alpha.test", fmt.Sprint("m", i)), there))
	}

	own := pondNode("alpha.test", "n2")

	met[own] = here
	if err := p.NotifyAlive(claimed(id, here)); !errors.Is(err, errDomainFull) {
		t.Errorf("one more of another domain: %v", err)
	}

	if err := p.NotifyAlive(claimed(own, here)); err != nil {
		t.Errorf("one more of the own: %v", err)
	}

	member := pondNode("beta.test", "m0")
	if err := p.NotifyAlive(claimed(member, there)); err != nil {
		t.Errorf("a member where it was: %v", err)
	}

	if err := p.NotifyAlive(claimed(member, here)); !errors.Is(err, errNotMet) {
		t.Errorf("a member that is said to have moved: %v", err)
	}

	met[member] = here
	if err := p.NotifyAlive(claimed(member, here)); err != nil {
		t.Errorf("a member that has moved: %v", err)
	}

	p.acquainted = func(spiffeid.ID) (string, bool) { return here, false }

	p.NotifyUpdate(claimed(member, there))

	if err := p.NotifyAlive(claimed(member, here)); !errors.Is(err, errNotMet) {
		t.Errorf("a member that was there long ago: %v", err)
	}
}

// However many nodes there are said to be, so many are looked for, so many at a time and
// so often; one that was a member is looked for longer, and not only where it is rumoured
// to be.
//
// Requirement: MESH-016
func TestTheSearchForNodesIsBounded(t *testing.T) {
	p := newTestPool(nil)
	for domain := range 2 * maxSought / maxDomainNodes {
		for i := range maxDomainNodes + 1 {
			_ = p.NotifyAlive(claimed(pondNode(fmt.Sprint("d", domain, ".test"), fmt.Sprint("n", i)), "10.0.0.2:7946"))
		}

		if n := len(p.sought); domain == 0 && n != maxDomainNodes {
			t.Errorf("%d nodes of one domain are looked for", n)
		}
	}

	if n := len(p.sought); n != maxSought {
		t.Errorf("%d nodes are looked for", n)
	}

	now, asked := time.Now(), 0
	if n := len(p.due(now, time.Minute, 3)); n != 3 {
		t.Errorf("%d at a time", n)
	}

	if n := len(p.due(now, time.Minute, maxSought)); n != maxSought-3 {
		t.Errorf("%d are due that weren't asked", n)
	}

	for range 2 * maxTries {
		now = now.Add(time.Hour)
		asked += len(p.due(now, time.Minute, maxSought))
	}

	if asked != (maxTries-1)*maxSought || len(p.sought) != 0 {
		t.Errorf("they are asked %d times more, and %d are looked for still", asked, len(p.sought))
	}

	lost := pondNode("beta.test", "n1")
	p.NotifyJoin(claimed(lost, "was"))
	p.NotifyLeave(claimed(lost, "was"))
	_ = p.NotifyAlive(claimed(lost, "10.0.0.9:7946"))

	where := map[string]int{}
	for end := now.Add(seekFor - 2*24*time.Hour); now.Before(end); now = now.Add(12 * time.Hour) {
		for _, address := range p.due(now, time.Minute, maxSought) {
			where[address]++
		}
	}

	if n := where["was"]; n < 2*maxTries || where["10.0.0.9:7946"] != n && where["10.0.0.9:7946"] != n-1 {
		t.Errorf("one that was a member is looked for at %v", where)
	}

	if now = now.Add(seekFor); len(p.due(now, time.Minute, maxSought)) != 0 || len(p.sought) != 0 {
		t.Error("it is looked for for ever")
	}

	p.NotifyLeave(claimed(pondNode("stranger.test", "n1"), "was"))

	if len(p.due(now, time.Minute, maxSought)) != 0 || len(p.sought) != 0 {
		t.Error("who isn't allowed is looked for")
	}
}

// A node that joins and leaves again and again fills no log: its domain has a few lines, and the
// number of those left out is told. Other domains' lines are not left out for that (finding 37).
//
// Requirement: SEC-003
func TestAMemberThatComesAndGoesFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer

		p := newPool(&Config{
			Allow:  func(spiffeid.ID) bool { return true },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, nil)
		flapping := &memberlist.Node{Name: pondNode("beta.test", "eve").String(), Meta: []byte("eve:1")}

		for range 650 {
			p.NotifyJoin(flapping)
			p.NotifyLeave(flapping)
			time.Sleep(15 * time.Millisecond)
		}

		p.NotifyJoin(&memberlist.Node{Name: pondNode("gamma.test", "n1").String(), Meta: []byte("gamma:1")})

		if n := strings.Count(log.String(), "beta.test"); n > lineRate.Burst+1 {
			t.Errorf("ten seconds of joining and leaving write %d lines", n)
		}

		if !strings.Contains(log.String(), "gamma.test") {
			t.Error("another domain's line is left out")
		}

		time.Sleep(10 * time.Second)
		p.NotifyJoin(flapping)

		if !strings.Contains(log.String(), "lines_skipped=") {
			t.Errorf("the log doesn't tell that lines were left out: %s", log.String())
		}
	})
}
