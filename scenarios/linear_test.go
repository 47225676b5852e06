package scenarios

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A linearizable read is never stale: while agents register, replace, remove and read
// the same names at all nodes of a domain of three, its leader is isolated, cut off in
// one direction or the other, frozen, and killed. The responses are those of a directory
// that does one thing at a time. The checker finds a planted stale read.
//
// Requirement: OPS-017
func TestLinearizableReadsAreNeverStale(t *testing.T) {
	runStory(t, 3, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Nodes: 3, Seed: seed, Link: wan})
		h := newHistory()
		stop := h.start(t, m, seed, "linearizable")

		rng := rand.New(rand.NewPCG(seed, 1))
		for _, f := range rng.Perm(len(faults))[:directorytest.Sample(len(faults), 2)] {
			time.Sleep(time.Second)
			leader := m.Domain("alpha.test").Leader()
			before, _ := h.answers()
			end := faults[f].begin(m, leader)
			time.Sleep(2*time.Second + time.Duration(rng.Int64N(int64(4*time.Second))))
			end()
			m.Eventually(20*time.Second, "reads are answered again after the leader was "+faults[f].name, func() error {
				if now, _ := h.answers(); now < before+20 {
					return fmt.Errorf("%d are", now-before)
				}

				return nil
			})
		}

		stop()
		h.check(t)
	})
}

// faults are applied to a leader; begin returns the function that ends one.
var faults = []struct {
	name  string
	begin func(m *mesh.Mesh, leader *mesh.Node) func()
}{
	{"isolated", func(m *mesh.Mesh, leader *mesh.Node) func() {
		m.Isolate(leader)
		return m.Heal
	}},
	{"not heard", func(m *mesh.Mesh, leader *mesh.Node) func() {
		for _, o := range leader.Others() {
			leader.CutOneWay(o)
		}

		return m.Heal
	}},
	{"deaf", func(m *mesh.Mesh, leader *mesh.Node) func() {
		for _, o := range leader.Others() {
			o.CutOneWay(leader)
		}

		return m.Heal
	}},
	{"frozen", func(m *mesh.Mesh, leader *mesh.Node) func() {
		m.Freeze(leader)
		return func() { m.Thaw(leader) }
	}},
	{"killed", func(m *mesh.Mesh, leader *mesh.Node) func() {
		leader.Kill()
		return func() { leader.Restart() }
	}},
}

func newHistory() *history { return &history{rids: map[string]string{}} }

// start lets three clients work at each node until the returned function is called.
func (h *history) start(t *testing.T, m *mesh.Mesh, seed uint64, consistency string) (stop func()) {
	done := make(chan struct{})

	var clients sync.WaitGroup
	for i, n := range m.Domain("alpha.test").Nodes {
		node := apiclient.NewDirect(n.URL(), n.HTTP("/agent/ada"))
		for j := range 3 {
			c := &linearClient{
				history: h, id: i*3 + j, node: node, names: []string{"one", "two", "three"}, consistency: consistency,
				timeout: 8 * time.Second, pause: 150 * time.Millisecond,
				rng: rand.New(rand.NewPCG(seed, uint64(i*3+j+2))),
			}
			clients.Go(func() { c.run(t, done) })
		}
	}

	return func() {
		close(done)
		clients.Wait()
	}
}

// Without asking for it a read may be stale, and then the checker says so: at a
// leader that was cut off, the past is still the present.
// Asked for linearizably it refuses, within a second.
//
// Requirement: OPS-017
func TestALeaderThatIsCutOffRefusesLinearizableReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Nodes: 3, Link: wan})
		h := newHistory()
		leader := m.Domain("alpha.test").Leader()
		at := func(n *mesh.Node, consistency string) *linearClient {
			return &linearClient{history: h, node: apiclient.NewDirect(n.URL(), n.HTTP("/agent/ada")),
				consistency: consistency, timeout: 8 * time.Second, rng: rand.New(rand.NewPCG(1, 1))}
		}
		at(leader, "").register(t, "weather", "old")
		m.Isolate(leader)

		other := leader.Others()[0]
		for _, writes := h.answers(); writes < 2; _, writes = h.answers() {
			at(other, "").register(t, "weather", "new") // until there is a new leader
		}

		for range 3 {
			began := time.Now()
			at(leader, "linearizable").read(t, "weather")

			if took := time.Since(began); took > time.Second {
				t.Errorf("to refuse took %s", took)
			}
		}

		if reads, _ := h.answers(); reads != 0 {
			t.Error("a linearizable read was answered without a majority")
		}

		at(other, "linearizable").read(t, "weather")

		if r := verdict(h.ops); r != porcupine.Ok {
			t.Errorf("the linearizable history is found %s", r)
		}

		at(leader, "default").read(t, "weather")

		if r := verdict(h.ops); r != porcupine.Illegal {
			t.Errorf("with a default read at the old leader the history is found %s", r)
		}
	})
}

