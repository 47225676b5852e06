package content

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

// NormalTag returns the form that tags are compared in (XU-040): NFC, case
// folded, each underscore or run of white space a hyphen.
func NormalTag(tag string) string {
	ascii, normal := true, true
	for i := range len(tag) {
		c := tag[i]
		ascii = ascii && c < utf8.RuneSelf
		normal = normal && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}

	switch {
	case normal:
		return tag
	case ascii:
		return normalASCII(tag)
	}

	return normalAny(tag)
}

func normalAny(tag string) string {
	folded := cases.Fold().String(norm.NFC.String(tag))
	return norm.NFC.String(strings.Join(strings.FieldsFunc(folded, betweenWords), "-"))
}

func betweenWords(r rune) bool { return r == '_' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }

// normalASCII is normalAny for ASCII tags, which most are.
func normalASCII(tag string) string {
	out := make([]byte, 0, len(tag))

	between := false
	for i := range len(tag) {
		c := tag[i]
		if betweenWords(rune(c)) {
			// Separators at either end give no hyphen.
			between = len(out) > 0
			continue
		}

		if between {
			out, between = append(out, '-'), false
		}

		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}

		out = append(out, c)
	}

	return string(out)
}

// Tags returns the normalised tags by which a registration is found, each once: its own, its
// capabilities', and the names of its capabilities (xu table 10: skills are tags). The result
// is valid until the next call.
func (a *Reader) Tags(projection *directory.Projection) []string {
	ts := a.tags[:0]

	add := func(tag string) {
		if t := NormalTag(tag); t != "" && len(ts) < 4*maxLabels {
			ts = append(ts, t)
		}
	}
	for _, t := range projection.Tags {
		add(t)
	}

	for i := range projection.Capabilities {
		add(projection.Capabilities[i].Name)

		for _, t := range projection.Capabilities[i].Tags {
			add(t)
		}
	}

	a.tags = ts
	slices.Sort(ts)

	return slices.Compact(ts)
}

// A Taxonomy says which tags are kinds of which. Tags are normalised.
type Taxonomy struct {
	ID      string              // as /.well-known/agent-discovery lists it
	Broader map[string][]string // of a tag: those that it is a kind of
}

// Taxonomies have the tags that stand for a requested tag.
type Taxonomies struct {
	narrower map[string][]Narrower
}

// A Narrower is a tag that is a kind of another.
type Narrower struct{ Tag, Taxonomy string }

// maxExpanded bounds the number of tags that one tag is expanded to.
const maxExpanded = 64

func NewTaxonomies(ts []Taxonomy) Taxonomies {
	taxonomies := Taxonomies{narrower: map[string][]Narrower{}}
	for _, t := range ts {
		for tag, broader := range t.Broader {
			for _, b := range broader {
				b = NormalTag(b)
				taxonomies.narrower[b] = append(taxonomies.narrower[b], Narrower{NormalTag(tag), t.ID})
			}
		}
	}

	// Maps have no order, and an expansion must be the same at every node.
	for _, ns := range taxonomies.narrower {
		slices.SortFunc(ns, func(a, b Narrower) int {
			return strings.Compare(a.Tag+"\x00"+a.Taxonomy, b.Tag+"\x00"+b.Taxonomy)
		})
	}

	return taxonomies
}

// Expand returns the tags that are kinds of one, nearest first, without itself.
func (x *Taxonomies) Expand(tag string) []Narrower {
	var all []Narrower

	seen := map[string]bool{tag: true}
	for queue := []string{tag}; len(queue) > 0 && len(all) < maxExpanded; queue = queue[1:] {
		for _, narrower := range x.narrower[queue[0]] {
			if !seen[narrower.Tag] && len(all) < maxExpanded {
				seen[narrower.Tag] = true
				all = append(all, narrower)
				queue = append(queue, narrower.Tag)
			}
		}
	}

	return all
}
