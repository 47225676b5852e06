package index

import "hash/maphash"

// marks are a summary of the texts that an entry is found by: one bit for each, the
// same one for several at times. An entry that lacks a bit of what a query asks for
// isn't among its answers, which is known without a look at the entry itself.
type marks uint64

var marksSeed = maphash.MakeSeed()

// markOf is the bit of one text, in NFC.
func markOf(field int, text string) marks {
	return 1 << ((maphash.String(marksSeed, text) + uint64(field)*0x9e3779b97f4a7c15) >> 58)
}

// marksOf sums up what an entry is found by.
func marksOf(terms []term) (all marks) {
	for _, t := range terms {
		all |= markOf(t.field, t.text)
	}
	return all
}

// marksOf sums up what q asks for by whole texts.
func (q *Query) marksOf() (all marks) {
	for _, r := range q.extents() {
		if !r.prefix {
			all |= markOf(r.field, r.text)
		}
	}
	return all
}

// has reports whether all bits of what is asked for are there.
func (m marks) has(asked marks) bool { return m&asked == asked }
