package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery/content"
)

// Bounds on a request (XU-049, XU-053).
const (
	MaxQuery     = 4096 // bytes
	DefaultLimit = 10
	MaxLimit     = 100
	// MaxFilterValues bounds each list of tags, protocols, origins and regions.
	MaxFilterValues = 64
)

// Details of an answer (xu 5.1).
const (
	DetailMinimal = "minimal"
	DetailSummary = "summary"
	DetailFull    = "full"
)

// A Request is the body of POST /discovery/query (xu 5.1). Tags are as they were
// written.
type Request struct {
	Query           string
	RequiredTags    []string
	PreferredTags   []string
	ExcludedTags    []string
	Protocols       []string
	Constraints     Constraints
	Limit           int // 1 to MaxLimit
	IncludeEvidence bool
	Detail          string
	Strict          bool // ours: a filter that cannot be applied fails the request (XU-012)
	// Plain asks for the order of scores alone, without shares of owners: ours,
	// "diversity": false.
	Plain  bool
	Expand bool // ours: a required tag is satisfied by those that are kinds of it (XU-052)
	// Explain names a registration by rid or by name, whose place in the answer, or absence
	// from it, is to be explained as well; ours.
	Explain string
	// Locale is client_context's, a hint: nothing else of client_context is read,
	// and none of it is kept (XU-053).
	Locale string
}

// Constraints are the hard filters that this release knows (XU-051).
type Constraints struct {
	MaxAge          int64 // seconds since the last refresh; -1 for any
	Regions         []string
	Origins         []string
	Owners          []string // ours
	MinVerification Verification
	// Unsupported are the names of all others, sorted.
	Unsupported []string
}

// KnownConstraints are the names of the constraints that are applied, as
// /.well-known/agent-discovery lists them.
var KnownConstraints = []string{"max_results_age_seconds", "min_verification", "origins", "owners", "region"}

// Verification is the degree to which a node has verified a registration's origin. Each
// includes those before it.
type Verification int

// The states (XU-051). A registration of the own domain is Local.
const (
	Pending Verification = iota
	Verified
	Logged
	Witnessed
	Local
)

var verifications = []string{"pending", "verified", "logged", "witnessed", "local"}

func (v Verification) String() string { return verifications[v] }

// ParseRequest reads a request strictly: members that it knows have their types
// and bounds; others are ignored (xu 4.7). Errors are directory's BadRequest with
// a pointer.
func ParseRequest(body []byte) (*Request, error) {
	members, err := directory.ParseObject(body)
	if err != nil {
		return nil, err
	}

	r := &Request{Limit: DefaultLimit, Detail: DetailSummary, Constraints: Constraints{MaxAge: -1}}
	for _, m := range members {
		if err := r.read(m.Name, m.Value); err != nil {
			return nil, err
		}
	}

	if strings.TrimSpace(r.Query) == "" {
		return nil, refuse("query", "query is missing: describe the task in words")
	}

	return r, nil
}

func refuse(at, format string, args ...any) error {
	return directory.Refuse(directory.BadRequest, format, args...).At("/" + at)
}

func (r *Request) read(name string, value []byte) error {
	switch name {
	case "query":
		if err := readText(name, value, &r.Query); err != nil {
			return err
		}

		if len(r.Query) > MaxQuery {
			return refuse(name, "query has %d bytes; at most %d are allowed", len(r.Query), MaxQuery)
		}

		return nil
	case "required_tags":
		return readTags(name, value, &r.RequiredTags)
	case "preferred_tags":
		return readTags(name, value, &r.PreferredTags)
	case "excluded_tags":
		return readTags(name, value, &r.ExcludedTags)
	case "protocols":
		return readList(name, value, &r.Protocols)
	case "limit":
		return readLimit(name, value, &r.Limit)
	case "include_evidence":
		return readFlag(name, value, &r.IncludeEvidence)
	case "strict":
		return readFlag(name, value, &r.Strict)
	case "expand":
		return readFlag(name, value, &r.Expand)
	case "diversity":
		diverse := true
		err := readFlag(name, value, &diverse)
		r.Plain = !diverse

		return err
	case "explain":
		if err := readText(name, value, &r.Explain); err != nil {
			return err
		}

		if r.Explain == "" || len(r.Explain) > directory.MaxName {
			return refuse(name, "explain must be the rid or the name of a registration")
		}

		return nil
	case "detail":
		if err := readText(name, value, &r.Detail); err != nil {
			return err
		}

		if !slices.Contains([]string{DetailMinimal, DetailSummary, DetailFull}, r.Detail) {
			return refuse(name, "detail must be minimal, summary or full, got %.40q", r.Detail)
		}

		return nil
	case "constraints":
		return r.Constraints.read(value)
	case "client_context":
		return r.readContext(value)
	}

	return nil
}

