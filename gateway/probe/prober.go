package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
)

// Timeout bounds the exchange with one agent; the guard of a Prober should have it.
const Timeout = 10 * time.Second

const (
	pause           = 2 * time.Second // between rounds, at least
	roundTimeout    = 2 * time.Minute
	maxPerRound     = 1024
	maxPerHost      = 30          // in one round
	perHostInterval = time.Second // between requests to one host
	recent          = time.Minute // a registration this young when leadership begins counts as new
	maxTags         = 10_000      // entity tags that are kept
)

// A Consensus is the domain's Raft member, as a Prober uses it.
type Consensus interface {
	IsLeader() bool
	// AskLeader sends a question to the leader, which answers by Findings.Answer.
	AskLeader(ctx context.Context, question []byte) ([]byte, error)
}

// A Registry refreshes registrations.
type Registry interface {
	RefreshMany(context.Context, directory.RefreshBatch) (directory.Outcome, error)
}

// An Index has the registrations of the domain.
type Index interface {
	All() iter.Seq[*directory.Entry]
	Get(directory.RID) (*directory.Entry, bool)
}

// A Renewer refreshes the registrations of agents whose descriptions agree with them.
type Renewer struct {
	Registry Registry
	// Caller returns the identity that refreshes, with its rights by the policy in force.
	Caller func() directory.Caller
	// Permits reports whether policy lets the owner of a registration register it as it is.
	Permits func(*directory.Entry) bool
}

// ProberConfig configures a Prober.
type ProberConfig struct {
	Guard      *gateway.Guard
	Findings   *Findings
	Index      Index
	Consensus  Consensus
	Renew      *Renewer // nil to refresh nothing
	Interval   time.Duration
	Concurrent int                           // hosts
	Contain    func(func())                  // runs a function that reads foreign bytes
	Count      func(by directory.ProbeState) // called for every result
	Logger     *slog.Logger
}

// A Prober probes the domain's agents while its node leads, and copies the leader's
// findings while it does not (AD-044).
type Prober struct {
	cfg    ProberConfig
	copied page  // the last one, without its items
	since  int64 // of leadership, less recent, in Unix milliseconds; 0 if this node does not lead

	mu   sync.Mutex // guards the rest
	tags map[Source]string
}

// NewProber returns a prober. Run must be called.
func NewProber(cfg ProberConfig) *Prober {
	return &Prober{cfg: cfg, tags: map[Source]string{}}
}

// Run probes or copies until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()

		if p.cfg.Consensus.IsLeader() {
			if p.since == 0 {
				p.since = began.Add(-recent).UnixMilli()
			}

			p.round(ctx)
		} else {
			p.since = 0
			p.copy(ctx)
		}

		p.cfg.Findings.prune(p.cfg.Index, began.Add(-recent).UnixMilli())

		// In a large directory finding the due registrations takes long itself.
		took := min(time.Since(began), roundTimeout)

		select {
		case <-ctx.Done():
		case <-time.After(max(pause, took) + rand.N(pause)):
		}
	}
}

// copy fetches the findings that the leader added since the last copy.
func (p *Prober) copy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()

	for more := true; more; {
		question, err := json.Marshal(page{Name: p.copied.Name, Mark: p.copied.Mark})
		if err != nil {
			return
		}

		// An error means that there is no leader now, or that it doesn't probe.
		answer, err := p.cfg.Consensus.AskLeader(ctx, question)

		var next page
		if err != nil || json.Unmarshal(answer, &next) != nil {
			return
		}

		for rid, found := range next.each() {
			p.cfg.Findings.put(rid, found)
		}

		more = len(next.Items) == maxItems
		next.Items = nil
		p.copied = next
	}
}

// A task is one source, and the registrations to compare with its description.
type task struct {
	source  Source
	entries []*directory.Entry
	due     int64 // Unix milliseconds: the earliest of the entries
}

// round probes the registrations that are due, each host on its own.
func (p *Prober) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()

	hosts := p.due(time.Now().UnixMilli())
	if len(hosts) == 0 {
		return
	}

	var workers errgroup.Group
	workers.SetLimit(p.cfg.Concurrent)

	for _, tasks := range hosts {
		workers.Go(func() error {
			p.probeHost(ctx, tasks)
			return nil
		})
	}

	_ = workers.Wait()
	p.renew(ctx, hosts)
}

// due returns the tasks of a round by host, the longest due first.
func (p *Prober) due(now int64) map[string][]*task {
	tasks := map[Source]*task{}

	for entry := range p.cfg.Index.All() {
		due := p.cfg.Findings.due(entry, p.interval(entry), p.since)
		if due > now || entry.ExpiresAt <= now {
			continue
		}

		owner, _ := entry.VerifiedOwner()

		source, ok := SourceOf(owner, entry.Document, entry.Projection())
		if !ok {
			p.cfg.Findings.put(entry.RID, pack(directory.Probe{At: now}, entry.Statement))
			continue
		}

		// A copy, so that the documents of all due registrations are not kept in memory.
		source.URL = strings.Clone(source.URL)

		t := tasks[source]
		if t == nil {
			t = &task{source: source, due: due}
			tasks[source] = t
		}

		t.entries = append(t.entries, entry)
		t.due = min(t.due, due)
	}

	sorted := slices.SortedFunc(maps.Values(tasks), func(a, b *task) int { return cmp.Compare(a.due, b.due) })
	hosts := map[string][]*task{}

	for _, t := range sorted[:min(len(sorted), maxPerRound)] {
		if host := t.source.Host(); len(hosts[host]) < maxPerHost {
			hosts[host] = append(hosts[host], t)
		}
	}

	return hosts
}

