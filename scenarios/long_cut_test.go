package scenarios

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A cut mesh heals by itself: nine nodes (three under -short), cut between all domains
// for so long that their gossip has given each other up, show the same agents two
// rounds and a pull after the heal, with all that changed meanwhile.
//
// The cut lasts for ten minutes, and for a week in the long run. On each of its days
// agents come, are refreshed, end and are left to expire, keys are rotated and SVIDs
// renewed, and another node leads; on one of them nodes are killed. In the quiet hours
// the nodes' own rounds would be nearly the whole cost: they are slowed for the week,
// and those of Raft and memberlist for the whole story. The last hour runs at
// federation's usual pace, so that the heal is that of nodes with their usual timing.
//
// Requirement: MESH-015
func TestACutMeshHeals(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		week := long(1, 0) == 1

		w := &cutStory{rng: rand.New(rand.NewPCG(seed, 15)), day: 10 * time.Minute, days: 1, changed: map[string]int{}}
		if week {
			w.day, w.days = 24*time.Hour, 7
		}

		w.m = mesh.Start(t, mesh.Options{
			Domains: 3, Nodes: directorytest.Sample(3, 1), Seed: seed, Link: wan, Unhurried: true, Silent: week,
			SVIDs:     2*w.day + time.Hour,
			Configure: func(c *config.Config) { c.Lifetimes.Max = 30 * 86400 },
		})
		w.begin()
		w.m.Drowse(week)

		for i := range w.days {
			w.live(i)
		}

		w.m.Drowse(false)
		w.end(time.Duration(long(70, 5)) * time.Minute) // the longest that a slow node waits is 66 minutes
	})
}

// cutStory is a mesh of domains that are cut from each other.
type cutStory struct {
	m         *mesh.Mesh
	rng       *rand.Rand
	day       time.Duration
	days      int
	refreshed []*mesh.Agent // each day, and lives for two
	stays     []*mesh.Agent // for a month
	ended     []*mesh.Agent // removed or left to expire, by the heal
	changed   map[string]int
}

// lifetime returns how long so many days are, in seconds.
func (w *cutStory) lifetime(days float64) uint32 { return uint32(days * w.day.Seconds()) }

// begin cuts the domains once each shows the others' agents.
func (w *cutStory) begin() {
	for _, d := range w.m.Domains {
		w.stays = append(w.stays, w.m.Register(d.Name, "stays", 30*86400))
		w.refreshed = append(w.refreshed, w.m.Register(d.Name, "refreshed", w.lifetime(2)))
		w.ended = append(w.ended, w.m.Register(d.Name, "expires", w.lifetime(0.5)),
			w.m.Register(d.Name, "goes", 30*86400))
	}

	all := append(append(append([]*mesh.Agent(nil), w.stays...), w.refreshed...), w.ended...)
	w.m.Eventually(10*time.Second, "all are seen everywhere", func() error { return w.m.Seen(all...) })

	for _, d := range w.m.Domains {
		w.m.CutOff(d.Name)
	}
}

// live has a day pass at each domain.
func (w *cutStory) live(day int) {
	evening := time.Now().Add(w.day)
	for i, d := range w.m.Domains {
		for _, kind := range []string{"comes-and-goes-", "comes-and-expires-"} {
			w.ended = append(w.ended, w.m.Register(d.Name, fmt.Sprint(kind, day), w.lifetime(0.4)))
		}

		w.done(w.ended[len(w.ended)-2], w.remove)
		w.done(w.refreshed[i], w.m.TryRefresh)
		w.m.Domain(d.Name).Renew()
		d.Nodes[w.rng.IntN(len(d.Nodes))].RotateKey()
	}

	if len(w.m.Domains[0].Nodes) > 1 {
		w.depose()
	}

	if day == w.days/2 {
		for _, d := range w.m.Domains {
			killed(w.m, d.Nodes[w.rng.IntN(len(d.Nodes))]).Restart()
		}
	}

	sleepUntil(w.m, evening)

	for _, a := range w.ended {
		if !time.Now().Before(a.Until) {
			w.m.Abandon(a)
		}
	}
}

// done repeats a write until it is known to be done: members that learn of a commit
// after a minute may answer too late.
func (w *cutStory) done(a *mesh.Agent, write func(*mesh.Agent) error) {
	w.m.Eventually(5*time.Minute, a.Name+" is changed", func() error { return write(a) })
}

func (w *cutStory) remove(a *mesh.Agent) error {
	err := w.m.TryRemove(a)

	var refusal *apiclient.Error
	if errors.As(err, &refusal) && refusal.Status == http.StatusNotFound { // by the time before
		w.m.Abandon(a)
		return nil
	}

	return err
}

// depose cuts the leader of each domain off from its others until one of them leads.
func (w *cutStory) depose() {
	before := map[string]*mesh.Node{}
	for _, d := range w.m.Domains {
		before[d.Name] = w.m.Domain(d.Name).Leader()
		w.m.Isolate(before[d.Name])
	}

	w.m.Sleep(w.day / 10)

	for _, n := range before {
		n.Rejoin()
	}

	w.m.Sleep(w.day / 10)

	for _, d := range w.m.Domains {
		if w.m.Domain(d.Name).Leader() != before[d.Name] {
			w.changed[d.Name]++
		}
	}
}

// end heals the mesh some time after the last changes.
func (w *cutStory) end(after time.Duration) {
	m, t := w.m, w.m.T
	for i, d := range m.Domains {
		w.stays = append(w.stays, m.Register(d.Name, "new", 7*86400))
		w.done(w.ended[2*i+1], w.remove)
		w.done(w.refreshed[i], m.TryRefresh)

		if len(d.Nodes) > 1 && w.changed[d.Name] == 0 {
			t.Errorf("%s never changed its leader", d.Name)
		}
	}

	m.Sleep(after)

	if m.Pooled() == nil {
		t.Error("gossip still holds together: the cut was too short to show anything")
	}

	m.Heal()
	took := m.Eventually(rounds, "all views are equal", func() error {
		if err := m.Gone(w.ended...); err != nil {
			return err
		}

		return m.Seen(append(w.stays, w.refreshed...)...)
	})
	t.Logf("healed after %v; leaders changed: %v", took, w.changed)

	if err := m.Equal(); err != nil {
		t.Error(err)
	}

	if err := m.Frozen(); err != nil {
		t.Error(err)
	}

	m.Eventually(5*time.Minute, "gossip has found everybody again", m.Pooled)
	m.Sleep(30 * time.Second) // who was refused for so long tries again less often
	last := m.Register("alpha.test", "last", 3600)
	m.Eventually(10*time.Second, "a change crosses as ever", func() error { return m.Seen(last) })
}
