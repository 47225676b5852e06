package node

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/trust"
)

// Probing is whether a domain asks its agents, at their base, what they say of
// themselves, and how often.
type Probing struct {
	Enabled    bool          `yaml:"enabled"`
	Every      time.Duration `yaml:"every"`
	Concurrent int           `yaml:"concurrent"`
	Renew      bool          `yaml:"renew"`
	As         string        `yaml:"as"`
	Allow      []string      `yaml:"allow"`
	CA         string        `yaml:"ca"`
}

func defaultProbing() Probing { return Probing{Every: time.Hour, Concurrent: 8} }

// Bounds of what a Probing may be configured to.
const (
	minProbeEvery      = time.Minute
	maxProbeEvery      = 30 * 24 * time.Hour
	maxProbeConcurrent = 256
)

func (c *Config) validateProbe() error {
	p := &c.Probe
	switch {
	case p.Every < minProbeEvery || p.Every > maxProbeEvery:
		return fmt.Errorf("probe.every: %s is not from %s to %s", p.Every, minProbeEvery, maxProbeEvery)
	case p.Concurrent < 1 || p.Concurrent > maxProbeConcurrent:
		return fmt.Errorf("probe.concurrent: %d is not from 1 to %d", p.Concurrent, maxProbeConcurrent)
	case p.Renew && !p.Enabled:
		return errors.New("probe.renew: nothing is renewed where probe.enabled is false")
	}
	if _, err := directory.ParseIdentity(p.As); p.Renew && err != nil {
		return fmt.Errorf("probe.as: %q is no identity: say as whom what answers is renewed", p.As)
	}
	_, err := parseRanges("probe.allow", p.Allow)
	return err
}

// How the prober goes about: how often it looks what is due, what it takes on at
// once, how often one host is asked and how many times at most in a round, and how
// long one exchange and a round may take.
const (
	probePause   = 2 * time.Second
	probeRound   = 1024
	probeHost    = 30
	probeGap     = time.Second
	probeTimeout = 10 * time.Second
	probeTime    = 2 * time.Minute
	probeRecent  = time.Minute // what was registered so shortly before this node leads is new
)

// maxTags bounds how many entity tags are kept.
const maxTags = 10_000

// A prober asks the domain's agents what they are while this node leads, and copies
// what the leader found while it does not (AD-044).
type prober struct {
	n     *Node
	guard *gateway.Guard
	found *findings
	as    directory.Identity // zero where nothing is renewed

	since  int64        // Unix milliseconds: since when what is registered is new; 0 where this node does not lead
	copied findingsPage // the last one, without its items

	mu   sync.Mutex              // guards what follows
	tags map[probe.Source]string // by which what is said is asked for again
}

// wireProbe starts to ask the domain's agents what they are.
func (n *Node) wireProbe() error {
	c := &n.cfg.Probe
	if n.found == nil {
		return nil
	}
	cfg, err := outward("probe", c.Allow, c.CA)
	if err != nil {
		return err
	}
	cfg.Timeout, cfg.Certificate = probeTimeout, n.source.Certificate
	cfg.Judge = func(chain []*x509.Certificate) (spiffeid.ID, error) { return trust.VerifyServer(chain, n.bundles) }
	guard := gateway.NewGuard(cfg)
	p := &prober{n: n, guard: guard, found: n.found, tags: map[probe.Source]string{}}
	if c.Renew {
		if p.as, err = directory.ParseIdentity(c.As); err != nil {
			return fmt.Errorf("probe.as: %w", err)
		}
	}
	n.life.onStop("probe", func(context.Context) error { guard.Close(); return nil })
	n.life.loop("prober", p.run)
	return nil
}

// probed returns what asking an agent came to, where that is known here.
func (n *Node) probed(e *directory.Entry) (directory.Probe, bool) {
	if e.Received != nil {
		return directory.Probe{}, false
	}
	f, ok := n.found.get(e)
	if !ok || probeStates[f.state] == "" {
		return directory.Probe{}, false
	}
	return f.probe(), true
}

// run asks while this node leads, and copies while another does.
func (p *prober) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		if p.n.store.IsLeader() {
			if p.since == 0 {
				p.since = began.Add(-probeRecent).UnixMilli()
			}
			p.round(ctx)
		} else {
			p.since = 0
			p.copy(ctx)
		}
		p.found.prune(p.n.view.Own(), began.Add(-probeRecent).UnixMilli())
		// Of a large directory the look itself takes long.
		took := min(time.Since(began), probeTime)
		select {
		case <-ctx.Done():
		case <-time.After(max(probePause, took) + rand.N(probePause)):
		}
	}
}

// copy has what the leader found since it was asked last.
func (p *prober) copy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for full := true; full; {
		question, err := json.Marshal(findingsPage{Name: p.copied.Name, Mark: p.copied.Mark})
		if err != nil {
			return
		}
		text, err := p.n.store.AskLeader(ctx, question)
		var page findingsPage
		if err != nil || json.Unmarshal(text, &page) != nil {
			return // there is none at the moment, or it probes nothing
		}
		for rid, f := range page.each() {
			p.found.put(rid, f)
		}
		full = len(page.Items) == maxFindings
		page.Items, p.copied = nil, page
	}
}

// A probing is one source, and the registrations that are to be compared with it.
type probing struct {
	source  probe.Source
	entries []*directory.Entry
	due     int64 // Unix milliseconds: the earliest of them
}

