package discovery

import (
	"slices"

	"github.com/roster-mesh/roster/discovery/content"
)

// displacingShare is the share of a candidate's score that one of another owner needs
// to stand before it, where the candidate's owner has its share of the answer
// (discovery.md 6).
const displacingShare = .5

// flaggedFloor is the share of the best candidate's score that a flagged one needs
// to be in an answer.
const flaggedFloor = .5

// Near duplicates share at least duplicateShare of their words and at least duplicateWords
// words.
const (
	duplicateShare = .9
	duplicateWords = 6
)

// ranking is the candidates of an answer, and the reasons why others are not in it.
type ranking struct {
	all    []*Candidate           // in the order of the answer
	by     map[owner][]*Candidate // the same, by owner
	beyond bool                   // one of all is beyond its owner's share
	turned map[*Candidate]string  // why a candidate is in no answer
	copies int                    // near duplicates among turned
}

// pick picks the best candidates, at most most, in the order of the answer. An owner has its
// share of them. Its candidates beyond that share follow those of others whose score is at
// least displacingShare of theirs. Near duplicates of one owner are left out.
func (s *selection) pick(most int) {
	s.picked = ranking{all: s.picked.all[:0], by: map[owner][]*Candidate{}, turned: map[*Candidate]string{}}
	p := &s.picked

	var within *Candidate // the best of those within their owners' shares

	var waiting []*Candidate // those before it that are beyond them, the best first

	at := 0
	for len(p.all) < most {
		for ; within == nil && at < len(s.rated); at++ {
			candidate := s.rated[at]
			switch {
			case s.isWeak(candidate):
			case s.share() > 0 && len(p.by[candidate.owner]) >= s.share():
				// It waits for a candidate of another owner that is good enough to stand before it.
				waiting = append(waiting, candidate)
			case !s.repeats(candidate):
				within = candidate
			}
		}

		switch {
		case len(waiting) > 0 && (within == nil || within.Score < displacingShare*waiting[0].Score):
			candidate := waiting[0]
			waiting = waiting[1:]

			// It was not compared before, and its owner's picks have grown since.
			if !s.repeats(candidate) {
				p.take(candidate)
				p.beyond = true
			}
		case within != nil:
			p.take(within)
			within = nil
		default:
			return
		}
	}
}

func (p *ranking) take(c *Candidate) {
	p.all = append(p.all, c)
	p.by[c.owner] = append(p.by[c.owner], c)
}

// isSingle reports whether the request is restricted to one origin or one owner.
func (s *selection) isSingle() bool {
	c := &s.query.Request.Constraints
	return len(c.Origins) == 1 || len(c.Owners) == 1
}

// share is how many candidates an owner has of an answer before those of others; 0 is
// any number.
func (s *selection) share() int {
	if s.isSingle() || s.query.Request.Plain {
		return 0
	}

	return s.finder.cfg.PerOwner
}

// isWeak notes a candidate that is in no answer since it doesn't match, or hardly so.
func (s *selection) isWeak(candidate *Candidate) bool {
	switch {
	case candidate.Score <= 0, candidate.rater.faint(candidate):
		s.picked.turned[candidate] = WhyNoMatch
	case candidate.Flags&content.SpamFlags != 0 && candidate.Score < flaggedFloor*s.rated[0].Score:
		s.picked.turned[candidate] = WhyFlagged // it matches a little of everything
	default:
		return false
	}

	return true
}

// repeats notes a near duplicate of a better candidate of the same owner, and flags the better
// one as representing several.
func (s *selection) repeats(candidate *Candidate) bool {
	others := s.picked.by[candidate.owner]
	if s.isSingle() || len(others) == 0 {
		return false
	}

	mine := s.wordsOf(candidate)
	for _, other := range others {
		if !areDuplicates(mine, s.wordsOf(other)) {
			continue
		}

		other.Flags |= content.FlagDuplicate
		s.picked.turned[candidate] = WhyDuplicate
		s.picked.copies++

		return true
	}

	return false
}

// areDuplicates reports whether two sets of words are nearly the same.
func areDuplicates(a, b []uint64) bool {
	if len(a) > len(b) {
		a, b = b, a
	}

	if float64(len(a)) < duplicateShare*float64(len(b)) {
		return false // any other overlap is too small
	}

	both := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			both++
			i++
			j++
		}
	}

	either := len(a) + len(b) - both

	return either >= duplicateWords && float64(both) >= duplicateShare*float64(either)
}

// wordsOf returns the different words of a candidate, sorted.
func (s *selection) wordsOf(candidate *Candidate) []uint64 {
	if words, ok := s.words[candidate]; ok {
		return words
	}

	reader := s.searches[0].rater.analyser // one for all candidates: it decides on the hashes

	// All words count here, and not only those of the question.
	reader.Restrict(nil)
	sections := reader.Sections(candidate.shown())

	words := []uint64{}
	for i := range sections {
		for _, t := range reader.Read(sections[i].Text) {
			words = append(words, t.Hash)
		}
	}

	slices.Sort(words)
	words = slices.Compact(words)
	s.words[candidate] = words

	return words
}

// crowds returns the owners, except those in without, that exceed their share of the answer or
// of the rated candidates, and so may hide others.
func (s *selection) crowds(without ownerSet) ownerSet {
	found := ownerSet{}
	if s.isSingle() {
		return found
	}

	// Many rated candidates of one owner fill the bound on candidates, even if none is picked.
	rated := map[owner]int{}
	for _, c := range s.rated {
		rated[c.owner]++
	}

	for o, n := range rated {
		beyond := s.share() > 0 && len(s.picked.by[o]) > s.share()
		if !without[o] && (beyond || n >= crowdLeast) {
			found[o] = true
		}
	}

	return found
}

// whyShort is the warning of an answer that isn't full while there are more matches
// than may be looked at.
func (s *selection) whyShort() string {
	if s.picked.copies > len(s.rated)/2 {
		return WarnRepeated
	}

	return WarnBounded
}
