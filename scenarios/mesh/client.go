package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/trust"
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

	Until time.Time // no node may serve it from here on: its last acknowledged deadline, or a later one that was asked for
	Ended bool      // removed, or left to expire: whoever has stopped showing it never shows it again

	restored bool // from a backup: its own domain may show it again
}

// request returns the context of one request.
func (m *Mesh) request() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), requestTimeout)
}

// client returns a client of one node with one of its domain's identities. Safe
// for concurrent use.
func (m *Mesh) client(n *Node, path string) *apiclient.Client {
	return apiclient.NewDirect(n.URL(), m.HTTP(n, path))
}

// HTTP returns a client that speaks to one node as one of its domain's
// identities (/agent/ada), or as nobody where path is empty. Safe for concurrent
// use.
func (m *Mesh) HTTP(n *Node, path string) *http.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.clients[n.Name+path]; ok {
		return c
	}
	var source *trust.Source
	if path != "" {
		svid, err := n.Domain.ca.Issue(path, svidTTL, time.Now())
		m.must(err)
		source = trust.NewSource(svid)
	}
	allow := func(id spiffeid.ID) error {
		if !trust.IsNode(id, n.Domain.td) {
			return fmt.Errorf("%s is no node of %s", id, n.Domain.Name)
		}
		return nil
	}
	host := n.Domain.clients() // beside its nodes: no cut, no delay
	m.Net.SetLink(host, n.host, Link{})
	m.Net.SetLink(n.host, host, Link{})
	tr := &http.Transport{
		DialContext:         func(ctx context.Context, _, addr string) (net.Conn, error) { return m.Net.Dial(ctx, host, addr) },
		TLSClientConfig:     trust.ClientTLS(source, m.bundles, allow, "h2", "http/1.1"),
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: requestTimeout,
		IdleConnTimeout:     time.Minute,
	}
	c := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	m.transports = append(m.transports, tr)
	m.clients[n.Name+path] = c
	return c
}

// write does one write at the domain: at each living node in turn until one of
// them answers, a refusal too.
func (m *Mesh) write(name string, do func(context.Context, *apiclient.Client) error) error {
	err := errors.New("no node of " + name + " runs")
	for _, n := range m.Domain(name).Nodes {
		if !n.Lives() {
			continue
		}
		err = m.writeAt(n, do)
		var refusal *apiclient.Error
		if err == nil || errors.As(err, &refusal) && refusal.Status < 500 {
			return err
		}
	}
	return err
}

func (m *Mesh) writeAt(n *Node, do func(context.Context, *apiclient.Client) error) error {
	ctx, cancel := m.request()
	defer cancel()
	return do(ctx, m.client(n, registrant))
}

// Register registers an agent at a domain with a lifetime in seconds.
func (m *Mesh) Register(domain, name string, lifetime uint32) *Agent {
	m.T.Helper()
	var a *Agent
	m.Eventually(time.Minute, "registering "+name+" at "+domain, func() (err error) {
		a, err = m.TryRegister(domain, name, lifetime)
		return err
	})
	return a
}

// TryRegister registers an agent once; an error leaves open whether it is
// registered. Safe for concurrent use.
func (m *Mesh) TryRegister(domain, name string, lifetime uint32) (*Agent, error) {
	a := &Agent{Domain: domain, Name: name, Lifetime: lifetime}
	return a, m.registered(a, m.write(domain, a.register))
}

// RegisterAt registers an agent at one node of a domain, and fails the test where
// that refuses.
func (m *Mesh) RegisterAt(n *Node, name string, lifetime uint32) *Agent {
	m.T.Helper()
	a := &Agent{Domain: n.Domain.Name, Name: name, Lifetime: lifetime}
	m.must(m.registered(a, m.writeAt(n, a.register)))
	return a
}

func (a *Agent) register(ctx context.Context, c *apiclient.Client) error {
	got, err := c.Register(ctx, a.Name, document(a.Name), apiclient.RegisterOptions{Lifetime: time.Duration(a.Lifetime) * time.Second})
	if err == nil {
		a.RID = got.RID
	}
	return err
}

// registered puts an acknowledged agent into the model.
func (m *Mesh) registered(a *Agent, err error) error {
	err = m.noted(err, "%s is registered at %s for %d s", a.Name, a.Domain, a.Lifetime)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a.Until = a.deadline(0)
	m.agents[a.RID] = a
	return nil
}

// deadline is the latest that a write can have set which is answered within d.
func (a *Agent) deadline(d time.Duration) time.Time {
	return time.Now().Add(d + time.Duration(a.Lifetime)*time.Second)
}

// document is what a story's agents say of themselves.
func document(name string) []byte {
	return fmt.Appendf(nil, `{"base":"https://agents.example/%s","protocols":["a2a"],"capabilities":[{"name":"work","type":"skill","tags":["story"]}]}`, name)
}

// Refresh renews an agent, and fails the test where its domain does not.
func (m *Mesh) Refresh(a *Agent) {
	m.T.Helper()
	m.must(m.TryRefresh(a))
}

// TryRefresh renews an agent once; an error leaves open whether it is renewed.
// Safe for concurrent use.
func (m *Mesh) TryRefresh(a *Agent) error {
	m.promise(a, time.Minute)
	err := m.write(a.Domain, func(ctx context.Context, c *apiclient.Client) error {
		_, err := c.Refresh(ctx, a.RID, 0)
		return err
	})
	m.promise(a, 0)
	return m.noted(err, "%s of %s is refreshed", a.Name, a.Domain)
}

// promise notes that a's deadline may be set by a write that is answered within d.
func (m *Mesh) promise(a *Agent, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.Until = a.deadline(d)
}

// Remove deregisters an agent.
func (m *Mesh) Remove(a *Agent) {
	m.T.Helper()
	m.must(m.TryRemove(a))
}

// TryRemove deregisters an agent once; an error leaves open whether it is
// registered. Safe for concurrent use.
func (m *Mesh) TryRemove(a *Agent) error {
	err := m.write(a.Domain, func(ctx context.Context, c *apiclient.Client) error {
		_, err := c.Deregister(ctx, a.RID)
		return err
	})
	if err == nil {
		m.Abandon(a)
	}
	return m.noted(err, "%s of %s is removed", a.Name, a.Domain)
}

// Abandon says that an agent will not be refreshed again.
func (m *Mesh) Abandon(a *Agent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.Ended = true
}

// Proof fetches an agent's proof file at any node of any domain.
func (m *Mesh) Proof(n *Node, a *Agent) ([]byte, error) {
	all, err := m.Lookup(n)
	if err != nil {
		return nil, err
	}
	shown, ok := all[a.RID]
	if !ok {
		return nil, fmt.Errorf("%s does not show %s", n.Name, a.Name)
	}
	ctx, cancel := m.request()
	defer cancel()
	r, err := m.client(n, reader).Proof(ctx, shown.Href)
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}
