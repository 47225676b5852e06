// Package store keeps other domains' pages and records in one bbolt file, federation.db.
//
// Values are deterministic CBOR arrays (entry.go has the types); hashes and key ids are raw
// bytes, times as their fields say. meta/version is 1, and another version is refused.
// Losing the file loses only time: a node pulls everything again.
//
//	meta       version; dialect, by which the records were opened
//	origins    DOMAIN → epoch that is shown, T4 floor, newest head, key document
//	past       DOMAIN → earlier key documents
//	streams    DOMAIN 0 AUDIENCE 0 EPOCH(8) →
//	             state             watermark, live entries, length and place of the chain
//	             anew              present while the stream is pulled again: pages made
//	                               before that revision are old
//	             entries           RID → revision, h, m, deadline, lifetime, key, …
//	             records           place(8) → h m record
//	             due               DEADLINE(8) RID → nothing; the order of expiry
//	             chain0 or chain1  TO(8) → from, weight, the page as received
//
// A record's place is the next number, so records are appended in order of arrival. With
// their hashes as keys, each record of a first sync would rewrite a page of the file: 10^5
// records wrote 1.75 GB that way and write 0.57 GB now. Memory maps names to places
// (places.go) and is filled from the entries at start.
//
// A record is deleted in the transaction that ends, drops or renames its entry. bbolt keeps
// deleted bytes in free pages, so a loop overwrites free pages (wipe.go), at most once a
// second after a deletion and once at start.
//
// Without the list of free pages a start reads the whole file to find them. Close writes it;
// other changes don't, because it grows with each deletion.
//
// All operations pass through Disk, which runs changes one at a time and notices when the
// disk stops responding; then operations are refused with ErrStalled instead of waiting.
package store
