package analysis

import "strings"

// functionWords are the English words that carry no information about a text's subject.
var functionWords = setOf(`
a about above after again against all also am an and any are aren as at be because
been before being below between both but by can cannot could couldn did didn do
does doesn doing don done down during each either else etc ever every few for from
further had hadn has hasn have haven having he her here hers herself him himself
his how however i if in into is isn it its itself just ll let me might more most
must my myself no nor not now of off on once one only or other others our ours
ourselves out over own per re s same shall she should shouldn so some such t than
that the their theirs them themselves then there these they this those though
through to too under until up upon us ve very via was wasn we were weren what when
where whether which while who whom whose why will with within without won would
wouldn you your yours yourself yourselves d m`)

// functionHeads are the hashes of how function words begin: most words are not among them.
var functionHeads = func() (h [headSize]bool) {
	for w := range functionWords {
		h[head(w, 3)] = true
	}

	return h
}()

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}

	return set
}
