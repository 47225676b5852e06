// Package consensus holds one domain's directory together: a Raft group of its nodes and
// their replicas of the domain's state.
//
//	store, err := consensus.Open(cfg)
//	out, err := store.Register(ctx, directory.RegisterRequest{…})       // on any member
//	digests, to, at := store.Digests(directory.Mesh, since, 1000)   // from this member's memory
//	err = store.Close()                                             // hands leadership over first
//
// The packages below it: state is the pure state machine, message the messages between
// members, transport the cluster's port, disk the log and snapshots, backup the format of
// backups, raftlog the Raft libraries' log lines.
//
// # The way of a write
//
// Store.Register and its siblings make a message.Request. The forwarder gives it to this member's
// Leader, if there is one, or sends it to the other member that leads, over a write stream. There
// the preparer makes a command of it: it merges a patch and validates the result, asks policy for
// grants, and draws rid and salt. The proposer gathers waiting commands into one log entry and
// stamps the time. Every member applies the entry (Replica), a large one in pieces between which it
// lets readers in. The leader's results go back the same way, and a follower answers once it has
// applied that position itself.
//
// A Leader is made when Raft elects this member and dropped when its term ends (terms). Changes that
// it has not given to Raft by then go to the next leader.
//
// A command is prepared from a state that may change before it is applied. It names the inputs
// of its preparation (a statement, an owner, the newest policy or peering, a format). Apply
// compares them and answers state.ErrMoved if they differ, and the leader prepares again, eight
// times at most. A request names the policy version that permitted it, too: a leader with
// another version refuses it (directory.Overtaken), and the caller's member asks policy again.
//
// Nothing proposed: the write is tried again until Timing.Write is over, then it is
// directory.Unavailable. Proposed without an answer: directory.OutcomeUnknown. A repeated
// registration is safe, since the same owner replaces.
//
// A follower learns of a commit with the next entry. If none follows, the leader
// sends the commit index by itself: at once if a linearizable read waits, else after 5 ms.
//
// # Clocks
//
// Followers tell the leader their time every two seconds. A leader stamps nothing until it
// knows a majority's clocks, and nothing while it is over 2 s off their median; it hands
// over (rule T2). A follower whose clock is over 4 s from its leader's is not ready. After
// a jump of the clock, a sweep that would end many registrations waits until a majority's
// clocks confirm it.
//
// # Files
//
//	store, config                      the interface
//	member, lifecycle                  what all parts are built on; start and stop
//	group, messenger, contacts, peers  the Raft group, messages to its members, their status
//	replica, reader                    this member's copy of the state; linearizable reads
//	batcher                            changes that share an exchange
//	forwarder                          writes on their way to the leader
//	leader                             the terms in which this member leads, and their duties
//	write_server, preparer, proposer   writes at the leader, and log entries
//	commits                            commit notices
//	follower                           a follower that catches up
//	operator, negotiator               members and leadership by command; versions and formats in force
//	orders                             who ordered a command, and the feed of applied orders
//	commands                           operators' commands, judged before they are acknowledged
//	sweeper, regranter                 deadlines and grants, by the leader
//	clocks                             whose clock is right
//	joiner, admitter                   becoming a member, from both ends
//	storage, disk_watch                snapshots that are due; slow disks
//	restorer                           backups and restores
//	errors                             errors that members give each other
package consensus
