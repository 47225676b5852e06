// Package signed has the structures that a domain signs and its peers verify
// (docs/spec/federation.md): statements and the records that disclose them, digests,
// pages, heads and key documents. Each has one encoding, and a reader that takes no other
// bytes. Signatures themselves are package trust's.
//
// A committed change of contents is a [Change]. Its [Statement] holds a salted hash of
// each member, so that one signature serves every audience: [Disclosed] picks the members
// that a grant shows, and [OpenRecord] checks a record from elsewhere against the
// statement's bytes.
//
//	disclosures := change.Disclosures()
//	payload, err := signed.Statement(signed.StatementFormat, change, disclosures)
//	shown, m := signed.Disclosed(disclosures, grant)
//	contents, err := signed.OpenRecord(payload, shown)
//
// # Files
//
// the signed contents of a registration
// the structures that domains exchange
//
//	formats, dialect, extension
//	                          which formats a reader understands, and members added later
package signed
