// Package state is the replicated state of a domain as a pure value: the same log makes
// the same state on every member. It reads no clock, no randomness and no network, and
// starts no goroutine, so a test, a fuzzer or a recovery tool can drive it alone:
//
//	s := state.New(domain, index.New())
//	batch, err := state.DecodeBatch(entry)           // a log entry
//	results, err := s.Apply(batch)                    // one result for each command
//	err = s.Snapshot().Write(file)                   // beside later changes
//	s, header, err := state.Read(file, domain, index.New(), state.Parallel{})
//
// A State has no lock. Its owner keeps readers and Apply apart; Apply lets it give way to
// readers between two changes of a large entry.
//
// # Parts
//
// Each part owns its fields. Commands of one part may change another, in one direction:
//
//	History        epoch, revision, committed time, ledger
//	Membership     members, admissions, versions and formats in force -> Keyring
//	Peerings       agreements with other domains                      -> Keyring, PolicyState
//	Keyring        signing keys and the key document
//	PolicyState    the policy, and how far grants are decided by it
//	Ownership      rules, quotas, held names, former owners
//	Streams        the digests announced to each audience
//	Witness        checkpoints of other logs that the domain cosigned, cosignatures of its own
//	Registrations  registrations and their changes                    -> the three above
//
// # Rules of apply
//
// Every change takes the next revision. One command may make several (an end and a put
// under one name, a sweep of a hundred), and a refusal makes none. Nothing replicated
// depends on a document's projection, because releases may differ in it.
//
// A statement is built when contents change, for its hash and its ledger leaf, and is not
// kept. Registration.Statement builds it again from the same members, with the same bytes.
// Registrations and stream entries are replaced and never modified, so that a snapshot or
// a reader may hold them without a lock.
//
// Results that follow from a command alone are in the command (Made): the digests of its
// disclosures, the disclosures that each audience gets, and the document's projection. The
// leader makes them once, instead of every member. Apply makes those that are absent, or that
// another release made in another way.
//
// An entry with a version, command or member that this release does not know stops the
// member (ErrNewer): to skip it would be to disagree with the others silently.
//
// # Streams
//
// Each audience has a stream (rules G2, G4, G5, X1 to X3): the latest digest of each rid,
// and an ascending list of revisions, in which later changes leave stale places. A page
// is a binary search and a walk. Endings are kept until the highest announced deadline
// and a minute have passed in committed time. Ledger leaf 2 pins the announcements of a
// command without a statement: deadlines, drops, and other disclosures.
//
// # Encodings
//
// The log and snapshots are deterministic CBOR with integer keys; numbers are never
// reused. testdata has every command and item in hex and in diagnostic notation. A new
// member of a command or item is a new version. The build tag compatnext plays the next
// release: versions_next.go has its additions, versions_newest.go has nothing.
package state