// readContext takes the hint that is used from client_context.
func (r *Request) readContext(value []byte) error {
	members, err := readObject("client_context", value)
	if err != nil {
		return err
	}

	for _, m := range members {
		// A hint of another type is ignored, as the rest of client_context is.
		if m.Name == "locale" && m.Value[0] == '"' {
			return readText("client_context/locale", m.Value, &r.Locale)
		}
	}

	return nil
}

func (c *Constraints) read(value []byte) error {
	members, err := readObject("constraints", value)
	if err != nil {
		return err
	}

	for _, member := range members {
		at := "constraints/" + member.Name
		switch member.Name {
		case "max_results_age_seconds":
			if err := json.Unmarshal(member.Value, &c.MaxAge); err != nil || c.MaxAge < 0 {
				return refuse(at, "max_results_age_seconds must be a whole number of seconds, 0 or more")
			}
		case "region":
			err = readOneOrMore(at, member.Value, &c.Regions)
		case "origins":
			err = readOneOrMore(at, member.Value, &c.Origins)
		case "owners":
			err = c.readOwners(at, member.Value)
		case "min_verification":
			err = c.readVerification(at, member.Value)
		default:
			c.Unsupported = append(c.Unsupported, member.Name)
		}

		if err != nil {
			return err
		}
	}

	slices.Sort(c.Unsupported)

	return nil
}

func (c *Constraints) readOwners(at string, value []byte) error {
	if err := readOneOrMore(at, value, &c.Owners); err != nil {
		return err
	}

	for _, text := range c.Owners {
		if _, err := directory.ParseIdentity(text); err != nil {
			return refuse(at, "%.100q is not an identity such as spiffe://DOMAIN/PATH", text)
		}
	}

	return nil
}

func (c *Constraints) readVerification(at string, value []byte) error {
	var s string
	if err := readText(at, value, &s); err != nil {
		return err
	}

	i := slices.Index(verifications[:Local], s)
	if i < 0 {
		return refuse(at, "min_verification must be pending, verified, logged or witnessed, got %.40q", s)
	}

	c.MinVerification = Verification(i)

	return nil
}

func readObject(at string, value []byte) ([]strictjson.Member, error) {
	if value[0] != '{' {
		return nil, refuse(at, "%s must be an object", last(at))
	}

	return directory.ParseObject(value)
}

func readText(at string, value []byte, to *string) error {
	if value[0] != '"' || json.Unmarshal(value, to) != nil {
		return refuse(at, "%s must be a string", last(at))
	}

	return nil
}

func readFlag(at string, value []byte, to *bool) error {
	if json.Unmarshal(value, to) != nil || value[0] == 'n' {
		return refuse(at, "%s must be true or false", last(at))
	}

	return nil
}

func readLimit(at string, value []byte, to *int) error {
	var n int64
	if err := json.Unmarshal(value, &n); err != nil || n < 1 {
		return refuse(at, "%s must be a whole number from 1 on", last(at))
	}

	*to = int(min(n, MaxLimit))

	return nil
}

func readList(at string, value []byte, to *[]string) error {
	if value[0] != '[' || json.Unmarshal(value, to) != nil {
		return refuse(at, "%s must be an array of strings", last(at))
	}

	if len(*to) > MaxFilterValues {
		return refuse(at, "%s has %d values; at most %d are allowed", last(at), len(*to), MaxFilterValues)
	}

	if slices.Contains(*to, "") {
		return refuse(at, "%s has an empty value", last(at))
	}

	return nil
}

func readTags(at string, value []byte, to *[]string) error {
	if err := readList(at, value, to); err != nil {
		return err
	}

	for _, t := range *to {
		if len(t) > directory.MaxTag || content.NormalTag(t) == "" {
			return refuse(at, "%.40q is not a tag: tags have 1 to %d bytes", t, directory.MaxTag)
		}
	}

	return nil
}

func readOneOrMore(at string, value []byte, to *[]string) error {
	if value[0] != '"' {
		return readList(at, value, to)
	}

	*to = []string{""}

	return readText(at, value, &(*to)[0])
}

