package content

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/analysis"
)

// The fields of a registration that words are searched in.
const (
	FieldName        = iota
	FieldDescription // the agent's
	FieldLabels      // tags, and the names of capabilities
	FieldExamples    // examples, and the descriptions of capabilities
	FieldCount
)

// FieldNames are the fields as evidence names them.
var FieldNames = [FieldCount]string{"name", "description", "tags", "examples"}

// Bounds on the content that is read of one registration (XU-030).
const (
	maxLabels   = 256 // tags and names of capabilities
	maxExamples = 32  // examples …
	maxSkills   = 64  // … and descriptions of capabilities
	maxWords    = 1024
)

// A Section is one text of a registration.
type Section struct {
	Field    int
	Text     string
	Source   Source
	Index, j int  // numbers in source
	Derived  bool // projected: a capability's, not the agent's own tag or example (XU-057)
	Inner    bool // text is composed of parts of the registration's
	IsTag    bool // it is a tag, of the agent or of a capability
}

// A Source is where a section stands.
type Source uint8

const (
	FromName Source = iota
	FromDescription
	FromTag
	FromCapabilityName
	FromCapabilityTag
	FromCapabilityDescription
	FromExample
)

// A Reader reads registrations: it has an analyser, and room for one registration.
type Reader struct {
	*analysis.Analyser
	sections   []Section
	Projection directory.Projection
	tags       []string
}

// NewReader returns a reader with that analyser.
func NewReader(a *analysis.Analyser) *Reader { return &Reader{Analyser: a} }

// Sections returns the texts of a registration, within the bounds above. They are valid until
// the next call.
func (a *Reader) Sections(p *directory.Projection) []Section {
	a.sections = AppendSections(a.sections[:0], p)
	return a.sections
}

// SameTexts reports whether two projections have the same of all that is indexed:
// in their sections and their labels.
func SameTexts(projection, b *directory.Projection) bool {
	capability := func(a, b directory.Capability) bool {
		return a.Name == b.Name && a.Description == b.Description && slices.Equal(a.Tags, b.Tags)
	}
	example := func(a, b directory.Example) bool { return a.Text == b.Text }

	return projection.Name == b.Name && projection.Description == b.Description && projection.Status == b.Status &&
		slices.Equal(projection.Tags, b.Tags) && slices.EqualFunc(projection.Capabilities, b.Capabilities,
		capability) &&
		slices.EqualFunc(projection.Examples, b.Examples, example) &&
		slices.Equal(protocolsOf(projection), protocolsOf(b)) && bytes.Equal(projection.Constraints, b.Constraints)
}

// Pointer returns the JSON pointer to a section, in the registration as
// GET /ad/r/{rid} shows it.
func (s *Section) Pointer() string {
	i, j := strconv.Itoa(s.Index), strconv.Itoa(s.j)
	switch s.Source {
	case FromName:
		return "/name"
	case FromDescription:
		return "/description"
	case FromTag:
		return "/tags/" + i
	case FromCapabilityName:
		return "/capabilities/" + i + "/name"
	case FromCapabilityTag:
		return "/capabilities/" + i + "/tags/" + j
	case FromCapabilityDescription:
		return "/capabilities/" + i + "/description"
	}

	return "/examples/" + i + "/text"
}

// AppendSections appends the texts of a registration, within the bounds above.
func AppendSections(ss []Section, projection *directory.Projection) []Section {
	ss = append(ss, Section{Field: FieldName, Text: projection.Name, Source: FromName},
		Section{Field: FieldDescription, Text: projection.Description, Source: FromDescription})
	from := len(ss)

	label := func(text string, at Source, i, j int) {
		if text == "" || len(ss)-from >= maxLabels {
			return
		}

		// A tag that several capabilities have is one label.
		for k := range ss[from:] {
			if ss[from+k].Text == text {
				return
			}
		}

		ss = append(ss, Section{Field: FieldLabels, Text: text, Source: at, Index: i, j: j, Derived: at != FromTag,
			IsTag: at != FromCapabilityName})
	}
	for i, t := range projection.Tags {
		label(t, FromTag, i, 0)
	}

	for i := range projection.Capabilities {
		c := &projection.Capabilities[i]
		label(c.Name, FromCapabilityName, i, 0)

		for j, t := range c.Tags {
			label(t, FromCapabilityTag, i, j)
		}
	}

	for i := range projection.Capabilities[:min(len(projection.Capabilities), maxSkills)] {
		if d := projection.Capabilities[i].Description; d != "" {
			ss = append(ss, Section{Field: FieldExamples, Text: d, Source: FromCapabilityDescription, Index: i,
				Derived: true})
		}
	}

	for i := range projection.Examples[:min(len(projection.Examples), maxExamples)] {
		written := projection.Examples[i].Text
		text := leaves(written)
		ss = append(ss, Section{Field: FieldExamples, Text: text, Source: FromExample, Index: i,
			Inner: text != written})
	}

	return ss
}

