package mesh

import (
	"sync"
	"testing"
	"time"
)

// A model records every acknowledged registration of a mesh, and holds lookups against
// the promises about them. Safe for concurrent use.
type model struct {
	mu     sync.Mutex        // guards the fields below, and the mutable fields of each Agent
	agents map[string]*Agent // by rid
	gone   map[string]bool   // node and rid: that node has stopped showing it
}

func newModel() *model {
	return &model{agents: map[string]*Agent{}, gone: map[string]bool{}}
}

// add records an acknowledged registration.
func (m *model) add(agent *Agent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	agent.Until = agent.deadline(0)
	m.agents[agent.RID] = agent
}

// promise records that a write, answered within d, may set a's deadline.
func (m *model) promise(agent *Agent, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	agent.Until = agent.deadline(d)
}

// end records that a is removed, or will not be refreshed again.
func (m *model) end(agent *Agent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	agent.Ended = true
}

// registered returns a domain's registrations that have not ended.
func (m *model) registered(domain string) []*Agent {
	m.mu.Lock()
	defer m.mu.Unlock()

	var all []*Agent
	for _, a := range m.agents {
		if a.Domain == domain && !a.Ended {
			all = append(all, a)
		}
	}

	return all
}

// restore records that a domain is at a backup again. Registrations after it are lost.
// Registrations that were removed after it may be shown again, at home only (rule P2).
func (m *model) restore(domain string, restored []*Agent) {
	m.mu.Lock()
	defer m.mu.Unlock()

	kept := map[*Agent]bool{}
	for _, a := range restored {
		kept[a] = true
		a.restored = true
	}

	for _, a := range m.agents {
		if a.Domain == domain && !kept[a] {
			a.Ended = true
		}
	}
}

// judge fails the test for each promise that a node's answer breaks.
func (m *model) judge(t testing.TB, n *Node, asked time.Time, all Listing) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()

	for rid, r := range all {
		if err := whole(n, r); err != nil {
			t.Errorf("%s shows %s without its provenance: %v", n.Name, r.Agent, err)
			continue
		}

		expires := r.Provenance.ExpiresAt

		agent := m.agents[rid]
		switch {
		case !expires.After(asked):
			t.Errorf("%s shows %s at %v, past its deadline of %v", n.Name, r.Agent, asked, expires)
		case agent == nil: // a registration that was not acknowledged
		case expires.After(agent.Until):
			t.Errorf("%s shows %s until %v; its origin granted no more than %v", n.Name, agent.Name, expires,
				agent.Until)
		case agent.Domain != r.Provenance.Authority:
			t.Errorf("%s says that %s is from %s; it is from %s", n.Name, agent.Name, r.Provenance.Authority,
				agent.Domain)
		case m.gone[n.Name+" "+rid] && !(agent.restored && agent.Domain == n.Domain.Name):
			t.Errorf("%s shows %s again, after its end", n.Name, agent.Name)
		}
	}

	for rid, a := range m.agents {
		if _, shown := all[rid]; a.Ended && !shown {
			m.gone[n.Name+" "+rid] = true
		}
	}
}