func last(at string) string { return at[strings.LastIndexByte(at, '/')+1:] }

// Components are the parts of a score, each within 0 and 1 (xu 6.2):
//
//	score = (tag × Weights.Tag + context × Weights.Context + example × Weights.Example
//	         + protocol × Weights.Protocol) × freshness × policy
type Components struct {
	Tag       float64 `json:"tag"`
	Context   float64 `json:"context"`
	Example   float64 `json:"example"`
	Protocol  float64 `json:"protocol"`
	Freshness float64 `json:"freshness"`
	Policy    float64 `json:"policy"`
}

// Weights say how much each component counts. They add up to 1, as
// /.well-known/agent-discovery shows them.
type Weights struct {
	Tag      float64 `json:"tag"`
	Context  float64 `json:"context"`
	Example  float64 `json:"example"`
	Protocol float64 `json:"protocol"`
}

// DefaultWeights are those that scenarios/quality was tuned with.
var DefaultWeights = Weights{Tag: .14, Context: .66, Example: .10, Protocol: .10}

// Check refuses weights that are negative or don't add up to 1.
func (w Weights) Check() error {
	sum := w.Tag + w.Context + w.Example + w.Protocol
	if !(min(w.Tag, w.Context, w.Example, w.Protocol) >= 0 && sum > 1-1e-9 && sum < 1+1e-9) { // of a NaN neither holds
		return fmt.Errorf("the weights %+v must be 0 or more and add up to 1", w)
	}

	return nil
}

// Score is the score that components make.
func (w Weights) Score(c Components) float64 {
	return (w.Tag*c.Tag + w.Context*c.Context + w.Example*c.Example + w.Protocol*c.Protocol) * c.Freshness * c.Policy
}

// A MatchedExample is an example that a query matches (xu 6.3).
type MatchedExample struct {
	ID    string  `json:"id"` // ex-N where it has none
	Score float64 `json:"score"`
	Text  string  `json:"text"`
}

// Freshness is the age of a candidate (XU-009).
type Freshness struct {
	MetadataUpdatedAt string `json:"metadata_updated_at"`
	IndexedAt         string `json:"indexed_at"`
	AgeSeconds        int64  `json:"age_seconds"` // since the last refresh that this node has verified
	Stale             bool   `json:"stale"`       // older than the request's constraint
}

// Evidence says why a candidate is one (xu 8). All of it is taken from the
// candidate itself and from the request.
type Evidence struct {
	Weights      Weights         `json:"weights"`
	Terms        []TermEvidence  `json:"terms"`
	ExpandedTags []ExpandedMatch `json:"expanded_tags,omitempty"`
	// Semantic is the contribution of nearness to the query, if vectors are used.
	Semantic *SemanticEvidence `json:"semantic,omitempty"`
	Snippets []Snippet         `json:"snippets"`
	Flags    []string          `json:"flags,omitempty"`
}

// TermEvidence is the contribution of one word of the query to the component context.
type TermEvidence struct {
	Term   string             `json:"term"`   // as it is searched: the stem
	Text   string             `json:"text"`   // as the query has it
	IDF    float64            `json:"idf"`    // information, within the caller's visible set
	Adds   float64            `json:"adds"`   // to context
	Fields map[string]float64 `json:"fields"` // the contribution of each field
}

// SemanticEvidence is the contribution of vectors to the component context.
type SemanticEvidence struct {
	Nearness float64 `json:"nearness"` // above that of the average registration, 0 to 1
	Adds     float64 `json:"adds"`     // to context
}

// ExpandedMatch is a tag of the candidate that stands for one that was asked for.
type ExpandedMatch struct {
	Asked    string `json:"asked"`
	Tag      string `json:"tag"`
	Taxonomy string `json:"taxonomy"`
}

// A Snippet is where words of the query stand in one text of the candidate.
type Snippet struct {
	Pointer string   `json:"pointer"` // into the registration
	Field   string   `json:"field"`
	Derived bool     `json:"derived,omitempty"` // not as it was written: projected from another kind of document
	Spans   [][2]int `json:"spans"`             // of bytes: from, to
}

// appliedFilters is Result.Applied: the filters, as they were applied (XU-055).
type appliedFilters = map[string]jsontext.Value

func filterValue(v any) jsontext.Value {
	data, err := json.Marshal(v)
	if err != nil {
		return jsontext.Value("null")
	}

	return data
}
