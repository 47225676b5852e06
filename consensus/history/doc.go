// Package history keeps the past statements of a domain's registrations on disk, beside its ledger.
//
// The newest statement of a registration is in the state. Once another one follows, or the registration ends,
// it is kept here for a while with its contents, and then as its hash and time. Snapshots don't have it, so
// a member that gets one copies the history from another member, and compares it with the ledger.
//
//	statements  rid, epoch, index -> record
//	names       name, rid -> epoch, index of its last record
//	due         time, rid, epoch, index -> nothing: the queue for pruning
//	meta        how far the history is complete
package history
