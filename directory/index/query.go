package index

import (
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on a lookup.
const (
	// MaxCount bounds the registrations of one page of a lookup.
	MaxCount = 100
	// MaxPages bounds the pages that can be reached by number.
	MaxPages = 10_000
	// MaxFilters bounds the values of all filters of one lookup.
	MaxFilters = 64
)

// A Query is a lookup (jimenez 5.1): all filters that are set must match. CapName, CapType
// and Tag must match on one single capability; the other filters apply to the agent. All
// texts are in NFC.
type Query struct {
	Agent        []Pattern
	Protocol     []string
	CapName      []Pattern
	CapType      []string
	Tag          []string
	Status       []string
	Language     []string
	Requirements Requirements
	Origin       spiffeid.TrustDomain // zero for all
	OwnOnly      bool                 // scope=domain: the own domain's only
	After        Cursor               // zero for the beginning
	Skip         int                  // page*count, where no cursor is given
	Count        int                  // 1 to MaxCount
	Page         int                  // as asked; a cursor wins over it

	// Charge is called, without a lock, with the number of registrations that were looked
	// at, some hundreds at a time. If it returns false, the lookup ends and its page is
	// void. A watch is charged for its initial state alone. Nil never ends a lookup.
	Charge func(looked int) bool
}

// A Pattern matches a whole name, or names with a prefix if Prefix is set.
type Pattern struct {
	Text   string
	Prefix bool
}

// Matches reports whether name, in any normal form, matches p. An empty pattern matches
// nothing; an empty prefix matches every name (AD-060).
func (p Pattern) Matches(name string) bool {
	if p.Prefix {
		return name != "" && strings.HasPrefix(nfc(name), p.Text)
	}

	return same(name, p.Text)
}

// A matcher decides which entries match a query.
type matcher struct {
	*Query
	mask   termMask
	p      directory.Projection // of one entry after the other
	looked int                  // since spend
}

// charge reports the entries that were looked at, and returns whether to go on.
func (m *matcher) charge() bool {
	n := m.looked
	m.looked = 0

	return m.Charge == nil || m.Charge(n)
}

// matches reports whether an entry matches q, apart from its place and deadline.
func (q *matcher) matches(entry *directory.Entry) bool {
	if slices.ContainsFunc(q.Agent, func(asked Pattern) bool { return !asked.Matches(entry.Agent) }) {
		return false
	}

	projection := &q.p
	entry.UnpackFilterable(projection)

	return hasAll(q.Protocol, projection.Protocols) && hasAll(q.Language, projection.Languages) &&
		hasAll(q.Status, []string{projection.Status}) && q.matchesCapability(projection) &&
		q.Requirements.unmet(entry.Document, projection) == ""
}

// matchesCapability reports whether one single capability matches all capability filters of
// q (AD-029). The agent's own tags count for each capability; an agent without capabilities
// is matched by its tags alone.
func (q *Query) matchesCapability(projection *directory.Projection) bool {
	if len(q.CapName) == 0 && len(q.CapType) == 0 && (len(q.Tag) == 0 || len(projection.Capabilities) == 0) {
		return hasAll(q.Tag, projection.Tags)
	}

	for i := range projection.Capabilities {
		c := &projection.Capabilities[i]
		if !slices.ContainsFunc(q.CapName, func(asked Pattern) bool { return !asked.Matches(c.Name) }) &&
			hasAll(q.CapType, []string{c.Type}) && hasAll(q.Tag, c.Tags, projection.Tags) {
			return true
		}
	}

	return false
}