// interval is the time between two probes of an agent: short enough to renew its
// registration, if that is configured.
func (p *Prober) interval(entry *directory.Entry) time.Duration {
	if p.cfg.Renew == nil {
		return p.cfg.Interval
	}

	return min(p.cfg.Interval, time.Duration(entry.Lifetime)*time.Second*2/5)
}

// probeHost probes the sources at one host, one after the other. After one that can't be
// reached the others are unreachable too, without another request.
func (p *Prober) probeHost(ctx context.Context, tasks []*task) {
	var hostErr error

	for i, t := range tasks {
		if i > 0 && hostErr == nil {
			select {
			case <-time.After(perHostInterval):
			case <-ctx.Done():
				return
			}
		}

		panicked := true

		p.cfg.Contain(func() {
			hostErr = p.probe(ctx, t, hostErr)
			panicked = false
		})

		// With a finding, the source is due again after the interval and not in the next round.
		if panicked {
			p.record(t, nil, errPanicked)
		}

		if ctx.Err() != nil {
			return
		}
	}
}

// probe fetches one description, unless the host has failed with hostErr, and records the
// results. It returns why the host can't be reached, if so.
func (p *Prober) probe(ctx context.Context, t *task, hostErr error) error {
	var description *Description

	err := hostErr
	if err == nil {
		description, err = Fetch(ctx, p.cfg.Guard, t.source, p.tag(t))
	}

	// The end of the round says nothing about the agent.
	if ctx.Err() != nil {
		return err
	}

	p.record(t, description, err)

	tag := ""
	if err == nil {
		tag = description.ETag
	}

	p.setTag(t.source, tag)

	if isHostError(err) {
		return err
	}

	return nil
}

// errPanicked is the result for a description that made its reader panic.
var errPanicked = fmt.Errorf("%w: the description can't be read", gateway.ErrNothingSaid)

// record records the results of a task: by its description, or by the reason why it could not be fetched.
func (p *Prober) record(t *task, description *Description, err error) {
	now := time.Now().UnixMilli()

	for _, entry := range t.entries {
		if err == nil && description.Unchanged {
			found, _ := p.cfg.Findings.get(entry)
			found.At = now
			p.cfg.Findings.put(entry.RID, found)

			continue
		}

		var differences []Difference

		reason := err
		if reason == nil {
			differences, reason = description.Compare(entry.Agent, entry.Document, entry.Projection(), true)
		}

		verdict := Judge(differences, reason)
		verdict.At = now
		p.cfg.Findings.put(entry.RID, pack(verdict, entry.Statement))
		p.cfg.Count(verdict.State)
	}
}

// isHostError reports whether an error of Fetch holds for all sources of a host.
func isHostError(err error) bool {
	if err == nil || errors.Is(err, gateway.ErrNothingSaid) {
		return false
	}

	rule := gateway.RuleOf(err)

	return rule == "" || rule == gateway.RuleTime
}

// tag returns the entity tag for a conditional request; empty if one of the registrations
// must be compared with the description.
func (p *Prober) tag(t *task) string {
	for _, entry := range t.entries {
		found, ok := p.cfg.Findings.get(entry)
		if !ok || states[found.State] == directory.ProbeUnreachable {
			return ""
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	return p.tags[t.source]
}

func (p *Prober) setTag(source Source, tag string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	// Without tags, each description is fetched in full once more.
	if len(p.tags) >= maxTags {
		clear(p.tags)
	}

	if tag == "" {
		delete(p.tags, source)
	} else {
		p.tags[source] = tag
	}
}

// renew refreshes the registrations that this round has verified, after a quarter of
// their lifetime.
func (p *Prober) renew(ctx context.Context, hosts map[string][]*task) {
	if p.cfg.Renew == nil {
		return
	}

	now := time.Now()

	var items []directory.Renewal

	for _, tasks := range hosts {
		for _, t := range tasks {
			for _, entry := range t.entries {
				// What its owner may not renew ends at its deadline, also if the agent is there.
				if p.isRenewable(entry, now) && p.cfg.Renew.Permits(entry) {
					items = append(items, directory.Renewal{RID: entry.RID})
				}
			}
		}
	}

	for batch := range slices.Chunk(items, directory.MaxRenewals) {
		caller := p.cfg.Renew.Caller()

		out, err := p.cfg.Renew.Registry.RefreshMany(ctx, directory.RefreshBatch{Caller: caller, Items: batch})
		if err != nil {
			p.cfg.Logger.Warn("refresh of verified registrations failed", "registrations", len(batch), "err", err)
			return
		}

		for i, each := range out.Each {
			if each.Err != nil {
				p.cfg.Logger.Warn("refresh of a verified registration refused",
					"rid", batch[i].RID, "as", caller.Identity, "err", each.Err)
			}
		}
	}
}

func (p *Prober) isRenewable(entry *directory.Entry, now time.Time) bool {
	found, ok := p.cfg.Findings.get(entry)
	if !ok || states[found.State] != directory.ProbeVerified {
		return false
	}

	// A finding of an earlier round may be outdated by now.
	isFresh := now.UnixMilli()-found.At < roundTimeout.Milliseconds()
	left := entry.ExpiresAt - now.UnixMilli()

	return isFresh && left < int64(entry.Lifetime)*750
}
