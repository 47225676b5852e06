package gossip

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/contain"
)

// A node that states another address in each request is connected to once, so it can't make this node
// hold a connection for each address.
//
// Requirement: MESH-026
func TestANodeOfManyAddressesHasOneConnection(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		b := p.start(pondNode("beta.test", "n1"), nil, nil)
		byAddress := tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return serverTLS(b.cfg.ServerTLS), nil
		}}

		const addresses = 30

		for i := range addresses {
			address := fmt.Sprintf("10.0.1.%d:7946", i)
			ln := tls.NewListener(p.wire.Listen(address), &byAddress)

			go func() { _ = b.transport.server.Serve(ln) }()

			_, err := a.transport.meet(b.id, address)
			must(t, err)

			text := fmt.Sprint("to ", address)
			must(t, a.transport.queue(b.id, append([]byte{wireUser}, text...), nil))
			synctest.Wait()

			if len(b.heard(text)) != 1 {
				t.Fatalf("the message to %s didn't arrive", address)
			}
		}

		a.mu.Lock()
		defer a.mu.Unlock()

		all := 0
		for _, n := range a.dialled {
			all += n
		}

		if all != 1 {
			t.Errorf("%d connections to a node of %d addresses", all, addresses)
		}
	})
}

// A connection that finds the node at an address isn't kept, because others can claim any number of addresses.
func TestAJoinKeepsNoConnection(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)

		var open atomic.Int64

		b := p.start(pondNode("beta.test", "n1"), nil, func(c *Config) {
			c.Bound = func(server *http.Server) {
				server.ConnState = func(_ net.Conn, state http.ConnState) {
					switch state {
					case http.StateNew:
						open.Add(1)
					case http.StateClosed:
						open.Add(-1)
					}
				}
			}
		})
		id, _, err := a.transport.call(callTimeout, spiffeid.ID{}, b.address, pathPackets, nil, nil)
		synctest.Wait()

		if err != nil || id != b.id || open.Load() != 0 {
			t.Errorf("found %s, %v; %d connections are open", id, err, open.Load())
		}
	})
}

// Close ends connections that wait for a handshake.
func TestCloseEndsHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		silent := p.wire.Listen("10.0.9.9:7946")
		defer silent.Close()

		_, err := a.transport.meet(pondNode("beta.test", "n1"), "10.0.9.9:7946")
		must(t, err)
		must(t, a.transport.queue(pondNode("beta.test", "n1"), []byte{wireUser, 'x'}, nil))
		conn, err := silent.Accept()
		must(t, err)
		must(t, a.Close())

		closed := time.Now()
		if _, err := io.Copy(io.Discard, conn); err != nil || !time.Now().Equal(closed) {
			t.Errorf("the connection ended %s after Close, %v", time.Since(closed), err)
		}
	})
}

// Packets are paid for one by one, so a node can't have many small ones read for the price of their bytes.
//
// Requirement: MESH-026
func TestSmallPacketsAreReadAtAPace(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		loud := p.start(pondNode("gamma.test", "n1"), nil, nil)

		var small []byte
		for range queuedEach {
			small = appendPart(small, []byte{wireUser, 'x'})
		}

		const requests = 100

		began := time.Now()

		for range requests {
			must(t, loud.request(a, pathPackets, small))
		}

		least := time.Duration((requests*queuedEach*paceEach-paceBurst)/paceBytes) * time.Second
		if took := time.Since(began); took < least {
			t.Errorf("%d packets were read in %s, it takes %s", requests*queuedEach, took, least)
		}

		small = appendPart(small, []byte{wireUser, 'x'})
		if err := loud.request(a, pathPackets, small); !errors.Is(err, errNotAnswered) {
			t.Errorf("one packet too many: %v", err)
		}
	})
}

// A packet whose audience has changed is dropped alone, and not those that wait with it.
func TestAChangedAudienceDropsOnePacket(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		b := p.start(pondNode("beta.test", "n1"), nil, nil)
		_, err := a.transport.meet(b.id, b.address)
		must(t, err)

		c := &contact{id: b.id, queue: make(chan outgoing, 2)}
		c.queue <- outgoing{[]byte("\x08not for b"), func(spiffeid.TrustDomain) bool { return false }}
		c.queue <- outgoing{[]byte("\x08last"), nil}
		a.transport.send(c, outgoing{[]byte("\x08first"), nil})

		if len(b.heard("first")) != 1 || len(b.heard("last")) != 1 || len(b.heard("not for b")) != 0 {
			t.Errorf("b got %v", b.got)
		}
	})
}

