// Package consensus holds one domain's directory together: a Raft group of its
// nodes, the state machine that their log drives, and the streams that the
// domain tells others about.
//
//	store, err := consensus.Open(cfg)
//	out, err := store.Register(ctx, directory.Registering{…}) // on any member
//	ds, to, at := store.Digests(directory.Mesh, since, 1000)  // from this member's memory
//	err = store.Close()                                       // hands leadership over first
//
// A write that arrives at a follower goes to the leader over the cluster's
// mutual TLS with its verified caller. The leader stamps what may not differ
// between members (time, rid, salt, grants) into a command, several commands
// share a log entry, and every member applies the entry as a pure function of
// its state: no clock, no randomness, no I/O, no signature (apply.go). What a
// member hands out to be signed is therefore the same bytes on every member.
//
// DESIGN.md tells why it is as it is.
package consensus
