package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// lose removes the disk of a stopped member.
func (d *domain) lose(i int) {
	d.t.Helper()

	must(d.t, os.RemoveAll(filepath.Join(d.dir, fmt.Sprint(i))))
}

// Two disks of three are lost, and the nodes start in any order: no second history begins, the third
// keeps what was acknowledged, and each says what to do.
//
// Requirement: FLD-023
func TestNoSecondHistoryBegins(t *testing.T) {
	orders := [][]int{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}}
	for _, order := range orders[:directorytest.Sample(len(orders), 3)] {
		inDomain(t, 3, quiet, func(t *testing.T, d *domain) {
			d.register(0, "kept", 600)
			d.settled()

			for i := range 3 {
				d.stop(i)
			}

			d.lose(0)
			d.lose(1)

			for _, i := range order {
				d.start(i)
				time.Sleep(30 * time.Second)
			}

			for i, s := range d.nodes {
				if s.Replica.Position() != (directory.Position{}) && i != 2 || s.Ready() == nil {
					t.Fatalf("order %v: node %d is at %s: %v", order, i, s.Replica.Position(), s.Ready())
				}

				if err := s.Ready(); !strings.Contains(err.Error(), "roster snapshot salvage") {
					t.Errorf("order %v: node %d says %v", order, i, err)
				}
			}

			if last, err := d.nodes[2].storage.disk.Logs.LastIndex(); err != nil || last < 3 {
				t.Errorf("order %v: the log ends at %d: %v", order, last, err)
			}
		})
	}
}

// A member that lost its disk does not vote beside one that was behind: what the two others have
// acknowledged stays.
//
// Requirement: FLD-023
func TestAnEmptyMemberDoesNotVoteBesideOneThatWasBehind(t *testing.T) {
	inDomain(t, 3, quiet, func(t *testing.T, d *domain) {
		d.stop(0)

		var out directory.Outcome

		eventually(t, "two of three take a write", func() (ok bool) {
			var err error
			out, err = d.nodes[1].Register(t.Context(), put(t, ada, "kept", 600))

			return err == nil
		})
		d.stop(1)
		d.stop(2)
		d.lose(1)
		d.start(1)
		d.start(0)
		time.Sleep(time.Minute)

		for _, i := range []int{0, 1} {
			if leader, ok := d.nodes[i].Leader(); ok {
				t.Fatalf("%s leads without what was acknowledged", leader)
			}
		}

		if err := d.nodes[0].Ready(); !strings.Contains(err.Error(), d.members[1].ID.String()) {
			t.Errorf("the member that was behind says %v", err)
		}

		d.start(2)
		eventually(t, "the two with disks have a leader", func() bool {
			return d.nodes[0].Ready() == nil && d.nodes[2].Ready() == nil
		})
		d.letIn(1)
		d.ready()
		d.settled()

		for i, s := range d.nodes {
			if _, ok := s.cfg.Index.Get(out.RID); !ok {
				t.Errorf("node %d lacks what was acknowledged", i)
			}
		}
	})
}

// A domain begins without a node that an operator has given up. If that node has a history after all, it
// stops and names both.
//
// Requirement: FLD-023
func TestTwoHistoriesRefuseEachOther(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		d.register(0, "old", 600)

		d.settled()
		before := d.nodes[2].storage.history().String()

		for i := range 3 {
			d.stop(i)
		}

		d.lose(0)
		d.lose(1)
		d.tune = func(c *Config) { c.BeginWithout = []string{d.members[2].Address} }
		d.start(0)
		d.start(1)
		eventually(t, "the two begin a domain", func() bool {
			return d.nodes[0].Ready() == nil && d.nodes[1].Ready() == nil
		})

		after := d.nodes[0].storage.history().String()

		d.tune = nil
		d.start(2)
		eventually(t, "the third stops", func() bool { return d.nodes[2].life.failure() != nil })

		if err := d.nodes[2].Ready(); !errors.Is(err, ErrOtherHistory) || !strings.Contains(err.Error(), before) ||
			!strings.Contains(err.Error(), after) {
			t.Errorf("it does not name both: %v", err)
		}

		if others := d.nodes[0].histories.list(); others[d.members[2].ID].History.String() != before {
			t.Errorf("the others know %v", others)
		}

		for _, i := range []int{0, 1} {
			if err := d.nodes[i].Ready(); err != nil {
				t.Errorf("node %d, of the majority: %v", i, err)
			}
		}
	})
}

// Nodes with disks and one history find each other wherever they are by now: all addresses have changed.
//
// Requirement: FLD-025
func TestAllMembersMoveAtOnce(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		out := d.register(0, "kept", 600)

		d.settled()

		for i := range 3 {
			d.stop(i)
		}

		for i := range d.members {
			d.members[i].Address = fmt.Sprintf("moved%d.alpha.test:7000", i)
		}

		began := time.Now()

		for i := range 3 {
			d.start(i)
		}

		d.leader()

		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a leader after %s", took)
		}

		eventually(t, "the group has the new addresses", func() bool {
			for _, s := range d.nodes {
				for _, m := range d.members {
					if at, ok := s.group.server(m.ID); !ok || !at.voter || at.Address != m.Address {
						return false
					}
				}
			}

			return true
		})
		t.Logf("moved after %s", time.Since(began))
		d.ready()

		if _, ok := d.nodes[2].cfg.Index.Get(out.RID); !ok {
			t.Error("a registration is lost")
		}
	})
}
