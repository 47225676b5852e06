// Package directory is the vocabulary of Roster: registrations and their ids, names and
// owners, documents and their projections, grants and redactions, changes and refusals.
// Every other package uses it; it imports strictjson alone of ours, and does no I/O.
//
// The way of one registration:
//
//	kind, err := directory.ParseKind(query.Get("kind"))     // ad, aidip, woa, …
//	name, err := directory.ParseName(query.Get("agent"))    // NFC, no *, not a rid
//	doc, err := directory.ParseDocument(kind, body)         // strict JSON, bytes kept
//	proj, err := kinds.Project(name, doc)                   // valid of its kind?
//
// A [Document] keeps the bytes that were written. A [Projection] is its common form, which
// every surface reads. A log or a store keeps the document, and kinds.Reproject makes the
// projection again. [Entry.Rest] compacts both in memory without a visible difference.
// Errors are [Error]: a [Problem] for machines, a sentence for people, and a JSON pointer.
//
// # Rooms
//
//	strictjson   JSON objects: parse, split, append
//	schema       JSON Schema
//	kinds        documents of each kind: validation and projection
//	invoke       operations, and their input and output
//	signed       statements, records, pages, heads, key documents
//	index        registrations in memory, lookups and watches
//	table        numbers in place of pointers, for millions of things
//	problem      refusals as RFC 9457 problems
//	contain      panics on bytes from outside
//
// # Files
//
//	registration, identity*, lifetime, hash, errors
//	                          ids, names, owners, lifetimes, hashes, refusals
//	document, projection      documents, and the form that every surface reads
//	rest, pack, unpack        documents and projections at rest
//	change, claim, probe, audit
//	                          requests and results that other packages exchange
//	grant, redaction, provenance, audience
//
// the members of a registration that a caller may see
//
//	peering, bundle           agreements with other domains
package directory