// An unknown outcome is reported as such: a leader that is cut off in the middle of a
// write answers that the write may have happened and is safe to repeat. Repeated
// elsewhere, it takes effect once, also after the old leader is back.
func TestAnUnknownOutcomeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Nodes: 3, Link: wan})
		leader := m.Domain("alpha.test").Leader()
		client := func(n *mesh.Node) *apiclient.Client { return apiclient.NewDirect(n.URL(), n.HTTP("/agent/ada")) }
		document := []byte(`{"base":"https://agents.example/weather"}`)
		register := func(n *mesh.Node) (*apiclient.Registered, error) {
			return client(n).Register(t.Context(), "weather", document, apiclient.RegisterOptions{Lifetime: time.Hour})
		}
		m.Isolate(leader)
		_, err := register(leader)

		var refusal *apiclient.Error
		for range 20 { // it may lose its lease before the write comes: then it says so
			if !errors.As(err, &refusal) || refusal.Code != string(directory.Unavailable) {
				break
			}

			m.Heal()
			m.Eventually(time.Minute, "the domain has a leader", func() error {
				_, err := client(leader).Lookup(t.Context(),
					apiclient.LookupOptions{ReadOptions: apiclient.ReadOptions{Consistency: "linearizable"}})

				return err
			})
			leader = m.Domain("alpha.test").Leader()
			m.Isolate(leader)
			_, err = register(leader)
		}

		if !errors.As(err, &refusal) || refusal.Code != string(directory.OutcomeUnknown) || refusal.Status != 503 {
			t.Fatalf("the leader that is cut off answers %v", err)
		}

		if refusal.Header.Get("Retry-After") == "" || refusal.RetryAfter() == 0 ||
			refusal.Detail != "The outcome is unknown; it is safe to repeat the request." {
			t.Errorf("the refusal is %s with Retry-After %q", refusal.Body, refusal.Header.Get("Retry-After"))
		}

		_, err = register(leader)
		if !errors.As(err, &refusal) || refusal.Code != string(directory.Unavailable) {
			t.Errorf("when it knows that it does not lead it answers %v", err)
		}

		first, err := register(leader.Others()[0])
		if err != nil {
			t.Fatal(err)
		}

		m.Heal()

		for _, n := range m.Living() {
			m.Eventually(20*time.Second, n.Name+" shows it", func() error {
				list, err := client(n).Lookup(t.Context(),
					apiclient.LookupOptions{ReadOptions: apiclient.ReadOptions{Consistency: "linearizable"}})
				if err == nil && (len(list.Agents) != 1 || list.Agents[0].RID() != first.RID) {
					t.Fatalf("%s shows %+v", n.Name, list.Agents)
				}

				return err
			})
		}

		if again, err := register(leader); err != nil || again.Created || again.RID != first.RID {
			t.Errorf("repeated at the old leader: %+v, %v", again, err)
		}
	})
}

// An agent's write in its own domain is readable in another at once, by the index in the
// write's response.
func TestReadYourWritesInAnotherDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 1, Link: wan})
		home := m.Domain("alpha.test").Nodes[0]
		abroad := m.Domain("beta.test").Nodes[0]
		writer := apiclient.NewDirect(home.URL(), home.HTTP("/agent/ada"))

		reader := apiclient.NewDirect(abroad.URL(), abroad.HTTP("/client/reader"))
		for i := range 20 {
			name := fmt.Sprint("agent-", i)

			out, err := writer.Register(t.Context(), name, []byte(`{"base":"https://agents.example/"}`),
				apiclient.RegisterOptions{Lifetime: 10 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}

			got, err := reader.GetFresh(t.Context(), name, apiclient.ReadOptions{Min: []string{out.Index()}})
			if err != nil || got.RID() != out.RID {
				t.Fatalf("%s at %s: %+v, %v", name, out.Index(), got, err)
			}

			if i%2 == 0 {
				continue
			}

			// A refresh doesn't change the other domain's stream; its index is reached
			// by the head.
			again, err := writer.Refresh(t.Context(), out.RID, 0)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := reader.Lookup(t.Context(),
				apiclient.LookupOptions{ReadOptions: apiclient.ReadOptions{Min: []string{again.Index()}}}); err != nil {
				t.Errorf("a refresh's index %s: %v", again.Index(), err)
			}
		}

		m.Cut("alpha.test", "beta.test")

		out, err := writer.Register(t.Context(), "unheard", []byte(`{"base":"https://agents.example/"}`),
			apiclient.RegisterOptions{Lifetime: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}

		began := time.Now()
		_, err = reader.Lookup(t.Context(),
			apiclient.LookupOptions{ReadOptions: apiclient.ReadOptions{Min: []string{out.Index()},
				Wait: 3 * time.Second}})

		var refusal *apiclient.Error
		if !errors.As(err, &refusal) || refusal.Status != 503 || refusal.Header.Get("Retry-After") == "" ||
			refusal.Index() == "" {
			t.Errorf("behind a cut: %v", err)
		}

		if took := time.Since(began).Round(100 * time.Millisecond); took != 3*time.Second {
			t.Errorf("it waited %s", took)
		}
	})
}
