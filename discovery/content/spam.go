package content

import (
	"strings"

	"github.com/roster-mesh/roster/discovery/analysis"
)

// Flags are the defects of a registration's texts that show that they are written for rankers,
// not for readers (XU-030).
type Flags uint8

// The flags.
const (
	FlagRepetition Flags = 1 << iota // the same words over and over
	FlagDensity                      // lists of words where sentences belong, or tags that nothing else bears out
	FlagScatter                      // examples that nothing else bears out
	FlagDuplicate                    // stands for others of its owner that say nearly the same
)

// SpamFlags are the flags that lower the component policy.
const SpamFlags = FlagRepetition | FlagDensity | FlagScatter

var flagNames = []string{"repetition", "density", "scatter", "duplicate"}

// Names returns the flags as candidates show them, in a fixed order.
func (f Flags) Names() []string {
	var names []string
	for i, n := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, n)
		}
	}

	return names
}

func (f Flags) String() string { return strings.Join(f.Names(), ",") }

// Where the gates stand. No registration of the sets that scenarios/quality
// scores is caught, which a test there sees to.
const (
	// maxNameWords is how many words of a name count as such; the rest is
	// description. A name of denseName words is a list.
	maxNameWords = 12
	denseName    = 20

	// A field of repetitionWords words or more is repetitive if the share of distinct words is
	// below repetitionShare.
	repetitionWords = 60
	repetitionShare = .2

	// A description of denseDescription words is a list if its share of function words is below
	// denseFunction and the separators between its words are the same to denseSame.
	denseDescription = 20
	denseFunction    = .12
	denseSame        = .85

	// So many different words in tags and names of capabilities must be borne out
	// by the name, the description and the examples to such a share.
	denseLabels = 16
	labelsShare = .1

	// So many examples must have something in common with the name, the description
	// and the tags to such a share.
	manyExamples  = 8
	exampleWords  = 6 // or more, on average
	examplesShare = .2

	// gated is how many times longer a field is taken to be that a gate has caught.
	gated = 4
)

// spamGates watch a registration being read.
type spamGates struct {
	distinct [FieldCount]float64
	list     bool // the description is a list
	name     int
	examples []int    // where the words of each example end
	heard    []uint64 // the words of examples, but those by which people ask
}

func (g *spamGates) see(section *Section, tokens []analysis.Token, dropped int) {
	switch section.Field {
	case FieldName:
		g.name = len(tokens)
	case FieldDescription:
		g.list = isList(section.Text, tokens, dropped)
	case FieldExamples:
		// The field has descriptions of capabilities as well, which are no examples.
		if section.Source != FromExample {
			return
		}

		for i := range tokens {
			if !tokens[i].Asks {
				g.heard = append(g.heard, tokens[i].Hash)
			}
		}

		g.examples = append(g.examples, len(g.heard))
	}
}

// judge returns the flags of a registration, and lengthens the fields that they concern.
func (g *spamGates) judge(r *Content) Flags {
	var flags Flags
	for i, n := range r.Lengths {
		if n >= repetitionWords && g.distinct[i] < n*repetitionShare {
			flags |= FlagRepetition
			r.Lengths[i] *= gated
		}
	}

	if g.list {
		flags |= FlagDensity
		r.Lengths[FieldDescription] *= gated
	}

	if g.name >= denseName {
		flags |= FlagDensity

		// The words beyond maxNameWords count as description.
		r.Lengths[FieldName] *= gated
		r.Lengths[FieldDescription] *= gated
	}

	if g.distinct[FieldLabels] >= denseLabels && r.borneOut() < labelsShare {
		flags |= FlagDensity
		r.Lengths[FieldLabels] *= gated
	}

	if n := len(g.examples); n >= manyExamples && len(g.heard) >= n*exampleWords && g.inCommon(r) < examplesShare {
		flags |= FlagScatter
		r.Lengths[FieldExamples] *= gated
	}

	return flags
}

// isList reports whether a text is a list of words.
func isList(text string, tokens []analysis.Token, dropped int) bool {
	// Sentences have function words, which the analyser has dropped.
	if n := float64(len(tokens) + dropped); n < denseDescription || float64(dropped) > denseFunction*n {
		return false
	}

	between := map[string]int{}
	gaps := 0

	most := 0
	for i := 1; i < len(tokens); i++ {
		if from, to := tokens[i-1].End, tokens[i].Start; from < to {
			gaps++
			gap := text[from:to]
			between[gap]++
			most = max(most, between[gap])
		}
	}

	return gaps >= denseDescription*3/4 && float64(most) >= denseSame*float64(gaps)
}

// borneOut returns which share of the words of tags and names of capabilities
// stand elsewhere too.
func (r *Content) borneOut() float64 {
	var labels, also float64
	for _, counts := range r.Counts {
		if counts[FieldLabels] == 0 {
			continue
		}

		if labels++; counts[FieldName]+counts[FieldDescription]+counts[FieldExamples] > 0 {
			also++
		}
	}

	return also / labels
}

// inCommon returns which share of the examples have a word that stands in the
// name, the description or a label.
func (g *spamGates) inCommon(r *Content) float64 {
	from, with := 0, 0.
	for _, to := range g.examples {
		for _, w := range g.heard[from:to] {
			if c := r.get(w); c[FieldName]+c[FieldDescription]+c[FieldLabels] > 0 {
				with++
				break
			}
		}

		from = to
	}

	return with / float64(len(g.examples))
}
