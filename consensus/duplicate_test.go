package consensus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A machine is cloned with its disk, a follower's or the leader's. The second process is refused the
// seat and takes no part in elections, the domain keeps its voters, and every member names both
// addresses. Once it has ended nothing is said of it.
//
// Requirement: FLD-027
func TestAClonedMachineDoesNotTakeTheSeat(t *testing.T) {
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			inDomain(t, 3, nil, func(t *testing.T, d *domain) {
				_, victim := d.leader()
				clone := d.clone(victim, "clone.alpha.test:7000")
				d.ready()

				if role == "leader" {
					must(t, d.nodes[victim].Transfer(t.Context(), d.members[victim].ID))
				}

				second, err := clone.open(victim)
				must(t, err)

				clone.nodes[victim] = second

				for range 60 {
					time.Sleep(500 * time.Millisecond)

					for _, node := range d.nodes {
						for _, m := range node.group.servers() {
							if !m.voter || !slices.Contains(d.members, m.Member) {
								t.Fatalf("the members are %v", node.group.servers())
							}
						}
					}
				}

				for i, node := range d.nodes {
					for _, p := range node.Contacts() {
						want := ""
						if p.ID == d.members[victim].ID {
							want = clone.members[victim].Address
						}

						if p.Duplicate != want {
							t.Errorf("node %d names %q as the second %s, want %q", i, p.Duplicate, p.ID, want)
						}
					}
				}

				if err := second.Ready(); err == nil || !strings.Contains(err.Error(), d.members[victim].Address) ||
					!strings.Contains(err.Error(), clone.members[victim].Address) {
					t.Errorf("the second process is ready, or does not say why not: %v", err)
				}

				d.register(victim, "held", 600)

				clone.stop(victim)
				time.Sleep(2 * duplicateKept)

				for i, node := range d.nodes {
					for _, p := range node.Contacts() {
						if p.Duplicate != "" {
							t.Errorf("node %d still names %q", i, p.Duplicate)
						}
					}
				}
			})
		})
	}
}

// A clone whose configuration has the same address, as behind one name of DNS, is distinguished from the member by the
// machine that it asks from.
//
// Requirement: FLD-027
func TestACloneWithTheSameAddressIsNamed(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		_, victim := d.leader()
		clone := d.clone(victim, d.members[victim].Address)
		d.ready()

		second, err := clone.open(victim)
		must(t, err)

		clone.nodes[victim] = second

		time.Sleep(10 * time.Second)

		const want = " (declares the same address)"

		for i, node := range d.nodes {
			for _, p := range node.Contacts() {
				if i != victim && strings.HasSuffix(p.Duplicate, want) != (p.ID == d.members[victim].ID) {
					t.Errorf("node %d names %q as the second %s", i, p.Duplicate, p.ID)
				}
			}
		}

		// One of the two has the seat, and the other one says why it is not ready.
		first, other := d.nodes[victim].Ready(), second.Ready()
		if (first == nil) == (other == nil) || !strings.Contains(fmt.Sprint(first, other), want) {
			t.Errorf("the first is ready: %v; the second: %v", first, other)
		}

		// Once the one has ended, the other one takes the seat, and speaks to the members again.
		rest := second
		if first == nil {
			d.stop(victim)
		} else {
			rest = d.nodes[victim]
			clone.stop(victim)
		}

		time.Sleep(2 * duplicateKept)

		if err := rest.Ready(); err != nil || rest.group.duplicate.Load() {
			t.Errorf("the other one without the first is ready: %v, and silent: %t", err, rest.group.duplicate.Load())
		}
	})
}

// clone copies a member's disk to a machine with another address. Its domain has no other nodes.
func (d *domain) clone(i int, address string) *domain {
	d.t.Helper()
	d.stop(i)

	clone := &domain{t: d.t, ca: d.ca, net: d.net, dir: d.t.TempDir(), members: slices.Clone(d.members),
		nodes: make([]*Store, len(d.nodes)), tune: d.tune}
	clone.members[i].Address = address

	must(d.t, os.CopyFS(filepath.Join(clone.dir, fmt.Sprint(i)),
		os.DirFS(filepath.Join(d.dir, fmt.Sprint(i)))))

	d.start(i)
	d.t.Cleanup(clone.close)

	return clone
}
