// Package disk is a Raft member's durable state: a write-ahead log with votes, and
// snapshots. It finds damage, keeps others out, and times writes.
//
// All of it is readable by its owner alone, because master salts are inside. An entry that
// cannot be written is latched: Raft would continue, and after a failed fsync only a new start
// can determine the contents of the disk. Each entry has a checksum of ours in Extensions,
// because the library checks its own for the newest entries alone. The owner file names the
// member whose state a directory has: with another member's votes, or without its own, a member
// could vote twice.
//
// A snapshot is due when 64 MB of log were applied since the last, or a quarter of that
// one's size if it is more. As much of the log stays behind a snapshot, for followers that
// are not far behind. So plan for three snapshots, half of one or 128 MB of log, and the
// log that is written meanwhile: 4 GB for 10^6 registrations of 1.4 KB.
//
// # Files
//
//	disk       opening, votes, snapshots
//	damage     damage, and whose the directory is
//	ahead      a leader's entries on their way to its disk
//	recent     the newest entries in memory
//	trail      how large the newest entries are
//	clock      how long appends take
package disk
