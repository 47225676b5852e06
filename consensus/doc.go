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
//
// # Files
//
//	store, read, linear                 what others call: writes, reads, linearizable reads
//	config, membership, loops, logger   what a member is made of, and its loops
//	forward, courier, line, switchboard a write on its way to the leader, and its answer
//	leader, dated, rules, quota, regrant what the leader decides before it proposes
//	versions*, features                 what members read, and what the domain writes
//	batch, command, made, quick         log entries: gathering, encoding, and what follows from them
//	fsm, apply*, renew, transfer        every member applies them
//	claims, spent, law, overlap         what else is state: keys used once, proofs, policy, rotated keys
//	registry, roll, former, places      how registrations, and what they are found by, lie in memory
//	ledger, streams, domain             the ledger, what each audience is told, epochs
//	sweep, jump, presence, contacts, succession
//	                                    deadlines, clocks, who was heard when, who leads next
//	join, operate, members, servers, tend, aside
//	                                    who is a member, and what members ask each other
//	transport, wire, conns, pipeline, tell
//	                                    the wire between members, and Raft on it
//	slow, trail, growth                 how the disk keeps up, whose room is consensus/disk
//	snapshot*, backup, restore          the state in files
package consensus
