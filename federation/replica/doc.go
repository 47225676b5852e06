// Package replica holds the state of other domains (each an Origin) on this node: streams
// on disk and in the index, head, key documents and observations. It sends no requests and
// starts no loops; package federation does.
//
// # Parts
//
//	Origin      the peering, the newest head, observations; accepts pages, heads and keys
//	streams     entries of the mesh stream and of the private one, on disk and in the index
//	  writer      transactions of pages and records
//	  quotas      bounds of records and bytes, of all owners and of each
//	  shownIndex  the index behind the import policy
//	  entryReader reads entries back to show them
//	contacts    which of the origin's nodes is asked next
//	keyHistory  the newest key document, and earlier ones whose keys may still convict
//
// # Locks
//
// Each origin's streams have two locks. Change orders changes on disk and then in memory; it
// is the only lock that is held over disk I/O, and waiting for it ends when the disk stalls
// (store.ErrStalled). mu guards memory and the index, and is held for moments. The order is
// Change, Origin.mu, streams.mu. Streams and their contents are replaced while Change and
// streams.mu are held, so the holder of either may read them.
//
// Readers take no lock that a writer holds over disk I/O: status, position and peering are
// behind atomic pointers, which are replaced whenever mu is unlocked.
package replica
