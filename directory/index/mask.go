package index

import "hash/maphash"

// termMask are a summary of the texts that an entry is found by: one bit for each, the
// same one for several at times. An entry that lacks a bit of what a query asks for
// isn't among its answers, which is known without a look at the entry itself.
type termMask uint64

var maskSeed = maphash.MakeSeed()

// maskBit is the bit of one text, in NFC.
func maskBit(field int, text string) termMask {
	return 1 << ((maphash.String(maskSeed, text) + uint64(field)*0x9e3779b97f4a7c15) >> 58)
}

// mask sums up what an entry is found by.
func maskOf(terms []term) (all termMask) {
	for _, t := range terms {
		all |= maskBit(t.field, t.text)
	}

	return all
}

// maskOf sums up what q asks for by whole texts.
func (q *Query) mask() (all termMask) {
	for _, r := range q.textFilters() {
		if !r.prefix {
			all |= maskBit(r.field, r.text)
		}
	}

	return all
}

// has reports whether all bits of what is asked for are there.
func (m termMask) has(asked termMask) bool { return m&asked == asked }
