package directory

import (
	"slices"
	"strings"
)

// A Need is what AIDIP's clients filter by (cui 4.3). It is asked of an agent as
// a whole, and not of one single capability as a lookup's filters are. All texts
// are in NFC.
type Need struct {
	Capabilities []string // all of them Listed
	Tags         []string // all of them the agent's own, or of some capability
	Languages    []string // all of them supported, or none told (AI-028)
}

// Unmet returns which part of the need e does not meet: capabilities, tags,
// languages, or "".
func (n *Need) Unmet(e *Entry) string {
	p := e.Projection()
	if p == nil {
		p = &Projection{}
	}
	return n.unmet(e.Document, p)
}

func (n *Need) unmet(d Document, p *Projection) string {
	if len(n.Capabilities) > 0 && !hasAll(n.Capabilities, Listed(d, p)) {
		return "capabilities"
	}
	for _, t := range n.Tags {
		asked := []string{t}
		if !hasAll(asked, p.Tags) && !slices.ContainsFunc(p.Capabilities, func(c Capability) bool { return hasAll(asked, c.Tags) }) {
			return "tags"
		}
	}
	if len(p.Languages) > 0 && slices.ContainsFunc(n.Languages, func(asked string) bool { return !speaks(p, asked) }) {
		return "languages"
	}
	return ""
}

// speaks reports whether an agent lists a language. Its case means nothing (RFC 5646,
// 2.1.1).
func speaks(p *Projection, tag string) bool {
	return slices.ContainsFunc(p.Languages, func(listed string) bool { return strings.EqualFold(listed, tag) })
}

// Listed returns the capabilities of a document as AIDIP shows them: those that
// it lists, where it has such a list beside its operations, and else the names of
// all (spec/views.md, 5 and 7).
func Listed(d Document, p *Projection) []string {
	kind := d.Kind()
	if kind == KindAIDIP && slices.ContainsFunc(p.Capabilities, func(c Capability) bool {
		return c.Type == typeTool && slices.Contains(p.Tags, c.Name)
	}) {
		return readDocument(d).texts("capabilities")
	}
	names := make([]string, 0, len(p.Capabilities))
	for i := range p.Capabilities {
		if c := &p.Capabilities[i]; c.Type == typeSkill || kind != KindAIDIP && kind != KindWoA {
			names = append(names, c.Name)
		}
	}
	return names
}
