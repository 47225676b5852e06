package federation

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// A domain that a peer freezes learns it from the peer's own answers, and a domain that the peer
// serves learns how far it was followed there.
//
// Requirement: OPS-043
func TestADomainSeesThatAPeerFreezesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencing(t)
		defer s.beta.run(t)()

		s.origin.register("agent", 7200)
		eventually(t, 5*time.Second, "active", func() bool {
			is := s.status()
			return is.State == "active" && is.Refusal == "" && is.Theirs.State == "connecting"
		})

		freeze := func(frozen bool) {
			at := s.alpha.origins.Get(beta)
			at.SetConvicted(frozen)
		}
		freeze(true)
		eventually(t, 30*time.Second, "refused", func() bool {
			is := s.status()
			return is.State == "refused" && is.Refusal == "frozen" && is.Theirs.Node == s.alpha.base
		})
		time.Sleep(10 * time.Minute)

		if is := s.status(); is.State != "refused" {
			t.Errorf("ten minutes later: %+v", is)
		}

		freeze(false)
		eventually(t, 30*time.Second, "active again", func() bool { return s.status().State == "active" })
		time.Sleep(time.Second)

		want := []string{"peer refuses this domain", "peer refuses this domain no longer"}
		if got := s.log.peerLines(t); !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
			t.Errorf("the log has %q", got)
		}
	})
}

// A peer that can't reach this domain, or verify it, says so after a moment; one of three of its
// nodes that is cut off doesn't count.
func TestAPeerThatCannotFollowThisDomainRefusesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencing(t)
		origin := s.beta.origins.Get(alpha)
		node := func(n int) protocol.Node { return protocol.Node{Domain: alpha, Base: fmt.Sprint("https://", n)} }
		silent := protocol.Standing{State: "unreachable", Error: "connection refused"}

		origin.Theirs.Note(node(1), silent)
		origin.Theirs.Note(node(2), protocol.Standing{
			State: "active", Position: directory.Position{Epoch: 1, Revision: 7},
		})
		time.Sleep(10 * time.Second)
		origin.Theirs.Note(node(1), silent)

		if last, refusal := origin.Theirs.Last(); refusal != "" || last.Position.Revision != 7 {
			t.Errorf("one node of two is cut off: %q %+v", refusal, last)
		}

		origin.Theirs.Note(node(2), silent)

		if _, refusal := origin.Theirs.Last(); refusal != "" {
			t.Errorf("at once: %q", refusal)
		}

		time.Sleep(10 * time.Second)

		if last, refusal := origin.Theirs.Last(); refusal != "unreachable" || last.Error != "connection refused" {
			t.Errorf("ten seconds later: %q %+v", refusal, last)
		}

		alert := &net.OpError{Op: "remote error", Err: tls.AlertError(42)}
		s.beta.client.Failed(node(1), fmt.Errorf("Get: %w", alert))

		if _, refusal := origin.Theirs.Last(); refusal != replica.StateCertificate {
			t.Errorf("a rejected certificate: %q", refusal)
		}
	})
}

// What another domain says is read leniently, and made safe for a terminal.
func TestAStandingIsReadLeniently(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	said := protocol.Standing{State: "frozen", Position: directory.Position{Epoch: 3, Revision: 41}, Page: at,
		Evidence: "abc", Code: protocol.CodeSignature, Refused: at}

	header := http.Header{}
	header.Set(protocol.HeaderStanding, said.String()+"&later=1")

	if got, ok := protocol.ParseStanding(header); !ok || got != said {
		t.Errorf("%+v became %+v", said, got)
	}

	header.Set(protocol.HeaderStanding,
		"state=%1bactive&error=%1b[2J&evidence=%c2%9b&code=%e2%80%ae&position=x&page=-1")

	if got, ok := protocol.ParseStanding(header); !ok || got != (protocol.Standing{State: "?active", Error: "?[2J",
		Evidence: "?", Code: "?"}) {
		t.Errorf("read as %+v, %t", got, ok)
	}

	for _, text := range []string{"", "error=x", "%zz", "state=" + strings.Repeat("x", 4<<10)} {
		header.Set(protocol.HeaderStanding, text)

		if _, ok := protocol.ParseStanding(header); ok {
			t.Errorf("%q has a state", text)
		}
	}
}

// A domain whose peer gets addresses at which nothing answers learns that within 30 seconds, though
// the peer's nodes hold pulls at its node at that moment.
//
// Requirement: OPS-043
func TestADomainSeesSoonThatAPeerCannotReachIt(t *testing.T) {
	for wait := time.Minute; wait < 90*time.Second; wait += 5 * time.Second { // at any moment of a pull
		synctest.Test(t, func(t *testing.T) { seesThatAPeerCannotReachIt(t, wait) })
	}
}

func seesThatAPeerCannotReachIt(t *testing.T, wait time.Duration) {
	w := newWorld()
	us, peer := newModel(alpha, beta), newModel(beta, alpha)
	own := w.open(t, t.TempDir(), 1, us, active(beta, 1, 2, 3))
	us.listKeys(nil, own.keys)

	var (
		moved atomic.Bool
		keys  []*keyring
	)

	for n := 1; n <= 3; n++ {
		node := w.open(t, t.TempDir(), n, peer)
		node.cfg.Peerings = func() []directory.Peering {
			if moved.Load() {
				return []directory.Peering{active(alpha, 9)}
			}

			return []directory.Peering{active(alpha, 1)}
		}
		node.reopen(t)

		keys = append(keys, node.keys)

		defer node.run(t)()
	}

	peer.listKeys(nil, keys...)

	defer own.run(t)() // it asks the nodes, so none of them is opened again any more

	eventually(t, 2*time.Minute, "active", func() bool { return own.Peers()[0].State == "active" })
	time.Sleep(wait)
	moved.Store(true)
	peer.register("agent", 7200) // its nodes look at their peerings

	began := time.Now()

	eventually(t, 30*time.Second, "refused", func() bool {
		is := own.Peers()[0]
		return is.State == "refused" && is.Refusal == "unreachable"
	})
	t.Logf("after %v", time.Since(began))
}
