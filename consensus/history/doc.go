// Package history keeps the statements of a domain's registrations on disk, beside its ledger.
//
// A statement that another one follows, and that of an end, is kept for a while with its
// contents, and then as its hash and time. Snapshots have none of it, so a member that gets
// one copies what it lacks from another member, and compares it with the ledger.
//
//	statements  rid, epoch, index -> record
//	names       name, epoch, index -> rid
//	ends        time, rid, epoch, index -> nothing: the queue for pruning
//	meta        how far the history is complete
package history
