package discovery

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/content"
)

// A Query is a request and its reader.
type Query struct {
	Request *Request
	Reader  Reader
	// AnyStatus includes registrations that are not active.
	AnyStatus bool
	// Where is an additional filter of a surface: it returns the reason for which an entry
	// is excluded, or "". It is called for candidates alone.
	Where func(*directory.Entry) string
	// Outside, if set, runs the function that waits for the embedder, so that the caller may
	// release its share of the node meanwhile. Its error ends the query.
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
	lexical    float64 // the part of context that words alone make
	covers     float64 // how much of the query its words are
	near       float64 // the dense part, where it is compared
	compared   bool
}

// A Result is the answer to a query.
type Result struct {
	Candidates  []Candidate               // the best first
	Applied     map[string]jsontext.Value // as applied_filters shows them (XU-055)
	Unsupported []string
	Warnings    []string
	// Excluded counts, by filter, the registrations visible to the reader that the filter
	// excluded, in the order in which filters are applied. Filters by age, verification and
	// Where count candidates alone.
	Excluded map[string]int
	More     bool // there are more candidates than the limit
	// Semantic is nil if there is no source of vectors.
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

// Outcomes of a registration in a query. If a filter has left it out, the outcome is the
// filter's name, as in Result.Excluded.
const (
	WhyFound     = "found"     // it is in the answer
	WhyBehind    = "behind"    // others are better, and the limit is reached
	WhyNoMatch   = "no_match"  // it has nothing of the request
	WhyFlagged   = "flagged"   // its texts are written for rankers, and it is no good match
	WhyDuplicate = "duplicate" // nearly the same text as a better one of its owner
	// its owner has its share of the answer, and others that match about as well go before it
	WhyPerOwner = "per_owner"
)

// An UnsupportedError is returned for a strict request with filters that this release does
// not support.
type UnsupportedError struct{ Names []string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("these filters are not supported: %s", strings.Join(e.Names, ", "))
}
