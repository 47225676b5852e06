package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
)

// Crawling is which origins' Web of Agents documents a domain follows, and as
// whom it registers what they list. Without origins nothing is crawled.
type Crawling struct {
	As      string   `yaml:"as"`
	Origins []string `yaml:"origins"`
	Allow   []string `yaml:"allow"`
	CA      string   `yaml:"ca"`
}

// maxOrigins bounds how many origins one domain crawls.
const maxOrigins = 256

func (c *Config) validateCrawl() error {
	if len(c.Crawl.Origins) == 0 {
		return nil
	}
	if _, err := directory.ParseIdentity(c.Crawl.As); err != nil {
		return fmt.Errorf("crawl.as: %q is no identity: say as whom what is found is registered", c.Crawl.As)
	}
	if n := len(c.Crawl.Origins); n > maxOrigins {
		return fmt.Errorf("crawl.origins: %d are given; at most %d are followed", n, maxOrigins)
	}
	hosts := map[string]bool{}
	for i, text := range c.Crawl.Origins {
		at, err := crawl.ParseOrigin(text)
		switch {
		case err != nil:
			return fmt.Errorf("crawl.origins[%d]: %w", i, err)
		case hosts[at.Host]:
			return fmt.Errorf("crawl.origins[%d]: another document of %s is given: agents are named after the host", i, at.Host)
		}
		hosts[at.Host] = true
	}
	_, err := parseRanges("crawl.allow", c.Crawl.Allow)
	return err
}

// How long a crawl may take, when the next one is after one that failed, and how
// long a node that does not lead waits before it looks whether it does.
const (
	crawlTime  = 2 * time.Minute
	crawlRetry = time.Minute
	crawlIdle  = 5 * time.Second
)

// wireCrawl starts to follow the origins that are configured.
func (n *Node) wireCrawl() error {
	if len(n.cfg.Crawl.Origins) == 0 {
		return nil
	}
	id, err := directory.ParseIdentity(n.cfg.Crawl.As)
	if err != nil {
		return fmt.Errorf("crawl.as: %w", err)
	}
	cfg, err := outward("crawl", n.cfg.Crawl.Allow, n.cfg.Crawl.CA)
	if err != nil {
		return err
	}
	guard := gateway.NewGuard(cfg)
	n.life.onStop("crawl", func(context.Context) error { guard.Close(); return nil })
	for _, text := range n.cfg.Crawl.Origins {
		at, err := crawl.ParseOrigin(text)
		if err != nil {
			return fmt.Errorf("crawl.origins: %w", err)
		}
		f := &follower{n: n, guard: guard, at: at, as: id}
		n.life.loop("crawl of "+at.Host, f.run)
	}
	return nil
}

// A follower keeps the directory to what one origin lists. All it knows is in the
// directory and in the document, so that another node takes over where one stops.
type follower struct {
	n     *Node
	guard *gateway.Guard
	at    *url.URL
	as    directory.Identity

	last *crawl.Result // that succeeded; nil where another node may have done more since
}

// run crawls while this node leads its domain, again when the document is no longer
// fresh. What can't be read is let lapse, and never kept alive (WOA-032).
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := crawlIdle
		if f.n.store.IsLeader() {
			wait = crawlRetry
			f.n.panics.Do(contain.Answer, func() { wait = f.once(ctx) })
		} else {
			f.last = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// once crawls, and returns when to do so again.
func (f *follower) once(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, crawlTime)
	defer cancel()
	c, err := crawl.Fetch(ctx, f.guard, f.at, f.last)
	if err == nil {
		err = f.apply(ctx, c)
	}
	if err != nil {
		f.last = nil
		f.n.log.Warn("an origin could not be crawled", "origin", f.at.String(), "err", err)
		return crawlRetry
	}
	f.last = c
	return c.Fresh
}

// apply registers what is new or has changed, refreshes what is as it was, and
// removes what is listed no more (WOA-013). An agent that is refused is logged, and
// keeps no other out.
func (f *follower) apply(ctx context.Context, c *crawl.Result) error {
	caller := directory.Caller{Identity: f.as, RequestID: "crawl of " + f.at.Host}
	have := f.registered(c)
	var same []directory.Renewal
	for _, a := range c.Agents {
		e := have[a.Name]
		switch {
		case a.Err != nil:
			delete(have, a.Name) // it is listed yet: what there is of it lapses
			f.n.log.Warn("an origin lists an agent that is not taken", "origin", f.at.String(), "agent", a.Name, "err", a.Err)
		case e != nil && string(e.Document.Bytes()) == string(a.Document.Bytes()):
			same = append(same, directory.Renewal{RID: e.RID, Lifetime: c.Lease()})
			delete(have, a.Name)
		default:
			if err := f.register(ctx, caller, a, c.Lease()); unreachable(err) {
				return err
			} else if err != nil {
				f.n.log.Warn("an origin lists an agent that is not taken", "origin", f.at.String(), "agent", a.Name, "err", err)
			}
			delete(have, a.Name)
		}
	}
	for some := range slices.Chunk(same, directory.MaxRenewals) {
		if _, err := f.n.face.Registry().RefreshMany(ctx, directory.RefreshingMany{Caller: caller, Items: some}); err != nil {
			return err
		}
	}
	for _, e := range have {
		_, err := f.n.face.Registry().Remove(ctx, directory.Removing{Caller: caller, RID: e.RID})
		if unreachable(err) {
			return err
		}
	}
	return nil
}

// register registers one agent, where policy lets the crawling identity do so.
func (f *follower) register(ctx context.Context, caller directory.Caller, a crawl.Agent, lifetime uint32) error {
	p, err := directory.Project(a.Name, a.Document)
	if err != nil {
		return err
	}
	v := f.n.policy.DefaultVisibility()
	if d := f.n.policy.Register(f.as, a.Name, p, v); !d.Allow {
		return directory.Refuse(directory.Forbidden, "policy does not let %s register it", f.as)
	}
	_, err = f.n.face.Registry().Register(ctx, directory.Registering{Caller: caller, Agent: a.Name, Document: a.Document, Lifetime: lifetime, Visibility: v})
	return err
}

// registered returns what this domain has of the origin's agents, by name: what the
// crawling identity registered after that host. Where the document says what it said,
// what it doesn't list is gone already, and is not looked for among all.
func (f *follower) registered(c *crawl.Result) map[string]*directory.Entry {
	have, suffix := map[string]*directory.Entry{}, "@"+strings.TrimSuffix(strings.ToLower(f.at.Host), ":443")
	now := time.Now().UnixMilli()
	all := f.n.view.Own().All()
	if c.Unchanged {
		all = func(yield func(*directory.Entry) bool) {
			for _, a := range c.Agents {
				for _, e := range f.n.view.Own().Named(a.Name) {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
	for e := range all {
		if e.Owner == f.as && e.Document.Kind() == directory.KindWoA && strings.HasSuffix(e.Agent, suffix) && e.ExpiresAt > now {
			have[e.Agent] = e
		}
	}
	return have
}

// unreachable is whether an error is of the directory and not of what was asked.
func unreachable(err error) bool {
	var e *directory.Error
	if err == nil {
		return false
	}
	return !errors.As(err, &e) || e.Problem == directory.Unavailable || e.Problem == directory.OutcomeUnknown
}
