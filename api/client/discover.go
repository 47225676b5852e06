package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
)

const (
	discoverPath = "/discovery/query"
	resolvePath  = "/agents/resolve"
)

// The types of discovery's answers.
type (
	// A Candidate is an agent that may serve a request.
	Candidate = wire.Candidate
	// A Binding is one way to reach an agent.
	Binding = wire.Binding
	// Evidence says why a candidate is one.
	Evidence = wire.Evidence
	// An Explanation is the outcome of a query for one registration.
	Explanation = wire.Explanation
	// A Resolved is an agent that may serve an intent, and how to invoke it.
	Resolved = wire.Resolved
)

// DiscoverOptions are a Discovery Request (draft-xu 5) and, as far as it can say
// the same, a request for resolution (draft-cui 6). All filters must match.
type DiscoverOptions struct {
	ReadOptions
	// Query is the task of the agent, in words.
	Query string
	// Tags are required, Preferred ones rank higher, and Excluded ones rule out.
	Tags, Preferred, Excluded []string
	// Protocols and Origins are the acceptable ones; empty is any.
	Protocols, Origins []string
	// Owners are identities, one of which owns an agent; empty is any.
	Owners []string
	// Regions are those of which an agent declares one; empty is any.
	Regions []string
	// Verification is pending, verified, logged or witnessed, at least; empty is any.
	Verification string
	// MaxAge bounds the time since the last verified refresh, in whole seconds; 0 is any.
	MaxAge time.Duration
	// Plain ranks by scores alone, without diversity of owners.
	Plain bool
	// Limit bounds the candidates; 0 is the directory's default.
	Limit int
	// Detail is minimal, summary or full, for Discover alone.
	Detail string
	// Evidence asks why each candidate is one, for Discover alone.
	Evidence bool
	// Explain is the rid or name of a registration, or ORIGIN/RID, whose outcome is
	// explained, for Discover alone.
	Explain string
}

// diversity returns the member by which a request asks for scores alone.
func (o *DiscoverOptions) diversity() *bool {
	if o.Plain {
		return new(bool)
	}

	return nil
}

// A Discovery is the answer to a Discovery Request (draft-xu 6).
type Discovery struct {
	Reply
	// Candidates are the best first.
	Candidates []Candidate
	// Unsupported are filters that the directory ignored.
	Unsupported []string
	Warnings    []string
	// Explanation is zero unless DiscoverOptions.Explain asked for it.
	Explanation Explanation
}

// Discover finds agents by what they can do, the best first.
func (c *Client) Discover(ctx context.Context, opt DiscoverOptions) (*Discovery, error) {
	question := wire.DiscoverRequest{
		Query:     opt.Query,
		Required:  opt.Tags,
		Preferred: opt.Preferred,
		Excluded:  opt.Excluded,
		Protocols: opt.Protocols,
		Constraints: wire.DiscoverConstraints{
			MaxAgeSeconds: int(seconds(opt.MaxAge)),
			Origins:       opt.Origins,
			Owners:        opt.Owners,
			Regions:       opt.Regions,
			Verification:  opt.Verification,
		},
		Limit:    opt.Limit,
		Detail:   opt.Detail,
		Evidence: opt.Evidence,
		Explain:  opt.Explain,

		Diversity: opt.diversity(),
	}

	var body wire.Discovery

	r, err := c.question(ctx, discoverPath, opt.ReadOptions, question, &body)
	if err != nil {
		return nil, err
	}

	return &Discovery{
		Reply:       *r,
		Candidates:  body.Candidates,
		Unsupported: body.Unsupported,
		Warnings:    body.Warnings,
		Explanation: body.Explanation,
	}, nil
}

// A Resolution is the answer to a request for resolution (draft-cui 6).
type Resolution struct {
	Reply
	// Candidates are the best first.
	Candidates []Resolved
	// Excluded is how many were left out, by reason.
	Excluded map[string]int
	Warnings []string
}

// Resolve finds agents for an intent and how to invoke them. The directory takes
// Excluded as a demand, and Tags and Preferred as a preference.
func (c *Client) Resolve(ctx context.Context, opt DiscoverOptions) (*Resolution, error) {
	question := wire.ResolveRequest{
		Intent: opt.Query,
		Context: wire.ResolveContext{
			Tags:    append(append([]string{}, opt.Tags...), opt.Preferred...),
			Regions: opt.Regions,
		},
		Policy: wire.ResolvePolicy{
			MaxAgeSeconds: int(seconds(opt.MaxAge)),
			Domains:       opt.Origins,
			Owners:        opt.Owners,
			Protocols:     opt.Protocols,
			Excluded:      opt.Excluded,
			Verification:  opt.Verification,
		},
		Top:       opt.Limit,
		Diversity: opt.diversity(),
	}

	var body wire.Resolution

	r, err := c.question(ctx, resolvePath, opt.ReadOptions, question, &body)
	if err != nil {
		return nil, err
	}

	return &Resolution{Reply: *r, Candidates: body.Candidates, Excluded: body.Excluded, Warnings: body.Warnings}, nil
}

// question POSTs a question, which changes nothing, and decodes the candidates.
func (c *Client) question(ctx context.Context, path string, opt ReadOptions, question, v any) (*Reply, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}

	query := url.Values{}
	opt.set(query)

	r, err := c.do(ctx, &request{
		method: http.MethodPost,
		target: withQuery(path, query),
		body:   body,
		repeat: idempotent,
		wait:   opt.bound(),
	})
	if err != nil {
		return r, err
	}

	return r, decode(r, "candidates", v)
}
