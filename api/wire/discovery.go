package wire

// DiscoverConstraints are the limits of a Discovery Request (draft-xu 5).
type DiscoverConstraints struct {
	MaxAgeSeconds int      `json:"max_results_age_seconds,omitzero"`
	Origins       []string `json:"origins,omitempty"`
	Owners        []string `json:"owners,omitempty"`
	Regions       []string `json:"region,omitempty"`
	Verification  string   `json:"min_verification,omitzero"`
}

// A DiscoverRequest is the body of a Discovery Request (draft-xu 5).
type DiscoverRequest struct {
	Query       string              `json:"query"`
	Required    []string            `json:"required_tags,omitempty"`
	Preferred   []string            `json:"preferred_tags,omitempty"`
	Excluded    []string            `json:"excluded_tags,omitempty"`
	Protocols   []string            `json:"protocols,omitempty"`
	Constraints DiscoverConstraints `json:"constraints,omitzero"`
	Limit       int                 `json:"limit,omitzero"`
	Detail      string              `json:"detail,omitzero"`
	Evidence    bool                `json:"include_evidence,omitzero"`
	Explain     string              `json:"explain,omitzero"`
	// Diversity is false to rank by scores alone; nil is the directory's default.
	Diversity *bool `json:"diversity,omitzero"`
}

// A Candidate is an agent that may serve a request, as discovery shows it
// (draft-xu 6).
type Candidate struct {
	ID          string    `json:"id"`
	Agent       string    `json:"agent"` // by which it is registered
	Name        string    `json:"name"`  // as it calls itself
	Description string    `json:"description"`
	Bindings    []Binding `json:"bindings"`
	Score       float64   `json:"score"`
	// Components are the parts of the score by name, if evidence was asked for.
	Components  map[string]float64 `json:"score_components"`
	MatchedTags []string           `json:"matched_tags"`
	// MatchedExamples are there if evidence was asked for.
	MatchedExamples []MatchedExample `json:"matched_examples"`
	// Evidence is there if it was asked for.
	Evidence   Evidence   `json:"evidence"`
	Flags      []string   `json:"flags"`
	Provenance Provenance `json:"provenance"`
}

// A Binding is one way to reach an agent.
type Binding struct {
	Protocol string `json:"protocol"`
	Endpoint string `json:"endpoint"`
}

// A MatchedExample is an example of an agent's that a query matches (draft-xu 6.3).
type MatchedExample struct {
	ID    string  `json:"id"`
	Score float64 `json:"score"`
	Text  string  `json:"text"`
}

// Evidence says why a candidate is one (draft-xu 8).
type Evidence struct {
	Weights      Weights         `json:"weights"`
	Terms        []TermEvidence  `json:"terms"`
	ExpandedTags []ExpandedMatch `json:"expanded_tags,omitempty"`
	// Semantic is there if vectors have a part in the score.
	Semantic *SemanticEvidence `json:"semantic,omitempty"`
	Snippets []Snippet         `json:"snippets"`
	Flags    []string          `json:"flags,omitempty"`
}

// Weights say how much each component of a score counts. Their sum is 1.
type Weights struct {
	Tag      float64 `json:"tag"`
	Context  float64 `json:"context"`
	Example  float64 `json:"example"`
	Protocol float64 `json:"protocol"`
}

// TermEvidence is the contribution of one word of the query to the component context.
type TermEvidence struct {
	Term   string             `json:"term"`   // the stem, as it is searched
	Text   string             `json:"text"`   // as the query has it
	IDF    float64            `json:"idf"`    // the word's weight among the registrations that the caller may see
	Adds   float64            `json:"adds"`   // to context
	Fields map[string]float64 `json:"fields"` // the share of each field
}

// SemanticEvidence is the contribution of embeddings to the component context.
type SemanticEvidence struct {
	Nearness float64 `json:"nearness"` // above that of the average registration, 0 to 1
	Adds     float64 `json:"adds"`     // to context
}

// An ExpandedMatch is a tag of the candidate that stands for one that was asked for.
type ExpandedMatch struct {
	Asked    string `json:"asked"`
	Tag      string `json:"tag"`
	Taxonomy string `json:"taxonomy"`
}

