package crawl

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway"
)

const (
	crawlTimeout   = 2 * time.Minute
	retryAfter     = time.Minute     // after a crawl that failed
	leaderInterval = 5 * time.Second // between checks whether this node leads
)

// A Registry registers agents on behalf of a caller.
type Registry interface {
	Register(context.Context, directory.RegisterRequest) (directory.Outcome, error)
	RefreshMany(context.Context, directory.RefreshBatch) (directory.Outcome, error)
	Remove(context.Context, directory.RemoveRequest) (directory.Outcome, error)
}

// A Policy decides on the registrations of the crawling identity.
type Policy interface {
	DefaultVisibility() directory.Visibility
	Renew(e *directory.Entry) directory.Decision
	Register(
		id directory.Identity, agent string, p *directory.Projection, v directory.Visibility,
	) directory.Decision
}

// An Index has the registrations of the domain.
type Index interface {
	All() iter.Seq[*directory.Entry]
	Named(agent string) []*directory.Entry
}

// A Follower keeps the directory equal to the list of one origin while its node leads the
// domain. Its whole state is in the directory and in the document, so that another node
// continues when this one stops.
type Follower struct {
	Origin   *url.URL           // of ParseOrigin
	As       directory.Identity // owner of the registrations
	Guard    *gateway.Guard
	Registry Registry
	Policy   Policy
	Index    Index
	IsLeader func() bool
	Contain  func(func()) // runs a function that reads foreign bytes
	Logger   *slog.Logger

	last *Result // of the last crawl; nil if another node may have crawled since
}

// Run crawls until ctx ends, again when the document is no longer fresh. Registrations
// that can't be read expire; they are never refreshed unread (WOA-032).
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := leaderInterval

		if f.IsLeader() {
			wait = retryAfter
			f.Contain(func() { wait = f.crawl(ctx) })
		} else {
			// Another leader may change the registrations, so the next crawl compares all of them.
			f.last = nil
		}

		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// crawl crawls once, and returns the time until the next crawl.
func (f *Follower) crawl(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, crawlTimeout)
	defer cancel()

	result, err := Fetch(ctx, f.Guard, f.Origin, f.last)
	if err == nil {
		err = f.apply(ctx, result)
	}

	if err != nil {
		f.last = nil
		f.Logger.Warn("crawl of an origin failed", "origin", f.Origin.String(), "err", err)

		return retryAfter
	}

	f.last = result

	return result.Fresh
}

// apply registers new and changed agents, refreshes unchanged ones and removes those that
// are no longer listed (WOA-013). A refused agent is logged and doesn't exclude others.
func (f *Follower) apply(ctx context.Context, result *Result) error {
	caller := directory.Caller{Identity: f.As, RequestID: "crawl of " + f.Origin.Host}
	registered := f.registered(result)

	var unchanged []directory.Renewal

	for _, agent := range result.Agents {
		held := registered[agent.Name]
		delete(registered, agent.Name)

		switch {
		case agent.Err != nil:
			// It is still listed: the held registration expires by itself.
			f.logRefused(agent, agent.Err)
		case held != nil && bytes.Equal(held.Document.Bytes(), agent.Document.Bytes()):
			if !f.Policy.Renew(held).Allow {
				f.logRefused(agent, f.forbidden())
				continue
			}

			unchanged = append(unchanged, directory.Renewal{RID: held.RID, Lifetime: result.Lease()})
		default:
			err := f.register(ctx, caller, agent, result.Lease())

			// The directory would take no other agent either.
			if isUnavailable(err) {
				return err
			}

			if err != nil {
				f.logRefused(agent, err)
			}
		}
	}

	for batch := range slices.Chunk(unchanged, directory.MaxRenewals) {
		if _, err := f.Registry.RefreshMany(ctx, directory.RefreshBatch{Caller: caller, Items: batch}); err != nil {
			return err
		}
	}

	// Each listed agent was taken out above.
	for _, held := range registered {
		_, err := f.Registry.Remove(ctx, directory.RemoveRequest{Caller: caller, RID: held.RID})
		if isUnavailable(err) {
			return err
		}
	}

	return nil
}

func (f *Follower) logRefused(agent Agent, err error) {
	f.Logger.Warn("an agent that an origin lists is not registered",
		"origin", f.Origin.String(), "agent", agent.Name, "err", err)
}

func (f *Follower) forbidden() error {
	return directory.Refuse(directory.Forbidden, "policy does not permit %s to register it", f.As)
}

// register registers one agent, if policy permits it to the crawling identity.
func (f *Follower) register(ctx context.Context, caller directory.Caller, agent Agent, lifetime uint32) error {
	projection, err := kinds.Project(agent.Name, agent.Document)
	if err != nil {
		return err
	}

	visibility := f.Policy.DefaultVisibility()
	if !f.Policy.Register(f.As, agent.Name, projection, visibility).Allow {
		return f.forbidden()
	}

	_, err = f.Registry.Register(ctx, directory.RegisterRequest{
		Caller:     caller,
		Agent:      agent.Name,
		Document:   agent.Document,
		Lifetime:   lifetime,
		Visibility: visibility,
	})

	return err
}

// registered returns the registrations of the origin's agents by name: those that the
// crawling identity owns and that are named after the host.
func (f *Follower) registered(result *Result) map[string]*directory.Entry {
	all := f.Index.All()
	if result.Unchanged {
		// The previous crawl removed the agents that aren't listed, so a scan of all
		// would find no others.
		all = f.listed(result)
	}

	registered := map[string]*directory.Entry{}
	suffix := "@" + strings.TrimSuffix(strings.ToLower(f.Origin.Host), ":443")
	now := time.Now().UnixMilli()

	for entry := range all {
		if entry.Owner == f.As && entry.Document.Kind() == directory.KindWoA &&
			strings.HasSuffix(entry.Agent, suffix) && entry.ExpiresAt > now {
			registered[entry.Agent] = entry
		}
	}

	return registered
}

// listed iterates over the registrations with the names of a result.
func (f *Follower) listed(result *Result) iter.Seq[*directory.Entry] {
	return func(yield func(*directory.Entry) bool) {
		for _, agent := range result.Agents {
			for _, entry := range f.Index.Named(agent.Name) {
				if !yield(entry) {
					return
				}
			}
		}
	}
}

// isUnavailable reports whether an error is the directory's state rather than a refusal
// of the request.
func isUnavailable(err error) bool {
	if err == nil {
		return false
	}

	var refusal *directory.Error
	if !errors.As(err, &refusal) {
		return true
	}

	return refusal.Problem == directory.Unavailable || refusal.Problem == directory.OutcomeUnknown
}
