// Package replica holds the state of other domains (each an Origin) on this node: streams
// on disk and in the index, head, key documents and observations. It sends no requests and
// starts no loops; package federation does.
//
// # An origin
//
// Origin owns all of it. Its methods stand by subject:
//
//	accept.go         the way of a page: admitted, compared with the disk, one transaction, then the index (rule G3),
//	                  and the quotas by which it is judged
//	gate.go           the one gate for the bytes of records
//	records.go        records that come later than their page, and entries that expire
//	backlog.go        missing records
//	readmit.go        requests for records that now fit the quotas
//	rejudge.go        a changed import policy, applied in steps
//	streamload.go     streams at a start, a new epoch, and a repeated pull
//	head.go           heads
//	adopt.go          key documents
//	repull.go         searches for revoked keys, and pulls that they require
//	contradiction.go  contradictions between pages (rule E1)
//	position.go       how far the streams are
//	status.go         the summary for readers
//
// It has parts with locks of their own: contacts (which of the origin's nodes is asked next),
// answers, standings and keyHistory.
//
// # Locks
//
// An origin has two locks. change orders changes on disk and then in memory; it is the only
// lock that is held over disk I/O, and waiting for it ends when the disk stalls
// (store.ErrStalled). mu guards memory and the index, and is held for moments. change is taken
// before mu. Streams and their contents are replaced while both are held, so the holder of
// either may read them.
//
// Readers take no lock that a writer holds over disk I/O: status, position and peering are
// behind atomic pointers, which are replaced whenever mu is unlocked.
package replica
