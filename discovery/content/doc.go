// Package content is a registration as ranking reads it: its texts in sections
// ([AppendSections]), the counts of their terms in each field and the lengths of the
// fields ([Content]), the labels that filters find it by ([Labels]), and flags for texts
// that are written for rankers ([Flags]).
//
// The weight of a term in a registration is BM25F with constant lengths
// ([Lengths.Weigh]): it is known when the registration is read, and other registrations
// do not change it.
package content
