// Package ledger keeps Merkle logs on disk (RFC 6962), as C2SP tlog-tiles serves them.
//
// A log has an entry for each change of which its domain must be held to its word: a type
// and the SHA-256 of a payload. Entries disclose nothing, so every caller may read them.
//
//	Frontier  the right edge of a tree, by which entries are appended and the root is made
//	Log       one log on disk: its entries and hashes, tiles and proofs
//	Epochs    the logs of a domain, one for each of its epochs
//
// Log.Append takes the entries that the owner of the tree has appended. If entries are
// missing before them, or entries on disk are damaged, Log.Fill gets them from elsewhere.
// Entries that lead to another root than the owner's are neither kept nor served.
package ledger
