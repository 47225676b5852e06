package mesh

import (
	"context"
	"fmt"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// The identities that stories act by, in each domain.
const (
	registrant = "/agent/ada"
	reader     = "/client/reader"
	operator   = "/ops/operator"
)

// requestTimeout bounds each request of a story.
const requestTimeout = 10 * time.Second

// An Agent is one registration as the story that made it knows it.
type Agent struct {
	Domain, Name, RID string
	Lifetime          uint32 // seconds

	// no node may serve it from here on: its last acknowledged deadline, or a later one that was asked for
	Until time.Time
	Ended bool // removed, or left to expire: a node that stopped showing it never shows it again

	restored bool // from a backup: its own domain may show it again
}

// request returns the context of one request.
func request() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), requestTimeout)
}

// Register registers an agent at a domain with a lifetime in seconds.
func (m *Mesh) Register(domain, name string, lifetime uint32) *Agent {
	m.T.Helper()

	var agent *Agent
	m.Eventually(time.Minute, "registering "+name+" at "+domain, func() (err error) {
		agent, err = m.TryRegister(domain, name, lifetime)
		return err
	})

	return agent
}

// TryRegister registers an agent once; an error leaves open whether it is
// registered. Safe for concurrent use.
func (m *Mesh) TryRegister(domain, name string, lifetime uint32) (*Agent, error) {
	a := &Agent{Domain: domain, Name: name, Lifetime: lifetime}
	return a, a.registered(m, m.Domain(domain).write(a.register))
}

// RegisterAt registers an agent at one node of a domain, and fails the test if that is
// refused.
func (m *Mesh) RegisterAt(n *Node, name string, lifetime uint32) *Agent {
	m.T.Helper()

	agent, err := m.TryRegisterAt(n, name, lifetime)
	m.must(err)

	return agent
}

// TryRegisterAt registers an agent at one node of a domain once; an error leaves open whether
// it is registered. Safe for concurrent use.
func (m *Mesh) TryRegisterAt(n *Node, name string, lifetime uint32) (*Agent, error) {
	agent := &Agent{Domain: n.Domain.Name, Name: name, Lifetime: lifetime}
	return agent, agent.registered(m, n.write(agent.register))
}

func (a *Agent) register(ctx context.Context, c *apiclient.Client) error {
	got, err := c.Register(ctx, a.Name, document(a.Name),
		apiclient.RegisterOptions{Lifetime: time.Duration(a.Lifetime) * time.Second})
	if err == nil {
		a.RID = got.RID
	}

	return err
}

// registered notes the outcome of the agent's registration, and puts an acknowledged agent
// into the model.
func (a *Agent) registered(m *Mesh, err error) error {
	err = m.noted(err, "%s is registered at %s for %d s", a.Name, a.Domain, a.Lifetime)
	if err != nil {
		return err
	}

	m.model.add(a)

	return nil
}

// deadline is the latest that a write can have set which is answered within d.
func (a *Agent) deadline(d time.Duration) time.Time {
	return time.Now().Add(d + time.Duration(a.Lifetime)*time.Second)
}

// document returns the document of a story's agent.
func document(name string) []byte {
	return fmt.Appendf(nil,
		`{"base":"https://agents.example/%s","protocols":["a2a"],`+
			`"capabilities":[{"name":"work","type":"skill","tags":["story"]}]}`, name)
}

// Refresh refreshes an agent, and fails the test if its domain doesn't.
func (m *Mesh) Refresh(a *Agent) {
	m.T.Helper()
	m.must(m.TryRefresh(a))
}

// TryRefresh renews an agent once; an error leaves open whether it is renewed.
// Safe for concurrent use.
func (m *Mesh) TryRefresh(agent *Agent) error {
	m.model.promise(agent, time.Minute)
	err := m.Domain(agent.Domain).write(func(ctx context.Context, c *apiclient.Client) error {
		_, err := c.Refresh(ctx, agent.RID, 0)
		return err
	})
	m.model.promise(agent, 0)

	return m.noted(err, "%s of %s is refreshed", agent.Name, agent.Domain)
}

// Remove deregisters an agent.
func (m *Mesh) Remove(a *Agent) {
	m.T.Helper()
	m.must(m.TryRemove(a))
}

// TryRemove deregisters an agent once; an error leaves open whether it is
// registered. Safe for concurrent use.
func (m *Mesh) TryRemove(agent *Agent) error {
	err := m.Domain(agent.Domain).write(func(ctx context.Context, c *apiclient.Client) error {
		_, err := c.Deregister(ctx, agent.RID)
		return err
	})
	if err == nil {
		m.Abandon(agent)
	}

	return m.noted(err, "%s of %s is removed", agent.Name, agent.Domain)
}

// Abandon records that an agent will not be refreshed again.
func (m *Mesh) Abandon(a *Agent) { m.model.end(a) }

// Proof fetches an agent's proof file at any node of any domain.
func (m *Mesh) Proof(n *Node, agent *Agent) ([]byte, error) {
	return m.proof(n, agent, (*apiclient.Client).Proof)
}

// Staple returns the staple of an agent from a node.
func (m *Mesh) Staple(n *Node, agent *Agent) ([]byte, error) {
	return m.proof(n, agent, (*apiclient.Client).Staple)
}

func (m *Mesh) proof(n *Node, agent *Agent,
	read func(*apiclient.Client, context.Context, string) (*apiclient.Reply, error)) ([]byte, error) {
	all, err := m.Lookup(n)
	if err != nil {
		return nil, err
	}

	shown, ok := all[agent.RID]
	if !ok {
		return nil, fmt.Errorf("%s does not show %s", n.Name, agent.Name)
	}

	ctx, cancel := request()
	defer cancel()

	r, err := read(n.client(reader), ctx, shown.Href)
	if err != nil {
		return nil, err
	}

	return r.Body, nil
}
