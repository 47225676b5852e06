package index

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on a lookup.
const (
	// MaxCount is how many registrations one page of a lookup holds at most.
	MaxCount = 100
	// MaxPages is how many pages can be reached by their number alone.
	MaxPages = 10_000
	// MaxFilters is how many values all filters of one lookup have at most.
	MaxFilters = 64
)

// A Query is a lookup (jimenez 5.1): all that is set must match. CapName,
// CapType and Tag must all match on one single capability; the others are the
// agent's own. All texts are in NFC.
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

	// Charge is told how many registrations were looked at, some hundreds at a time, and
	// ends the lookup by false, whose page is worth nothing then. Nil never does. It is
	// called without a lock. A watch is told of what is there at its beginning alone.
	Charge func(looked int) bool
}

// A Pattern matches a whole name, or its beginning where Prefix is set.
type Pattern struct {
	Text   string
	Prefix bool
}

// Matches reports whether name, which has any normal form, is one that p asks
// for. The pattern without a text matches nothing, the prefix without one every
// name (AD-060).
func (p Pattern) Matches(name string) bool {
	if p.Prefix {
		return name != "" && strings.HasPrefix(nfc(name), p.Text)
	}

	return same(name, p.Text)
}

// nfc returns the NFC form of s, quickly where s is ASCII.
func nfc(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return norm.NFC.String(s)
		}
	}

	return s
}

// same reports whether a registered text is the one that is asked for, which is
// in NFC. No text is the empty one.
func same(registered, asked string) bool {
	return asked != "" && (registered == asked || nfc(registered) == asked)
}

// A matcher tells which entries a query asks for.
type matcher struct {
	*Query
	mask   termMask
	p      directory.Projection // of one entry after the other
	looked int                  // since spend
}

// charge tells what was looked at, and reports whether to go on.
func (m *matcher) charge() bool {
	n := m.looked
	m.looked = 0

	return m.Charge == nil || m.Charge(n)
}

// matches reports whether e is one that q asks for, its place and its deadline
// aside.
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

// matchesCapability reports whether one single capability has everything that q
// asks of capabilities (AD-029). The agent's own tags are each capability's too;
// an agent without capabilities is found by its tags alone.
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

// hasAll reports whether every text that is asked for is in one of the lists.
func hasAll(asked []string, lists ...[]string) bool {
	for _, a := range asked {
		if !slices.ContainsFunc(lists, func(l []string) bool {
			return slices.ContainsFunc(l, func(s string) bool { return same(s, a) })
		}) {
			return false
		}
	}

	return true
}
