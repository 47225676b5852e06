package consensus

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// The leader that decides grants anew is lost when it is half through. The next one
// does the rest, and what it decides is what the members make of it themselves.
//
// Requirement: TRUST-013
func TestTheNextLeaderDecidesTheRestAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 6 * state.MaxSwept

		var narrow atomic.Bool

		var half atomic.Pointer[directory.RID] // behind it the first leader gets no answers

		var lost atomic.Pointer[string]
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		d := newDomain(t, 3, func(c *Config) {
			self := c.Node.String()
			c.Grants = func(s Subject) []directory.Grant {
				if !narrow.Load() {
					return []directory.Grant{{Audience: directory.Mesh, All: true}}
				}

				if name := lost.Load(); name != nil && *name == self && half.Load().Compare(s.RID) < 0 {
					<-release
				}

				return []directory.Grant{{Audience: directory.Mesh, Reg: []string{"agent", "kind"},
					Doc: []string{"base"}}}
			}
		})
		defer free() // before the members are closed, which wait for it
		d.ready()
		leader, other := d.leader()
		rids := make([]directory.RID, many)

		var writers sync.WaitGroup
		for w := range 16 {
			writers.Go(func() {
				for i := w; i < many; i += 16 {
					out, err := d.nodes[leader].Register(t.Context(), put(t, ada, fmt.Sprint("agent-", i), 86400))
					if err != nil {
						t.Error(err)
						return
					}

					rids[i] = out.RID
				}
			})
		}

		writers.Wait()

		if t.Failed() {
			return
		}

		slices.SortFunc(rids, directory.RID.Compare)
		middle := rids[many/2]
		name := d.members[leader].ID.String()
		half.Store(&middle)
		lost.Store(&name)
		narrow.Store(true)

		d.setPolicy(t.Context(), leader, "permit (principal, action, resource);")

		narrowed := func(s *Store) (n int) {
			for _, rid := range rids {
				if reg := s.Replica.registration(rid); reg != nil && len(reg.Grants()) == 1 && !reg.Grants()[0].All {
					n++
				}
			}

			return n
		}
		eventually(t, "a part has its new grants", func() bool { return narrowed(d.nodes[other]) >= 2*state.MaxSwept })

		if n := narrowed(d.nodes[other]); n > many/2+1 {
			t.Fatalf("%d of %d have new grants, and the leader wasn't answered about so many", n, many)
		}

		d.net.isolate(d.members[leader].Address) // a kill as the others see it
		gone := d.nodes[leader]

		d.nodes[leader] = nil
		for i, s := range d.nodes {
			if s != nil {
				eventually(t, fmt.Sprintf("all have new grants at %d", i), func() bool { return narrowed(s) == many })
			}
		}

		for _, rid := range rids {
			reg := d.nodes[other].Replica.registration(rid)

			a, in := d.nodes[other].Replica.Current(rid, directory.Mesh)
			if want := reg.Shown(reg.Grants()); !in || !bytes.Equal(a.M[:], want) {
				t.Errorf("%s is announced as %v, and shows %x", rid, a, want)
			}
		}

		free()

		must(t, gone.Close())
	})
}
