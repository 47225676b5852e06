// Package backup has the format of a backup of a domain, and the salvage of a stopped
// member's disk.
//
// A backup is a line that identifies the format, a header, the items of a snapshot, and the
// SHA-256 of all before it. It is marked, so that no member is started from it by mistake.
// Master salts are inside; private keys never are. Nothing of it is used before its sum is
// verified. Its hash is over registrations' contents alone, so it is the same before and after
// a restore.
//
// Salvage makes a backup of one stopped member's disk: the newest snapshot and the log behind
// it, also entries that were not committed. Of several members, take the one that Raft would
// elect, by its LogEnd. A new domain restores it, in a new epoch. The remaining members are not
// made into a smaller domain, because the old epoch would then continue with a history that
// contradicts the one that peers may have seen.
package backup
