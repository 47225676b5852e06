package discovery

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/content"
)

// A Query is a request with who makes it.
type Query struct {
	Request *Request
	Reader  Reader
	// AnyStatus lets registrations be found that are not active.
	AnyStatus bool
	// Where is one more filter, of a surface's own: it returns why an entry is left
	// out, or "". It is asked about candidates alone.
	Where func(*directory.Entry) string
	// Outside, unless it is nil, runs what waits for the source of vectors, so that the
	// caller may do other work meanwhile. Its error ends the query.
	Outside func(wait func()) error
}

// A Candidate is a registration that was found.
type Candidate struct {
	Entry           *directory.Entry
	Score           float64 // Weights.Score(Components)
	Components      Components
	MatchedTags     []string         // of its own, as it writes them
	MatchedExamples []MatchedExample // the best first; with evidence
	Evidence        *Evidence        // where the request asks for it
	Freshness       Freshness
	Flags           content.Flags

	owner      owner                 // also where Entry doesn't tell
	rater      *rater                // that rated it
	projection *directory.Projection // of Entry; nil before it is shown
	lengths    content.Lengths
	lexical    float64 // what words alone make of context
	covers     float64 // how much of the query its words are
	near       float64 // the dense part, where it is compared
	compared   bool
}

// A Result answers a query.
type Result struct {
	Candidates  []Candidate               // the best first
	Applied     map[string]jsontext.Value // as applied_filters shows them (XU-055)
	Unsupported []string
	Warnings    []string
	// Excluded counts the registrations that the reader sees and each filter has
	// left out, by the filter's name, in the order in which filters are applied.
	// Those by age, verification and Where are counted among candidates alone.
	Excluded map[string]int
	More     bool // there are more candidates than the limit
	// Semantic is nil where there is no source of vectors.
	Semantic *Semantic
}

// Warnings that a result may have.
const (
	WarnPartial = "the index is being built: not everything was searched"
	WarnFull    = "the index is full: not everything was searched"
	WarnBounded = "of the best matches most were left out by age, verification or another filter, and no more " +
		"were looked at: there may be more"
	// WarnRepeated says that a result is short, though there may be more.
	WarnRepeated = "of the best matches most say nearly the same as another of their owner, and no more were " +
		"looked at: there may be more"
	// WarnCollapsed says that a result is short, and that there is no more.
	WarnCollapsed = "matches that say nearly the same as another of their owner are left out; a request for one " +
		"origin or one owner finds them"
	// WarnDiversified says that candidates are not in the order of their scores: some
	// stand behind those of other owners.
	WarnDiversified = "diversified"
)

// An UnsupportedError is the answer to a strict request that names filters that
// this release doesn't know.
type UnsupportedError struct{ Names []string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("these filters are not supported: %s", strings.Join(e.Names, ", "))
}
