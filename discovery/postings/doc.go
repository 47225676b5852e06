// Package postings keeps, for each term, the registrations that have it and its weight
// in each ([Terms], [List]), and finds the registrations whose weights have the highest
// sums ([Gather]). Registrations are slot numbers, terms are hashes.
//
// # Files
//
//	terms, list, block, deadcount   postings, and their sweep
//	dense, bitset                   sets of slots
//	gather                          the best by their sums
package postings
