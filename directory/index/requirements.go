package index

import (
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// Requirements are the filters of AIDIP clients (cui 4.3). They apply to an agent as a
// whole, not to one single capability as a lookup's filters do. All texts are in NFC.
type Requirements struct {
	Capabilities []string // all of them Listed
	Tags         []string // all of them the agent's own, or of some capability
	Languages    []string // all of them supported, or none declared (AI-028)
}

// Unmet returns the first requirement that an entry does not meet: capabilities, tags,
// languages, or "".
func (n *Requirements) Unmet(entry *directory.Entry) string {
	projection := entry.Projection()
	if projection == nil {
		projection = &directory.Projection{}
	}

	return n.unmet(entry.Document, projection)
}

func (n *Requirements) unmet(d directory.Document, projection *directory.Projection) string {
	if len(n.Capabilities) > 0 && !hasAll(n.Capabilities, kinds.ListedCapabilities(d, projection)) {
		return "capabilities"
	}

	for _, t := range n.Tags {
		asked := []string{t}
		if !hasAll(asked, projection.Tags) && !slices.ContainsFunc(projection.Capabilities,
			func(c directory.Capability) bool {
				return hasAll(asked, c.Tags)
			}) {
			return "tags"
		}
	}

	if len(projection.Languages) > 0 && slices.ContainsFunc(n.Languages, func(asked string) bool {
		return !speaks(projection, asked)
	}) {
		return "languages"
	}

	return ""
}

// speaks reports whether an agent lists a language, in any case (RFC 5646, 2.1.1).
func speaks(p *directory.Projection, tag string) bool {
	return slices.ContainsFunc(p.Languages, func(listed string) bool { return strings.EqualFold(listed, tag) })
}
