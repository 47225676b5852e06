package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DiscoverOptions are a Discovery Request (draft-xu 5) and, as far as it can say
// the same, a request for resolution (draft-cui 6). Of the filters all must match.
type DiscoverOptions struct {
	ReadOptions
	Query                     string // what the agent shall do, in words
	Tags, Preferred, Excluded []string
	Protocols, Origins        []string // acceptable ones; any where there are none
	Owners                    []string // identities, one of which owns an agent; any where there are none
	Regions                   []string // one of which an agent declares; any where there are none
	Verification              string   // pending, verified, logged or witnessed, at least; any where it is empty
	MaxAge                    int      // seconds since the last verified refresh; 0 is any
	Plain                     bool     // in the order of scores alone, whoever owns what is found
	Limit                     int      // the directory's default where it is 0
	Detail                    string   // minimal, summary or full; of discovery alone
	Evidence                  bool     // why a candidate is one; of discovery alone
	Explain                   string   // the rid or name of a registration, or ORIGIN/RID, to say what became of it; of discovery alone
}

// A Candidate is an agent that may serve a request, as discovery tells it.
type Candidate struct {
	ID              string             `json:"id"`
	Name            string             `json:"name"`
	Description     string             `json:"description"`
	Bindings        []Binding          `json:"bindings"`
	Score           float64            `json:"score"`
	Components      map[string]float64 `json:"score_components"` // with Evidence
	MatchedTags     []string           `json:"matched_tags"`
	MatchedExamples []struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	} `json:"matched_examples"` // with Evidence
	Evidence   Evidence   `json:"evidence"` // with Evidence
	Flags      []string   `json:"flags"`
	Provenance Provenance `json:"provenance"`
}

// A Binding is one way to reach an agent.
type Binding struct {
	Protocol string `json:"protocol"`
	Endpoint string `json:"endpoint"`
}

// A Discovery is the answer to a Discovery Request (draft-xu 6).
type Discovery struct {
	Reply       `json:"-"`
	Candidates  []Candidate `json:"candidates"` // the best first
	Unsupported []string    `json:"unsupported_filters"`
	Warnings    []string    `json:"warnings"`
	Explanation Explanation `json:"explanation"` // with Explain
}

// Discover finds agents by what they can do, the best first.
func (c *Client) Discover(ctx context.Context, opt DiscoverOptions) (*Discovery, error) {
	type constraints struct {
		MaxAge       int      `json:"max_results_age_seconds,omitzero"`
		Origins      []string `json:"origins,omitempty"`
		Owners       []string `json:"owners,omitempty"`
		Regions      []string `json:"region,omitempty"`
		Verification string   `json:"min_verification,omitzero"`
	}
	limits := constraints{opt.MaxAge, opt.Origins, opt.Owners, opt.Regions, opt.Verification}
	out := &Discovery{}
	r, err := c.pose(ctx, "/discovery/query", opt, out, struct {
		Query       string      `json:"query"`
		Required    []string    `json:"required_tags,omitempty"`
		Preferred   []string    `json:"preferred_tags,omitempty"`
		Excluded    []string    `json:"excluded_tags,omitempty"`
		Protocols   []string    `json:"protocols,omitempty"`
		Constraints constraints `json:"constraints,omitzero"`
		Limit       int         `json:"limit,omitzero"`
		Detail      string      `json:"detail,omitzero"`
		Evidence    bool        `json:"include_evidence,omitzero"`
		Explain     string      `json:"explain,omitzero"`
		Diversity   *bool       `json:"diversity,omitzero"`
	}{opt.Query, opt.Tags, opt.Preferred, opt.Excluded, opt.Protocols, limits, opt.Limit, opt.Detail, opt.Evidence, opt.Explain, opt.diversity()})
	if err != nil {
		return nil, err
	}
	out.Reply = *r
	return out, nil
}

// diversity is the member by which requests ask for the order of scores alone.
func (opt *DiscoverOptions) diversity() *bool {
	if opt.Plain {
		return new(bool)
	}
	return nil
}

// A Resolved is an agent that may serve an intent, and how to invoke it.
type Resolved struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Endpoint   string `json:"endpoint"`
	Invocation struct {
		Method    string         `json:"method"`
		Transport string         `json:"transport"`
		Operation string         `json:"operation"`
		Auth      jsontext.Value `json:"auth"`
	} `json:"invocation"`
	Score   float64 `json:"score"`
	Reasons []struct {
		Matched string   `json:"matched"` // tag, example or word
		Value   string   `json:"value"`
		Fields  []string `json:"fields"` // that a word stands in
	} `json:"reasons"`
	Flags      []string   `json:"flags"`
	Provenance Provenance `json:"provenance"`
}

// A Resolution is the answer to a request for resolution (draft-cui 6).
type Resolution struct {
	Reply      `json:"-"`
	Candidates []Resolved     `json:"candidates"` // the best first
	Excluded   map[string]int `json:"excluded"`   // how many were left out, by reason
	Warnings   []string       `json:"warnings"`
}

// Resolve finds agents for an intent and how to invoke them. Of tags the directory
// takes those that are excluded as a demand, and the others as a preference.
func (c *Client) Resolve(ctx context.Context, opt DiscoverOptions) (*Resolution, error) {
	type setting struct {
		Tags    []string `json:"tags,omitempty"`
		Regions []string `json:"region,omitempty"`
	}
	type policy struct {
		MaxAge    int      `json:"max_age_seconds,omitzero"`
		Domains   []string `json:"allowed_domains,omitempty"`
		Owners    []string `json:"allowed_owners,omitempty"`
		Protocols []string `json:"allowed_protocols,omitempty"`
		Excluded  []string `json:"excluded_tags,omitempty"`
		Verified  string   `json:"min_verification,omitzero"`
	}
	tags := append(append([]string{}, opt.Tags...), opt.Preferred...)
	out := &Resolution{}
	r, err := c.pose(ctx, "/agents/resolve", opt, out, struct {
		Intent  string  `json:"intent"`
		Context setting `json:"context"`
		Policy  policy  `json:"policy"`
		Top     int     `json:"top,omitzero"`
		// Diversity is false where the order of scores alone is asked for.
		Diversity *bool `json:"diversity,omitzero"`
	}{opt.Query, setting{tags, opt.Regions}, policy{opt.MaxAge, opt.Origins, opt.Owners, opt.Protocols, opt.Excluded, opt.Verification}, opt.Limit, opt.diversity()})
	if err != nil {
		return nil, err
	}
	out.Reply = *r
	return out, nil
}

// pose POSTs a question and decodes the candidates that come.
func (c *Client) pose(ctx context.Context, path string, opt DiscoverOptions, v, question any) (*Reply, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	q := url.Values{}
	opt.set(q)
	r, err := c.do(ctx, http.MethodPost, withQuery(path, q), nil, body)
	return r, decoded(r, err, "candidates", v)
}
