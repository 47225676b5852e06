package dev

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	apiclient "github.com/roster-mesh/roster/api/client"
)

//go:embed samples.json
var sampleDocuments []byte

// sampleLifetime is short, so that one can watch a dead domain's agents go.
const sampleLifetime = 2 * time.Minute

// A sampleAgent is one agent that dev registers and keeps alive.
type sampleAgent struct {
	Agent    string          `json:"agent"`
	Owner    string          `json:"owner"`
	Document json.RawMessage `json:"document"`
	domain   Domain
	node     int // of the domain, which it talks to
	client   *apiclient.Client
	rid      string
}

// registerSamples registers the sample agents, spread over the domains.
func (m *runningMesh) registerSamples(ctx context.Context) error {
	var samples []sampleAgent
	if err := json.Unmarshal(sampleDocuments, &samples); err != nil {
		return err
	}

	for i := range m.opt.Sample {
		agent := samples[i%len(samples)]
		if round := i / len(samples); round > 0 {
			agent.Agent = fmt.Sprintf("%s-%d", agent.Agent, round+1)
		}

		agent.domain = m.Domains[i%len(m.Domains)]
		agent.Document = []byte(strings.ReplaceAll(string(agent.Document), ".DOMAIN", "."+agent.domain.TrustDomain))
		m.agents = append(m.agents, agent)
	}

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)

	for i := range m.agents {
		g.Go(func() error { return m.agents[i].register(ctx) })
	}

	return g.Wait()
}

func (s *sampleAgent) register(ctx context.Context) error {
	if s.client == nil {
		if err := s.dial(); err != nil {
			return err
		}
	}

	registering := fmt.Sprintf("registering %s at %s", s.Agent, s.domain.TrustDomain)

	var refused error

	// The leader of a domain that has just begun may change under load. To register again is safe.
	err := until(ctx, registering, func() error {
		got, err := s.client.Register(ctx, s.Agent, s.Document, apiclient.RegisterOptions{Lifetime: sampleLifetime})

		switch {
		case err == nil:
			s.rid = got.RID
		case errors.Is(err, apiclient.ErrUnavailable), errors.Is(err, apiclient.ErrOutcomeUnknown):
			return err
		default:
			refused = fmt.Errorf("%s: %w", registering, err)
		}

		return nil
	})

	return errors.Join(err, refused)
}

// dial makes the client of the node that it talks to.
func (s *sampleAgent) dial() (err error) {
	s.client, err = s.domain.client(s.domain.Nodes[s.node].API, s.Owner)
	return err
}

// keepAlive refreshes the sample agents until ctx ends, each at a moment of its
// own between 0.4 and 0.6 of its lifetime. A domain that was killed is asked
// again and again, as a patient agent would.
func (m *runningMesh) keepAlive(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range m.agents {
		wg.Go(func() { m.agents[i].keepAlive(ctx) })
	}

	wg.Wait()
	<-ctx.Done()
}

func (s *sampleAgent) keepAlive(ctx context.Context) {
	for {
		wait := apiclient.RefreshDelay(sampleLifetime)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}

		switch _, err := s.client.Refresh(ctx, s.rid, 0); {
		case err == nil:
		case errors.Is(err, apiclient.ErrNotFound):
			_ = s.register(ctx) // it expired while its domain was away; the next round tries again
		default:
			s.node = (s.node + 1) % len(s.domain.Nodes)
			_ = s.dial() // the same files as before
		}
	}
}

// seesAll reports whether a node shows every sample agent from its own origin.
func (m *runningMesh) seesAll(ctx context.Context, c *apiclient.Client) error {
	for _, agent := range m.agents {
		page, err := c.Lookup(ctx, apiclient.LookupOptions{Agent: agent.Agent, Origin: agent.domain.TrustDomain})
		if err != nil {
			return err
		}

		if len(page.Agents) != 1 {
			return fmt.Errorf("%s of %s is not there yet", agent.Agent, agent.domain.TrustDomain)
		}
	}

	return nil
}

// sampleAt returns the first sample agent of domain i.
func (m *runningMesh) sampleAt(i int) (*sampleAgent, bool) {
	for j := range m.agents {
		if m.agents[j].domain.TrustDomain == m.Domains[i].TrustDomain {
			return &m.agents[j], true
		}
	}

	return nil, false
}
