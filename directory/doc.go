// Package directory is the vocabulary of Roster: what a registration is, how it
// is written, named, projected, signed over and found. Everything else speaks
// it; it imports nothing of ours and does no I/O.
//
// The way of one registration through it:
//
//	kind, err := directory.ParseKind(query.Get("kind"))     // ad, aidip, woa, …
//	name, err := directory.ParseName(query.Get("agent"))    // NFC, no *, not a rid
//	doc, err := directory.ParseDocument(kind, body)         // strict JSON, bytes kept
//	proj, err := directory.Project(name, doc)               // valid of its kind?
//
// A [Document] keeps the bytes that were written. A [Projection] is what every
// surface needs to know of it, made anew by [Reproject] wherever a log or a store
// is read. [Entry.Rest] puts both into as little memory as they need, where they are
// held for long; nobody sees a difference. Errors are [Error]: a [Problem] for machines, a sentence for people,
// and a JSON pointer.
//
// A committed change of contents is a [Change]. [Statement] is its one encoding,
// which holds a salted hash of each member, so that one signature serves every
// audience: [Disclosed] picks the members that a [Grant] shows, and [OpenRecord]
// checks what came from elsewhere against the statement's bytes.
//
//	ds := change.Disclosures()
//	payload, err := directory.Statement(directory.StatementFormat, change, ds)
//	shown, m := directory.Disclosed(ds, grant)
//	contents, err := directory.OpenRecord(payload, shown)
//
// What domains tell each other is made of [Digest], [SignedPage], [Head] and
// [KeyDocument]: each has one encoding, and a reader that takes no other bytes.
//
// Package directory/index holds registrations in memory and answers lookups from them.
//
// # Files
//
//	registration, identity*, lifetime, uri, errors
//	                          ids, names, owners, lifetimes, refusals
//	document, json, split, object
//	                          documents, and strict JSON
//	project*                  what a document of each kind says
//	schema*, validate, simple JSON Schema
//	contract, foresee, invocation, claim
//	                          how an agent is invoked
//	rest, pack, unpack        documents and projections at rest
//	change, probe, policy, sight, audit
//	                          what the other packages tell each other
//	statement, record, grant  what is signed over of a registration, and who may see what of it
//	digest, page, keys, peer_rules, bundle
//	                          what domains tell each other
package directory