// A request on a connection that the other end closes meanwhile isn't lost.
func TestARequestOutlivesItsConnection(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)

		var requests atomic.Int64

		b := p.start(pondNode("beta.test", "n1"), nil, func(c *Config) {
			c.Bound = func(server *http.Server) {
				next := server.Handler
				server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if requests.Add(1) == 2 {
						panic(http.ErrAbortHandler)
					}

					next.ServeHTTP(w, r)
				})
			}
		})
		for range 2 {
			must(t, a.request(b, pathPackets, appendPart(nil, []byte("\x08hello"))))
		}

		if n := len(b.heard("hello")); n != 2 || requests.Load() != 3 {
			t.Errorf("b got %d messages by %d requests", n, requests.Load())
		}
	})
}

// Streams of other domains leave places to nodes of the own domain.
//
// Requirement: MESH-026
func TestOtherDomainsLeaveStreamsToTheOwn(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		sibling := p.start(pondNode("alpha.test", "n2"), nil, nil)
		held := 0

		for domain := range 32 {
			for node := range maxDomainNodes {
				id := pondNode(fmt.Sprintf("d%d.test", domain), fmt.Sprint("n", node))

				release, refused := a.transport.exchanges.Take(a.transport.caller(id), 1)
				if refused == nil {
					held++

					defer release()
				}
			}
		}

		err := sibling.request(a, pathStream, nil)
		if held < maxExchanges/4 || !errors.Is(err, errNotAnswered) || a.count(errTooMany.Error()) > 0 {
			t.Errorf("with %d streams of other domains: %v", held, err)
		}
	})
}

// A panic at a request is counted, and ends this request alone.
func TestAPanicAtARequestIsCounted(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		var broken atomic.Bool

		panics := contain.New(slog.New(slog.DiscardHandler))
		a := p.start(pondNode("alpha.test", "n1"), nil, func(c *Config) {
			allow := c.Allow
			c.Panics = panics
			c.Allow = func(id spiffeid.ID) bool {
				if broken.Load() {
					panic("a defect")
				}

				return allow(id)
			}
		})
		b := p.start(pondNode("beta.test", "n1"), nil, nil)

		broken.Store(true)

		err := b.request(a, pathPackets, nil)
		broken.Store(false)

		if !errors.Is(err, errNotAnswered) || panics.Count(contain.Gossip) != 1 {
			t.Errorf("%v; %d panics are counted", err, panics.Count(contain.Gossip))
		}

		must(t, b.request(a, pathPackets, nil))
	})
}

// A node out of reach is tried at a pace, and what waits for it meanwhile is dropped.
//
// Requirement: MESH-026
func TestANodeOutOfReachIsTriedAtAPace(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a, away := p.start(pondNode("alpha.test", "n1"), nil, nil), pondNode("beta.test", "n1")

		for range 600 {
			must(t, a.transport.queue(away, []byte{wireUser}, nil))
			time.Sleep(100 * time.Millisecond)
		}

		if n := a.count("packets to a member were dropped"); n < 3 || n > 20 {
			t.Errorf("in a minute it is tried %d times", n)
		}
	})
}

// A contact in use stays, and the last one of a domain takes the pace of the domain with it.
//
// Requirement: MESH-026
func TestADomainsPaceEndsWithItsLastContact(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a, beta := p.start(pondNode("alpha.test", "n1"), nil, nil).transport, pondNode("beta.test", "n1").TrustDomain()

		isPaced := func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()

			return a.paces[beta] != nil
		}

		first, err := a.meet(pondNode("beta.test", "n1"), "10.0.0.9:7946")
		must(t, err)
		time.Sleep(contactIdle / 2)

		second, err := a.meet(pondNode("beta.test", "n2"), "10.0.0.9:7946")
		must(t, err)
		time.Sleep(contactIdle / 2)

		if !a.forget(first) || a.forget(second) || !isPaced() {
			t.Error("a contact in use or the pace of its domain is removed, or one out of use stays")
		}

		time.Sleep(contactIdle)

		if a.forget(second); isPaced() {
			t.Error("a domain without a contact has a pace")
		}
	})
}
