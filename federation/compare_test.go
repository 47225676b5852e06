package federation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

// What an origin says of a revision that is here is compared with what it said when that
// came, also where it was replaced since. What one page lists alone contradicts nothing,
// nor does what is newer, of another epoch, or a renewal by another word.
//
// Requirement: MESH-022
func TestWhatContradictsWhatIsHere(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rids := b.origin.registers(3, 600)

		b.pull()
		first := b.origin.regs[rids[0]].announced
		b.origin.replace(rids[0], 600)
		b.pull()
		now := b.origin.regs[rids[1]].announced
		o := b.beta.origins.Get(alpha)
		says := func(epoch uint64, ds ...signed.Digest) *replica.Page {
			return &replica.Page{Page: &signed.Page{Issuer: alpha, Epoch: epoch, Audience: directory.Mesh, To: 100,
				At: 100, Digests: ds}, Text: "said"}
		}
		changed := func(d signed.Digest, f func(*signed.Digest)) signed.Digest { f(&d); return d }
		later := func(d *signed.Digest) { d.Deadline++ }

		epoch := b.origin.epoch
		for name, c := range map[string]struct {
			page *replica.Page
			want bool
		}{
			"the same":         {says(epoch, first, now), false},
			"nothing":          {says(epoch), false},
			"another deadline": {says(epoch, changed(now, later)), true},
			"another end": {says(epoch,
				signed.Digest{RID: now.RID, Revision: now.Revision, Op: signed.OpEnd, H: now.H}), true},
			"of what was replaced":   {says(epoch, changed(first, later)), true},
			"after what is the same": {says(epoch, first, changed(now, later)), true},
			"renewed": {says(epoch, changed(now, func(d *signed.Digest) {
				d.Op = signed.OpRenew
			})), false},
			"another registration": {says(epoch, changed(now, func(d *signed.Digest) {
				d.RID = ridOf(alpha, 99)
			})), false},
			"another revision": {says(epoch, changed(now, func(d *signed.Digest) { d.Revision-- })), false},
			"newer": {says(epoch, changed(now, func(d *signed.Digest) {
				d.Revision = 99
			})), false},
			"newer, and after the same": {says(epoch, now, changed(now, func(d *signed.Digest) {
				d.Revision = 99
			})), false},
			"another epoch":              {says(epoch+1, changed(now, later)), false},
			"the page that brought this": {nil, false},
		} {
			if c.page == nil {
				must(t, b.beta.store.Read(o.Mesh.Cur.Id, func(tx *store.Tx) error {
					page, _, err := tx.PageOf(first.Revision)
					c.page = says(epoch, changed(first, later))
					c.page.Text = page.JWS

					return err
				}))
			}

			other, err := o.Contradicted(c.page)
			if err != nil || (other != "") != c.want {
				t.Errorf("%s: contradicted %v, %v", name, other != "", err)
			}

			if c.want && b.beta.receiver.oldPage(o, other) == nil {
				t.Errorf("%s: it is contradicted by %q", name, other)
			}
		}

		compared := 0
		for other := "first"; other != "" && compared < 1000; compared++ {
			var err error

			other, err = o.Contradicted(says(epoch, changed(now, later)))
			must(t, err)
		}

		if compared == 1000 {
			t.Error("comparisons have no pace")
		}
	})
}

// What another has of a stream is compared as far as it goes on, and so much at a time.
//
// Requirement: MESH-022
func TestComparingIsBounded(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		const more = 5
		for i := range crossPages + more {
			b.origin.register(fmt.Sprint("agent-", i), 600)
			b.pull()
		}

		self := protocol.Node{Domain: beta, Base: b.beta.base}
		o := b.beta.origins.Get(alpha)
		must(t, b.beta.receiver.askHead(t.Context(), o, b.giver()))
		upTo := o.Since(&o.Mesh)

		reached, whole, err := b.beta.follower.crossCheck(t.Context(), o, &o.Mesh, self, 0, upTo)
		if err != nil || !whole || reached != upTo-more {
			t.Errorf("it is compared up to %d of %d: %v %v", reached, upTo, whole, err)
		}

		if reached, whole, err := b.beta.follower.crossCheck(t.Context(), o, &o.Mesh, self, reached,
			upTo); err != nil || !whole || reached != upTo {
			t.Errorf("and then up to %d: %v %v", reached, whole, err)
		}

		if _, whole, err := b.beta.follower.crossCheck(t.Context(), o, &o.Mesh, self, upTo,
			upTo+1); err != nil || whole {
			t.Errorf("one that is behind: %v %v", whole, err)
		}

		b.beta.follower.peers.cfg.Siblings = func() []string { return []string{self.Base} }

		for _, behind := range []uint64{0, 1} {
			_, enough := b.beta.follower.crossSiblings(t.Context(), o, &o.Mesh, upTo, upTo+behind)
			if enough != (behind == 0) {
				t.Errorf("compared with a sibling that is %d behind: enough %t", behind, enough)
			}
		}
	})
}

// A new key document is compared with up to 16 other domains, because those that are behind have an older one.
//
// Requirement: MESH-022
func TestKeyDocumentsAreComparedWithAllDomains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, self := newWorld(), newModel(alpha, beta)
		a := w.open(t, t.TempDir(), 1, self, active(beta, 1))
		self.listKeys(nil, a.keys)

		var (
			asked    []string
			peerings = []directory.Peering{active(alpha, 1)}
		)

		head, err := a.publisher.Head()
		must(t, err)

		for _, name := range []string{"gamma.test", "delta.test", "epsilon.test", "zeta.test", "eta.test"} {
			td := spiffeid.RequireTrustDomainFromString(name)
			peerings = append(peerings, active(td, 1))
			w.open(t, t.TempDir(), 1, newModel(td), active(alpha, 1)).serve(protocol.PathHeads, func(string) string {
				asked = append(asked, name)
				return head
			})
		}

		b := w.open(t, t.TempDir(), 1, newModel(beta, alpha), peerings...)
		b.cfg.Verifier = &believer{func(spiffeid.TrustDomain) {}}
		b.reopen(t)

		o := b.origins.Get(alpha)
		must(t, b.receiver.refreshKeys(t.Context(), o, protocol.Node{Domain: alpha, Base: a.base}))

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.follower.crossChecks(ctx, o)
		}()

		time.Sleep(10 * time.Minute)
		stop()
		<-done

		times := len(asked)

		slices.Sort(asked)

		if asked = slices.Compact(asked); len(asked) != len(peerings)-1 || times >= 2*len(asked) {
			t.Errorf("asked are %q, %d times in all", asked, times)
		}
	})
}

// serve has a node answer requests for files below a prefix.
func (s *site) serve(prefix string, file func(path string) string) {
	next := s.http
	s.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, prefix) {
			next.ServeHTTP(w, r)
			return
		}

		_, _ = io.WriteString(w, file(r.URL.Path))
	})
}
