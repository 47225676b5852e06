package discovery

import (
	"bytes"
	"math"
	"slices"
	"strconv"
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
	source  source
	i, j    int  // numbers in source
	derived bool // projected: a capability's, not the agent's own tag or example (XU-057)
	inner   bool // text is made of what stands within the registration's
	tag     bool // it is a tag, of the agent or of a capability
}

// A source is where a section stands.
type source uint8

const (
	ofName source = iota
	ofDescription
	ofTag
	ofCapabilityName
	ofCapabilityTag
	ofCapabilityDescription
	ofExample
)

// sameTexts reports whether two projections have the same of all that is indexed:
// in their sections and their labels.
func sameTexts(a, b *directory.Projection) bool {
	capability := func(a, b directory.Capability) bool {
		return a.Name == b.Name && a.Description == b.Description && slices.Equal(a.Tags, b.Tags)
	}
	example := func(a, b directory.Example) bool { return a.Text == b.Text }
	return a.Name == b.Name && a.Description == b.Description && a.Status == b.Status &&
		slices.Equal(a.Tags, b.Tags) && slices.EqualFunc(a.Capabilities, b.Capabilities, capability) &&
		slices.EqualFunc(a.Examples, b.Examples, example) &&
		slices.Equal(protocolsOf(a), protocolsOf(b)) && bytes.Equal(a.Constraints, b.Constraints)
}

// pointer returns the JSON pointer to a section, in the registration as
// GET /ad/r/{rid} shows it.
func (s *section) pointer() string {
	i, j := strconv.Itoa(s.i), strconv.Itoa(s.j)
	switch s.source {
	case ofName:
		return "/name"
	case ofDescription:
		return "/description"
	case ofTag:
		return "/tags/" + i
	case ofCapabilityName:
		return "/capabilities/" + i + "/name"
	case ofCapabilityTag:
		return "/capabilities/" + i + "/tags/" + j
	case ofCapabilityDescription:
		return "/capabilities/" + i + "/description"
	}
	return "/examples/" + i + "/text"
}

// appendSections appends the texts of a registration, as many as are read of it.
func appendSections(ss []section, p *directory.Projection) []section {
	ss = append(ss, section{field: fieldName, text: p.Name, source: ofName},
		section{field: fieldDescription, text: p.Description, source: ofDescription})
	from := len(ss)
	label := func(text string, at source, i, j int) {
		if text == "" || len(ss)-from >= maxLabels {
			return
		}
		for k := range ss[from:] {
			if ss[from+k].text == text {
				return
			}
		}
		ss = append(ss, section{field: fieldLabels, text: text, source: at, i: i, j: j, derived: at != ofTag, tag: at != ofCapabilityName})
	}
	for i, t := range p.Tags {
		label(t, ofTag, i, 0)
	}
	for i := range p.Capabilities {
		c := &p.Capabilities[i]
		label(c.Name, ofCapabilityName, i, 0)
		for j, t := range c.Tags {
			label(t, ofCapabilityTag, i, j)
		}
	}
	for i := range p.Capabilities[:min(len(p.Capabilities), maxSkills)] {
		if d := p.Capabilities[i].Description; d != "" {
			ss = append(ss, section{field: fieldExamples, text: d, source: ofCapabilityDescription, i: i, derived: true})
		}
	}
	for i := range p.Examples[:min(len(p.Examples), maxExamples)] {
		written := p.Examples[i].Text
		text := leaves(written)
		ss = append(ss, section{field: fieldExamples, text: text, source: ofExample, i: i, inner: text != written})
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

// A reading is what the analyser found in one registration.
type reading struct {
	bag
	lengths
	codes [fieldCount]lengthCode // of lengths
	flags Flags
	gates gates
}

// read counts the words of a registration, and looks for what is written for
// rankers and not for readers.
func (r *reading) read(a *analyser, p *directory.Projection) {
	r.clear()
	g := &r.gates
	*g = gates{examples: g.examples[:0], heard: g.heard[:0]}
	r.lengths = lengths{}
	a.sections = appendSections(a.sections[:0], p)
	for i := range a.sections {
		s := &a.sections[i]
		before := a.dropped
		tokens := a.reread(s.text)
		g.see(s, tokens, a.dropped-before)
		for j := range tokens {
			f := fieldOf(s, j)
			if r.lengths[f] >= maxWords {
				break
			}
			c := r.add(tokens[j].hash)
			if c[f] == 0 {
				g.distinct[f]++
			}
			c[f] = min(c[f]+1, maxCount)
			r.lengths[f]++
		}
	}
	r.flags = g.judge(r)
	for f, n := range r.lengths {
		r.codes[f] = codeOf(n)
		r.lengths[f] = r.codes[f].words()
	}
}

// fieldOf returns the field that the word number i of a section counts in.
func fieldOf(s *section, i int) int {
	if s.field == fieldName && i >= maxNameWords {
		return fieldDescription
	}
	return s.field
}

// A lengthCode is the length of a field in one byte: exact up to 127 words, then
// to within two in a hundred.
type lengthCode uint8

func codeOf(words float64) lengthCode {
	if words < 128 {
		return lengthCode(words)
	}
	return lengthCode(min(255, 128+math.Round(16*math.Log2(words/128))))
}

func (c lengthCode) words() float64 { return codeWords[c] }

var codeWords = func() (ws [256]float64) {
	for i := range ws {
		ws[i] = float64(i)
		if i >= 128 {
			ws[i] = 128 * math.Exp2(float64(i-128)/16)
		}
	}
	return ws
}()

// labelsOf returns what filters find a registration by: its
// normalised tags, its protocols, regions, origin and status.
func labelsOf(a *analyser, e *directory.Entry, p *directory.Projection) []string {
	ls := []string{markOrigin + e.Origin.Name()}
	if p.Status != statusActive && p.Status != "" {
		ls = append(ls, markInactive)
	}
	add := func(mark string, texts []string) {
		for _, t := range texts {
			if t != "" {
				ls = append(ls, mark+t)
			}
		}
	}
	for _, t := range a.tagsOf(p) {
		ls = append(ls, markTag+t)
	}
	add(markProtocol, protocolsOf(p))
	add(markRegion, regionsOf(p))
	return ls
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
