package discovery

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// The fields of a registration that words are searched in.
const (
	fieldName        = iota
	fieldDescription // the agent's
	fieldLabels      // tags, and the names of capabilities
	fieldExamples    // examples, and the descriptions of capabilities
	fieldCount
)

// fieldNames are the fields as evidence names them.
var fieldNames = [fieldCount]string{"name", "description", "tags", "examples"}

// What is read of one registration at most (XU-030).
const (
	maxLabels   = 256 // tags and names of capabilities
	maxExamples = 32  // examples …
	maxSkills   = 64  // … and descriptions of capabilities
	maxWords    = 1024
)

// A section is one text of a registration.
type section struct {
	field   int
	text    string
	pointer string // to its place in the registration as GET /ad/r/{rid} shows it
	derived bool   // projected: a capability's, not the agent's own tag or example (XU-057)
	example int    // which of the projection's examples it is; -1 for none
	inner   bool   // text is made of what stands within the registration's
	tag     bool   // it is a tag, of the agent or of a capability
}

// sectionsOf returns the texts of a registration, as many as are read of it.
func sectionsOf(p *directory.Projection) []section {
	ss := make([]section, 0, 2+len(p.Tags)+2*len(p.Capabilities)+len(p.Examples))
	ss = append(ss, section{field: fieldName, text: p.Name, pointer: "/name", example: -1},
		section{field: fieldDescription, text: p.Description, pointer: "/description", example: -1})
	seen := map[string]bool{}
	label := func(text, pointer string, derived, tag bool) {
		if text != "" && !seen[text] && len(seen) < maxLabels {
			seen[text] = true
			ss = append(ss, section{field: fieldLabels, text: text, pointer: pointer, derived: derived, example: -1, tag: tag})
		}
	}
	for i, t := range p.Tags {
		label(t, "/tags/"+itoa(i), false, true)
	}
	for i := range p.Capabilities {
		c := &p.Capabilities[i]
		at := "/capabilities/" + itoa(i)
		label(c.Name, at+"/name", true, false)
		for j, t := range c.Tags {
			label(t, at+"/tags/"+itoa(j), true, true)
		}
		if i < maxSkills && c.Description != "" {
			ss = append(ss, section{field: fieldExamples, text: c.Description, pointer: at + "/description", derived: true, example: -1})
		}
	}
	for i := range p.Examples[:min(len(p.Examples), maxExamples)] {
		written := p.Examples[i].Text
		text := leaves(written)
		ss = append(ss, section{field: fieldExamples, text: text, inner: text != written, pointer: "/examples/" + itoa(i) + "/text", example: i})
	}
	return ss
}

// leaves returns the strings within a text that is a JSON object, as an
// operation's example input is (spec/views.md, 13); any other text as it is.
func leaves(text string) string {
	if !strings.HasPrefix(text, "{") {
		return text
	}
	var b strings.Builder
	d := jsontext.NewDecoder(strings.NewReader(text))
	for {
		t, err := d.ReadToken()
		if err != nil {
			break
		}
		if in, n := d.StackIndex(d.StackDepth()); t.Kind() == '"' && (in != '{' || n%2 == 0) {
			b.WriteString(t.String())
			b.WriteByte('\n')
		}
	}
	if b.Len() == 0 {
		return text
	}
	return b.String()
}

// A counted term has how often it stands in each field, at most maxCount times:
// to say a thing more often than that adds nothing.
type counted [fieldCount]uint8

const maxCount = 3

// A reading is what the analyser found in one registration.
type reading struct {
	counts  map[string]counted
	lengths [fieldCount]float64 // in words, made longer by gates
	flags   Flags
	gates   gates
}

// read counts the words of a registration, and looks for what is written for
// rankers and not for readers.
//
// Each section is shown to visit with its words, unless visit is nil.
func (r *reading) read(a *analyser, p *directory.Projection, visit func(*section, []token)) {
	if r.counts == nil {
		r.counts = map[string]counted{}
	}
	clear(r.counts)
	*r = reading{counts: r.counts, gates: r.gates}
	g := &r.gates
	*g = gates{examples: g.examples[:0], heard: g.heard[:0]}
	sections := sectionsOf(p)
	for i := range sections {
		s := &sections[i]
		before := a.dropped
		tokens := a.read(s.text)
		g.see(s, tokens, a.dropped-before)
		if visit != nil {
			visit(s, tokens)
		}
		for i, t := range tokens {
			field := s.field
			if field == fieldName && i >= maxNameWords {
				field = fieldDescription
			}
			if r.lengths[field] >= maxWords {
				break
			}
			c := r.counts[t.term]
			if c[field] == 0 {
				g.distinct[field]++
			}
			c[field] = min(c[field]+1, maxCount)
			r.counts[t.term] = c
			r.lengths[field]++
		}
	}
	r.flags = g.judge(r)
}

// labelsOf returns what filters find a registration by, each once: its
// normalised tags, its protocols, regions, origin and status.
func labelsOf(e *directory.Entry) []string {
	p := e.Projection
	ls := []string{markOrigin + e.Origin.Name()}
	if p.Status != statusActive && p.Status != "" {
		ls = append(ls, markInactive)
	}
	add := func(mark string, texts []string) {
		for _, t := range texts {
			if t != "" && len(t) < maxTerm {
				ls = append(ls, mark+t)
			}
		}
	}
	for _, t := range tagsOf(p) {
		ls = append(ls, markTag+t)
	}
	add(markProtocol, protocolsOf(p))
	add(markRegion, regionsOf(p))
	slices.Sort(ls)
	return slices.Compact(ls)
}

// The first characters of terms that are no words.
const (
	markTag      = "#"
	markProtocol = "@"
	markRegion   = "^"
	markOrigin   = "~"
	markInactive = "!"
)

const statusActive = "active"

// protocolsOf returns the protocols that a registration is reached by.
func protocolsOf(p *directory.Projection) []string {
	ps := slices.Clone(p.Protocols)
	for i := range p.Bindings {
		if !slices.Contains(ps, p.Bindings[i].Protocol) {
			ps = append(ps, p.Bindings[i].Protocol)
		}
	}
	return ps
}

// regionsOf returns the member region of a registration's constraints, a string
// or an array of strings (XU-051).
func regionsOf(p *directory.Projection) []string {
	if p.Constraints == nil {
		return nil
	}
	var rs []string
	d := jsontext.NewDecoder(strings.NewReader(string(p.Constraints)))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return rs
		}
		if d.StackPointer() == "/region" && t.Kind() == '"' {
			if in, n := d.StackIndex(1); d.StackDepth() == 1 && in == '{' && n%2 == 0 {
				rs = append(rs, t.String())
			}
		}
		if strings.HasPrefix(string(d.StackPointer()), "/region/") && t.Kind() == '"' && d.StackDepth() == 2 {
			if in, _ := d.StackIndex(2); in == '[' {
				rs = append(rs, t.String())
			}
		}
	}
}