// leaves returns the strings within a text that is a JSON object, as an
// operation's example input is (spec/views.md, 13); any other text as it is.
func leaves(text string) string {
	if !strings.HasPrefix(text, "{") {
		return text
	}

	var out strings.Builder

	d := jsontext.NewDecoder(strings.NewReader(text))
	for {
		t, err := d.ReadToken()
		if err != nil {
			break
		}

		// An odd number in an object is that of a name, which is no text.
		if in, n := d.StackIndex(d.StackDepth()); t.Kind() == '"' && (in != '{' || n%2 == 0) {
			out.WriteString(t.String())
			out.WriteByte('\n')
		}
	}

	if out.Len() == 0 {
		return text
	}

	return out.String()
}

// A Content is the result of analysing one registration.
type Content struct {
	termBag
	Lengths
	Codes [FieldCount]LengthCode // of lengths
	Flags Flags
	gates spamGates
}

// Read counts the words of a registration and detects texts that are written for rankers.
func (r *Content) Read(reader *Reader, projection *directory.Projection) {
	r.Reset()
	gates := &r.gates
	*gates = spamGates{examples: gates.examples[:0], heard: gates.heard[:0]}
	r.Lengths = Lengths{}

	sections := reader.Sections(projection)
	for i := range sections {
		section := &sections[i]

		// The reader counts over all texts, and the gates need the count of this one.
		before := reader.Dropped
		tokens := reader.ReadCached(section.Text)
		gates.see(section, tokens, reader.Dropped-before)

		for j := range tokens {
			f := FieldOf(section, j)
			if r.Lengths[f] >= maxWords {
				break
			}

			counts := r.Add(tokens[j].Hash)
			if counts[f] == 0 {
				gates.distinct[f]++
			}

			counts[f] = min(counts[f]+1, MaxCount)
			r.Lengths[f]++
		}
	}

	r.Flags = gates.judge(r)

	// Lengths are rounded as slots keep them, so that a candidate weighs the same when it is read again.
	for f, n := range r.Lengths {
		r.Codes[f] = codeOf(n)
		r.Lengths[f] = r.Codes[f].Words()
	}
}

// FieldOf returns the field that the word number i of a section counts in.
func FieldOf(section *Section, i int) int {
	if section.Field == FieldName && i >= maxNameWords {
		return FieldDescription
	}

	return section.Field
}

// A LengthCode is the length of a field in one byte: exact up to 127 words, then
// to within two in a hundred.
type LengthCode uint8

func codeOf(words float64) LengthCode {
	if words < 128 {
		return LengthCode(words)
	}

	return LengthCode(min(255, 128+math.Round(16*math.Log2(words/128))))
}

func (c LengthCode) Words() float64 { return codeWords[c] }

var codeWords = func() (ws [256]float64) {
	for i := range ws {
		ws[i] = float64(i)
		if i >= 128 {
			ws[i] = 128 * math.Exp2(float64(i-128)/16)
		}
	}

	return ws
}()

// Labels returns the labels by which filters find a registration: its normalised tags, its
// protocols, regions, origin and status.
func Labels(reader *Reader, e *directory.Entry, projection *directory.Projection) []string {
	ls := []string{MarkOrigin + e.Origin.Name()}
	if projection.Status != directory.StatusActive && projection.Status != "" {
		ls = append(ls, MarkInactive)
	}

	add := func(mark string, texts []string) {
		for _, t := range texts {
			if t != "" {
				ls = append(ls, mark+t)
			}
		}
	}

	for _, t := range reader.Tags(projection) {
		ls = append(ls, MarkTag+t)
	}

	add(MarkProtocol, protocolsOf(projection))
	add(MarkRegion, regionsOf(projection))

	return ls
}

// The first characters of terms that are no words.
const (
	MarkTag      = "#"
	MarkProtocol = "@"
	MarkRegion   = "^"
	MarkOrigin   = "~"
	MarkInactive = "!"
)

// protocolsOf returns the protocols that a registration is reached by.
func protocolsOf(projection *directory.Projection) []string {
	ps := slices.Clone(projection.Protocols)
	for i := range projection.Bindings {
		if !slices.Contains(ps, projection.Bindings[i].Protocol) {
			ps = append(ps, projection.Bindings[i].Protocol)
		}
	}

	return ps
}

// regionsOf returns the member region of a registration's constraints, a string
// or an array of strings (XU-051).
func regionsOf(projection *directory.Projection) []string {
	if projection.Constraints == nil {
		return nil
	}

	var rs []string

	d := jsontext.NewDecoder(strings.NewReader(string(projection.Constraints)))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return rs
		}

		if d.StackPointer() == "/region" && t.Kind() == '"' {
			// A name has the pointer of its value, and an odd number.
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