// round asks what is due, each host by itself.
func (p *prober) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	hosts := p.due(time.Now().UnixMilli())
	if len(hosts) == 0 {
		return
	}
	var g errgroup.Group
	g.SetLimit(p.n.cfg.Probe.Concurrent)
	for _, at := range hosts {
		g.Go(func() error { p.n.panics.Do(contain.Answer, func() { p.host(ctx, at) }); return nil })
	}
	_ = g.Wait()
	p.renew(ctx, hosts)
}

// due returns what is to be asked now, by host; what is due for longest first.
func (p *prober) due(now int64) map[string][]*probing {
	sources := map[probe.Source]*probing{}
	for e := range p.n.view.Own().All() {
		due := p.found.due(e, p.every(e), p.since)
		if due > now || e.ExpiresAt <= now {
			continue
		}
		source, ok := probe.SourceOf(e.Owner, e.Document, e.Projection())
		if !ok {
			p.found.put(e.RID, pack(directory.Probe{At: now}, e.Statement))
			continue
		}
		source.URL = strings.Clone(source.URL) // and not a part of the document, of all that are due
		if sources[source] == nil {
			sources[source] = &probing{source: source, due: due}
		}
		s := sources[source]
		s.entries, s.due = append(s.entries, e), min(s.due, due)
	}
	all := slices.SortedFunc(maps.Values(sources), func(a, b *probing) int { return cmp.Compare(a.due, b.due) })
	hosts := map[string][]*probing{}
	for _, s := range all[:min(len(all), probeRound)] {
		if at := s.source.Host(); len(hosts[at]) < probeHost {
			hosts[at] = append(hosts[at], s)
		}
	}
	return hosts
}

// every is how often an agent is asked: where that renews it, in time for that.
func (p *prober) every(e *directory.Entry) time.Duration {
	if p.as.IsZero() {
		return p.n.cfg.Probe.Every
	}
	return min(p.n.cfg.Probe.Every, time.Duration(e.Lifetime)*time.Second*2/5)
}

// host asks all that is due at one host, one after the other. A host that does not
// answer is not asked again.
func (p *prober) host(ctx context.Context, all []*probing) {
	var away error
	for i, s := range all {
		if i > 0 && away == nil {
			select {
			case <-time.After(probeGap):
			case <-ctx.Done():
				return
			}
		}
		if away = p.ask(ctx, s, away); ctx.Err() != nil {
			return
		}
	}
}

// ask asks one source, unless its host is away, and notes what came of it. It
// returns why the host is away, if it is.
func (p *prober) ask(ctx context.Context, s *probing, away error) error {
	said, err := (*probe.Description)(nil), away
	if err == nil {
		said, err = probe.Fetch(ctx, p.guard, s.source, p.tag(s))
	}
	if ctx.Err() != nil {
		return err // the round is over, which says nothing of the agent
	}
	now, tag := time.Now().UnixMilli(), ""
	if err == nil {
		tag = said.ETag
	}
	for _, e := range s.entries {
		if err == nil && said.Unchanged {
			f, _ := p.found.get(e)
			f.at = now
			p.found.put(e.RID, f)
			continue
		}
		var differences []probe.Difference
		because := err
		if because == nil {
			differences, because = said.Compare(e.Agent, e.Document, e.Projection(), true)
		}
		verdict := probe.Judge(differences, because)
		verdict.At = now
		p.found.put(e.RID, pack(verdict, e.Statement))
		p.n.metrics.probes.WithLabelValues(string(verdict.State)).Inc()
	}
	p.keepTag(s.source, tag)
	if rule := gateway.RuleOf(err); err != nil && !errors.Is(err, gateway.ErrNothingSaid) && (rule == "" || rule == gateway.RuleTime) {
		return err
	}
	return nil
}

// tag is the entity tag to ask by: none where one of the registrations has to be
// compared with what is said.
func (p *prober) tag(s *probing) string {
	for _, e := range s.entries {
		if f, ok := p.found.get(e); !ok || probeStates[f.state] == directory.ProbeUnreachable {
			return ""
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tags[s.source]
}

func (p *prober) keepTag(source probe.Source, tag string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tags) >= maxTags {
		clear(p.tags) // all is asked for in full once more
	}
	if tag == "" {
		delete(p.tags, source)
	} else {
		p.tags[source] = tag
	}
}

// renew refreshes the registrations that were just found to be as their agents say,
// where that is wanted and over a quarter of the lifetime is gone.
func (p *prober) renew(ctx context.Context, hosts map[string][]*probing) {
	if p.as.IsZero() {
		return
	}
	now := time.Now()
	var items []directory.Renewal
	for _, all := range hosts {
		for _, s := range all {
			for _, e := range s.entries {
				f, ok := p.found.get(e)
				fresh := now.UnixMilli()-f.at < probeTime.Milliseconds()
				if left := e.ExpiresAt - now.UnixMilli(); ok && fresh && probeStates[f.state] == directory.ProbeVerified && left < int64(e.Lifetime)*750 {
					items = append(items, directory.Renewal{RID: e.RID})
				}
			}
		}
	}
	caller := directory.Caller{Identity: p.as, Commissioning: p.n.policy.Commission(p.as), RequestID: "prober"}
	for some := range slices.Chunk(items, directory.MaxRenewals) {
		out, err := p.n.face.Registry().RefreshMany(ctx, directory.RefreshingMany{Caller: caller, Items: some})
		if err != nil {
			p.n.log.Warn("what answers could not be renewed", "registrations", len(some), "err", err)
			return
		}
		for i, r := range out.Each {
			if r.Err != nil {
				p.n.log.Warn("what answers is not renewed", "rid", some[i].RID, "as", p.as, "err", r.Err)
			}
		}
	}
}
