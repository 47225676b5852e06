package index

import "hash/maphash"

// A termMask summarises the terms of an entry: one bit for each, which terms may share. An
// entry that lacks a bit of a query's mask is no match, which is known without reading it.
type termMask uint64

var maskSeed = maphash.MakeSeed()

// maskBit returns the bit of one text, in NFC.
func maskBit(field int, text string) termMask {
	return 1 << ((maphash.String(maskSeed, text) + uint64(field)*0x9e3779b97f4a7c15) >> 58)
}

// maskOf returns the mask of an entry's terms.
func maskOf(terms []term) (all termMask) {
	for _, t := range terms {
		all |= maskBit(t.field, t.text)
	}

	return all
}

// mask returns the mask of the whole texts that q asks for.
func (q *Query) mask() (all termMask) {
	for _, r := range q.textFilters() {
		if !r.prefix {
			all |= maskBit(r.field, r.text)
		}
	}

	return all
}

// has reports whether m has all bits of another mask.
func (m termMask) has(asked termMask) bool { return m&asked == asked }
