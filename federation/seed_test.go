package federation

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A pair is alpha, two nodes of beta, and gamma, which relays.
type pair struct {
	*squad
	b2 *site
}

func newPair(t *testing.T) *pair {
	p := &pair{squad: newSquad(t)}

	p.b2 = p.world.open(t, t.TempDir(), 2, p.b.self, active(alpha, 1), active(gamma, 1))
	for _, n := range []*site{p.b, p.b2} {
		other := map[*site]*site{p.b: p.b2, p.b2: p.b}[n]
		n.cfg.Siblings = func() []string { return []string{other.base} }
		n.reopen(t)
	}

	p.b.self.listKeys(nil, p.b.keys, p.b2.keys)

	return p
}

// cut says what doesn't come through from now on.
func (p *pair) cut(cut func(from, to string) bool) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.cut = cut
}

// between cuts what goes between two of these bases.
func between(bases ...string) func(from, to string) bool {
	return func(from, to string) bool { return slices.Contains(bases, from) && slices.Contains(bases, to) }
}

// A node that lost its disk takes from its siblings how far they are before it takes
// anything from anybody: a relay that was away shows it nothing that is over, of an
// epoch that is over or of the same one.
//
// Requirement: MESH-018
func TestALostDiskIsSeededBySiblings(t *testing.T) {
	for name, over := range map[string]func(*model, directory.RID){
		"removed":  func(o *model, rid directory.RID) { o.remove(rid) },
		"restored": func(o *model, _ directory.RID) { time.Sleep(11 * time.Second); o.restore() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				rid := p.origin.register("agent", 86400)
				alone := p.origin.register("alone", 86400)
				p.origin.grant(alone, directory.Only(beta), true)
				p.origin.export(alone, false)
				stops := []func(){p.a.run(t), p.b.run(t), p.b2.run(t), p.g.run(t)}
				eventually(t, 10*time.Second, "all have it", func() bool {
					return len(p.b.shown(alpha)) == 2 && len(p.b2.shown(alpha)) == 2 && len(p.g.shown(alpha)) == 1
				})
				stops[2]()
				must(t, p.b2.Close())
				must(t, os.Remove(filepath.Join(p.b2.cfg.Dir, "federation.db")))
				p.cut(between(p.g.base, p.a.base))
				over(p.origin, rid)
				p.origin.listKeys(nil, p.a.keys)
				eventually(t, 3*time.Minute, "the sibling knows that it is over", func() bool {
					return p.b.shown(alpha)[rid] == nil
				})
				at, _ := p.b.Position(alpha)
				private := len(p.b.shown(alpha))

				p.cut(func(from, to string) bool { return from != to && (from == p.a.base || to == p.a.base) })
				p.b2.Mesh = nil
				p.b2.reopen(t)

				stops[2] = p.b2.run(t)
				for range 300 {
					time.Sleep(time.Second)

					if p.b2.shown(alpha)[rid] != nil {
						t.Fatal("what is over is shown again")
					}
				}

				if now, ok := p.b2.Position(alpha); !ok || now.Before(at) || len(p.b2.shown(alpha)) != private {
					t.Errorf("it is at %v and shows %d; its sibling was at %v and shows %d", now,
						len(p.b2.shown(alpha)), at, private)
				}

				for _, stop := range stops {
					stop()
				}
			})
		})
	}
}

// A judge is a Court to which all evidence convicts alpha, until it doesn't.
type judge struct{ acquits bool }

func (j *judge) Accuse(spiffeid.TrustDomain, []string, []string) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

func (j *judge) Judge([]byte, bool) (evidence.Conviction, error) {
	if j.acquits {
		return evidence.Conviction{}, errors.New("its key is revoked")
	}

	return evidence.Conviction{Origin: alpha, ID: "E1-a"}, nil
}

func (j *judge) Freeze(context.Context, spiffeid.TrustDomain) error { return nil }

// A frozen domain is released by what all nodes have against it: evidence that
// another node has counts as one's own does, and who can't be asked may have some.
//
// Requirement: MESH-022
func TestAReleaseAsksAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)

		court := new(judge)
		for _, n := range []*site{p.b, p.b2} {
			n.cfg.Verifier = court
			n.reopen(t)
		}

		problem := func() directory.Problem { return directory.ProblemOf(p.b.MayRelease(t.Context(), alpha)) }

		if err := p.b.MayRelease(t.Context(), alpha); err != nil {
			t.Errorf("nobody has anything: %v", err)
		}

		must(t, os.WriteFile(p.b2.evidence.cases.Path(alpha, "E1-a", evidence.KeptSuffix), []byte("{}"), 0o600))
		p.b2.reopen(t)

		if err := p.b.MayRelease(t.Context(), alpha); directory.ProblemOf(err) != directory.Conflict ||
			!strings.Contains(err.Error(), "E1-a") {
			t.Errorf("the other node has evidence: %v", err)
		}

		p.cut(between(p.b.base, p.b2.base))

		if got := problem(); got != directory.Unavailable {
			t.Errorf("the other node doesn't answer: %q", got)
		}

		must(t, os.WriteFile(p.b.evidence.cases.Path(alpha, "E1-b", evidence.KeptSuffix), []byte("{}"), 0o600))
		p.b.reopen(t)
		court.acquits = true

		if err := p.b.MayRelease(t.Context(), alpha); err != nil {
			t.Errorf("it knows the evidence, which convicts no more: %v", err)
		}

		p.cut(nil)

		if err := p.b.MayRelease(t.Context(), alpha); err != nil {
			t.Errorf("none of all convicts: %v", err)
		}

		court.acquits = false

		for from, want := range map[*site]int{p.g: http.StatusForbidden, p.b2: http.StatusOK} {
			res, err := from.cfg.Client(beta).Get(p.b.base + protocol.PathEvidence + "?origin=alpha.test")
			if err != nil || res.StatusCode != want {
				t.Errorf("%s gets %v, %v", from.base, res, err)
			}
		}
	})
}
