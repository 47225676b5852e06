// Package disk is a Raft member's durable state: a write-ahead log with votes, and
// snapshots. It finds damage, keeps others out, and times writes.
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