// A Snippet is where words of the query stand in one text of the candidate.
type Snippet struct {
	Pointer string   `json:"pointer"` // into the registration
	Field   string   `json:"field"`
	Derived bool     `json:"derived,omitempty"` // projected from another kind of document
	Spans   [][2]int `json:"spans"`             // in bytes: from, to
}

// A Discovery is the answer to a Discovery Request (draft-xu 6).
type Discovery struct {
	// Candidates are the best first.
	Candidates  []Candidate `json:"candidates"`
	Unsupported []string    `json:"unsupported_filters"`
	Warnings    []string    `json:"warnings"`
	// Explanation is there if one was asked for.
	Explanation Explanation `json:"explanation"`
}

// An Explanation is the outcome of a query for one registration that the request
// named.
type Explanation struct {
	ID   string `json:"id"`
	Href string `json:"href"`
	// Why is found, behind, no_match, flagged, duplicate, per_owner, or the name of
	// a filter.
	Why string `json:"why"`
	// Rank counts from 1; 0 if it has none.
	Rank  int     `json:"rank"`
	Score float64 `json:"score"`
	// Needed is the score that a full answer needs; 0 if there is room.
	Needed          float64          `json:"needed_score"`
	Components      Components       `json:"score_components"`
	MatchedTags     []string         `json:"matched_tags"`
	MatchedExamples []MatchedExample `json:"matched_examples"`
	Evidence        Evidence         `json:"evidence"`
	// Excluded is how many registrations each filter left out, of those that the
	// caller may see.
	Excluded map[string]int `json:"excluded"`
}

// Components are the parts of a score, each between 0 and 1 (draft-xu 6.2).
type Components struct {
	Tag       float64 `json:"tag"`
	Context   float64 `json:"context"`
	Example   float64 `json:"example"`
	Protocol  float64 `json:"protocol"`
	Freshness float64 `json:"freshness"`
	Policy    float64 `json:"policy"`
}

// A ResolveRequest is the body of a request for resolution (draft-cui 6).
type ResolveRequest struct {
	Intent  string         `json:"intent"`
	Context ResolveContext `json:"context"`
	Policy  ResolvePolicy  `json:"policy"`
	Top     int            `json:"top,omitzero"`
	// Diversity is false to rank by scores alone; nil is the directory's default.
	Diversity *bool `json:"diversity,omitzero"`
}

// A ResolveContext has the preferences of a request for resolution.
type ResolveContext struct {
	Tags    []string `json:"tags,omitempty"`
	Regions []string `json:"region,omitempty"`
}

// A ResolvePolicy has the demands of a request for resolution.
type ResolvePolicy struct {
	MaxAgeSeconds int      `json:"max_age_seconds,omitzero"`
	Domains       []string `json:"allowed_domains,omitempty"`
	Owners        []string `json:"allowed_owners,omitempty"`
	Protocols     []string `json:"allowed_protocols,omitempty"`
	Excluded      []string `json:"excluded_tags,omitempty"`
	Verification  string   `json:"min_verification,omitzero"`
}

// A Resolved is an agent that may serve an intent, and how to invoke it.
type Resolved struct {
	ID         string     `json:"id"`
	Agent      string     `json:"agent"` // by which it is registered
	Name       string     `json:"name"`  // as it calls itself
	Endpoint   string     `json:"endpoint"`
	Invocation Invocation `json:"invocation"`
	Score      float64    `json:"score"`
	Reasons    []Reason   `json:"reasons"`
	Flags      []string   `json:"flags"`
	Provenance Provenance `json:"provenance"`
}

// An Invocation is how an agent is invoked.
type Invocation struct {
	Method    string  `json:"method"`
	Transport string  `json:"transport"`
	Operation string  `json:"operation"`
	Auth      RawJSON `json:"auth"`
}

// A Reason says why an agent was chosen.
type Reason struct {
	// Matched is tag, example or word.
	Matched string `json:"matched"`
	Value   string `json:"value"`
	// Fields are those that a word stands in.
	Fields []string `json:"fields"`
}

// A Resolution is the answer to a request for resolution (draft-cui 6).
type Resolution struct {
	// Candidates are the best first.
	Candidates []Resolved `json:"candidates"`
	// Excluded is how many were left out, by reason.
	Excluded map[string]int `json:"excluded"`
	Warnings []string       `json:"warnings"`
}
