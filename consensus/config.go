package consensus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
)

// A Subject is a registration for which policy decides grants.
type Subject struct {
	RID        directory.RID
	Agent      string
	Owner      directory.Identity
	Document   directory.Document
	Projection *directory.Projection
	Visibility directory.Visibility
}

// A Proposal is the contents of a registration about which policy is asked.
type Proposal struct {
	Caller directory.Identity
	// Owner is the caller, or on whose behalf it registers.
	Owner      directory.Identity
	Agent      string
	Projection *directory.Projection
	Visibility directory.Visibility
}

// Config says how one member takes part.
type Config struct {
	Domain spiffeid.TrustDomain
	Node   spiffeid.ID // this member
	Dir    string      // log, votes and snapshots; made with mode 0700
	// Members are the initial members of a domain, for a member without any state: one, three
	// or five, this one too, the same on each. Later the domain's own history lists the
	// members. With Join it is this node alone.
	Members []Member
	// Join are cluster addresses of the domain's nodes. A node without any state
	// asks there to be made a member; an operator must have admitted it.
	Join []string
	// Resolve returns the addresses of a host name in Join. A name with several stands for as
	// many nodes. nil resolves nothing: Dial gets the name.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// Expect is the number of nodes, found at Join, that begin a domain if no node of
	// them is in one: 1, 3 or 5, or 0 if this node waits for a domain.
	Expect int
	// BeginWithout are addresses in Members or Join at which no node has a history, by an operator's
	// word: those whose disks are lost. Nodes with empty disks begin a domain without asking there.
	BeginWithout []string
	// Reader makes a node that joins a member without a vote, for good.
	Reader bool
	// API is the base URL of this member's directory, which the other members receive.
	API string
	// Listeners are the addresses at which this member listens, as state.Member has them.
	Listeners []string
	// RemoveDead is after how long of silence a member is removed; 0 is never. A
	// member without which the others have no majority stays.
	RemoveDead time.Duration

	// Listener is the cluster's, without TLS; Close closes it. One port carries Raft and the
	// forwarding of writes, distinguished by ALPN. Its connections may have a method
	// HandshakeDone(*tls.ConnectionState), called after the handshake.
	Listener net.Listener
	// Dial connects to a member's Address, without TLS.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// ServerTLS and ClientTLS demand certificates, and let only nodes of the own
	// domain through. They are cloned and given the ALPN names. That the peer is
	// a member, and the one meant, is checked here.
	ServerTLS, ClientTLS *tls.Config

	// Clock is this machine's, by which leases run; nil checks time.Now.
	Clock *directory.CheckedClock
	// Index is the domain's own, and is kept up to date from now on.
	Index *index.Index
	// Grants returns the grants of a registration to other domains. The leader calls it; nil
	// grants nothing. It may read the store.
	Grants func(Subject) []directory.Grant
	// Commission reports whether an identity may change registrations that others own, and Permit
	// whether policy permits the contents of a registration. The leader asks both about changes that
	// other members bring, whose word counts for the caller's identity alone. Nil trusts their word.
	Commission func(caller directory.Identity) bool
	Permit     func(Proposal) error
	// Basis identifies the inputs of Grants besides the domain's policy and peerings: members
	// with the same Basis grant alike. A leader whose Basis differs from the last one decides
	// all grants again.
	Basis directory.Hash
	// CheckPolicy returns the defect of a policy's text, as a *directory.Error, before it is
	// proposed. Policy receives the domain's policy whenever another is in force, and the
	// revision at which that began, before anything is decided or shown after the change. It
	// must not call the store. Both may be nil.
	CheckPolicy func(text []byte) error
	Policy      func(text []byte, revision uint64)
	// CheckOperator refuses an operator's command whose request or proof does not hold, before it
	// is proposed. Nil accepts all.
	CheckOperator func(directory.OperatorCommand) error
	// Misconduct gets the misconduct of other members, because the key of one may be stolen. It
	// must not block. Nil drops it.
	Misconduct func(Misconduct)
	// CheckFarewell refuses a farewell of a peer that its operator has not proven, at a time. Nil accepts all.
	CheckFarewell func(change *directory.PeeringChange, at time.Time) error
	// CheckBundle refuses a peer's bundle that another member found, unless this node has found the
	// same one at the peer's bundle endpoint. It must not block. Nil accepts all.
	CheckBundle func(peer spiffeid.TrustDomain, bundle []byte) error
	// Bundles returns the directory.BundlesHash of the bundles that are in force on this node. It must not block.
	// Nil confirms none to other members.
	Bundles func() directory.Hash
	// CheckAttestation refuses a signing key whose attestations don't hold. It must not block. Nil
	// accepts all.
	CheckAttestation func(signed.SigningKey) error
	// CheckCheckpoint refuses a checkpoint that another member brings, unless its log has signed it and
	// it continues the last one. It must not block. Nil accepts all.
	CheckCheckpoint func(c Checkpoint, last CosignedLog, proof []directory.Hash) error
	// Authorities returns the authorities of the domain as a JWKS, which the leader puts into the ledger; nil
	// while it doesn't know them. It must not block. Nil puts none there.
	Authorities func() []byte
	// Aside answers AskLeader for other members, while this one leads: state that is not in the
	// log, but in memory alone. Nil answers nothing.
	Aside func(question []byte) []byte
	// FormatsOf returns the formats of signed structures that a peer reads and until when that
	// holds, by its newest key document; known is false without one. Nil means that no peer
	// declares formats.
	FormatsOf func(peer spiffeid.TrustDomain) (formats signed.Formats, until time.Time, known bool)
	// MaxLifetime is the longest lifetime that is granted, in seconds; 0 is
	// directory.MaxLifetime.
	MaxLifetime uint32
	// KeepHistory is how long the contents of a statement are kept once another one follows, or its
	// registration has ended; 0 is for ever.
	KeepHistory time.Duration
	// HistoryBytes bounds the history on disk: the oldest contents go first. 0 is no bound.
	HistoryBytes int64
	Rules        Rules        // the same for all members
	Timing       Timing       // zero members have DefaultTiming's values
	Logger       *slog.Logger // nil discards
	Tracer       *span.Tracer // nil records nothing

	reads  Versions                          // zero is this build's; a test may play an earlier release
	sent   func(message []byte) []byte       // nil; a test may change messages to members
	clock  func() time.Time                  // nil is the wall clock of Clock; a test may set it wrong
	faulty func(raft.LogStore) raft.LogStore // nil; a test may make writes fail
}

// Timing has intervals and timeouts. A member alone ignores the first three.
type Timing struct {
	Heartbeat time.Duration // silence of a leader after which a member stands for election
	Election  time.Duration // how long an election may take; at least Heartbeat
	Lease     time.Duration // how long a leader leads without a majority; at most Heartbeat
	Sweep     time.Duration // between rounds of the sweep
	Write     time.Duration // how long a write waits for a leader, and a follower for its own copy
	Presence  time.Duration // between a follower's words to the leader
	Commit    time.Duration // half the longest time between two messages to a follower while nothing is written

	// A leader hands over when each append to its log has taken longer than
	// SlowDisk for all of SlowDiskFor. A negative SlowDisk turns that off.
	SlowDisk, SlowDiskFor time.Duration

	SnapshotEvery uint64 // log entries between snapshots
	SnapshotBytes int64  // and bytes of log; where a quarter of the newest is more, so much
}

// DefaultTiming is fit for one data centre. A member notices that a leader is silent
// after one to three heartbeats, the first of two in 1.1 s, at p99 in 1.9 s.
var DefaultTiming = Timing{
	Heartbeat: 800 * time.Millisecond, Election: 800 * time.Millisecond, Lease: 500 * time.Millisecond,
	Sweep: 500 * time.Millisecond, Write: 5 * time.Second, Presence: 2 * time.Second, Commit: 50 * time.Millisecond,
	SlowDisk: 500 * time.Millisecond, SlowDiskFor: 5 * time.Second,
	SnapshotEvery: 8192, SnapshotBytes: 64 << 20,
}

// LocalTiming is fit for members that share a machine: quicker to find a leader.
var LocalTiming = Timing{
	Heartbeat: 400 * time.Millisecond, Election: 400 * time.Millisecond, Lease: 300 * time.Millisecond,
}

func (t Timing) withDefaults() Timing {
	d := DefaultTiming

	return Timing{
		Heartbeat:     cmp.Or(t.Heartbeat, d.Heartbeat),
		Election:      cmp.Or(t.Election, d.Election),
		Lease:         cmp.Or(t.Lease, d.Lease),
		Sweep:         cmp.Or(t.Sweep, d.Sweep),
		Write:         cmp.Or(t.Write, d.Write),
		Presence:      cmp.Or(t.Presence, d.Presence),
		Commit:        cmp.Or(t.Commit, d.Commit),
		SlowDisk:      cmp.Or(t.SlowDisk, d.SlowDisk),
		SlowDiskFor:   cmp.Or(t.SlowDiskFor, d.SlowDiskFor),
		SnapshotEvery: cmp.Or(t.SnapshotEvery, d.SnapshotEvery),
		SnapshotBytes: cmp.Or(t.SnapshotBytes, d.SnapshotBytes),
	}
}

func (t Timing) check() error {
	switch {
	case t.Lease > t.Heartbeat:
		return fmt.Errorf("consensus: Timing.Lease %s is longer than Heartbeat %s", t.Lease, t.Heartbeat)
	case t.SlowDiskFor < 0:
		return fmt.Errorf("consensus: Timing.SlowDiskFor %s is negative", t.SlowDiskFor)
	case t.Election < t.Heartbeat:
		return fmt.Errorf("consensus: Timing.Election %s is shorter than Heartbeat %s", t.Election, t.Heartbeat)
	case min(t.Heartbeat, t.Election, t.Lease, t.Sweep, t.Write, t.Presence, t.Commit) < 5*time.Millisecond:
		return errors.New("consensus: a member of Timing is under 5 ms")
	}

	return nil
}

// check returns the first invalid member of c, by its name.
func (c *Config) check() error {
	switch {
	case c.Domain.IsZero():
		return errors.New("consensus: Domain is missing")
	case c.Node.TrustDomain() != c.Domain:
		return fmt.Errorf("consensus: Node %s is not of the domain %s", c.Node, c.Domain)
	case c.Dir == "":
		return errors.New("consensus: Dir is missing")
	case c.Listener == nil || c.Dial == nil || c.ServerTLS == nil || c.ClientTLS == nil:
		return errors.New("consensus: Listener, Dial, ServerTLS and ClientTLS must all be set")
	case c.Index == nil:
		return errors.New("consensus: Index is missing")
	}

	// IDs and addresses share the map, because their types differ.
	seen := map[any]bool{}
	for _, member := range c.Members {
		if member.ID.TrustDomain() != c.Domain {
			return fmt.Errorf("consensus: Members: %s is not of the domain %s", member.ID, c.Domain)
		}

		if member.Address == "" || seen[member.ID] || seen[member.Address] {
			return fmt.Errorf("consensus: Members: %s has no address or one that occurs twice", member.ID)
		}

		seen[member.ID], seen[member.Address] = true, true
	}

	if !seen[c.Node] {
		return fmt.Errorf("consensus: Members: %s itself is not among them", c.Node)
	}

	switch n := len(c.Members); {
	case n%2 == 0 || n > maxVoters:
		return fmt.Errorf("consensus: Members: there are %d; one, three or five hold a domain", n)
	case len(c.Join) > 0 && n > 1:
		return errors.New("consensus: Members: with Join it is this node alone")
	case len(c.Join) == 0 && (c.Expect != 0 || c.Reader):
		return errors.New("consensus: Expect and Reader need Join")
	case c.Expect != 0 && (c.Reader || c.Expect%2 == 0 || c.Expect < 0 || c.Expect > maxVoters):
		return fmt.Errorf("consensus: Expect is %d; it is 0, 1, 3 or 5, and 0 for a Reader", c.Expect)
	case c.RemoveDead < 0:
		return fmt.Errorf("consensus: RemoveDead is %s", c.RemoveDead)
	}

	if err := c.checkBeginWithout(); err != nil {
		return err
	}

	return c.Timing.check()
}

// checkBeginWithout refuses addresses that are not listed, and so many that the other members are no
// majority.
func (c *Config) checkBeginWithout() error {
	for _, address := range c.BeginWithout {
		listed := slices.Contains(c.Join, address) || slices.ContainsFunc(c.Members, func(m Member) bool {
			return m.Address == address && m.ID != c.Node
		})
		if !listed {
			return fmt.Errorf("consensus: BeginWithout: %s is no listed address of another node", address)
		}
	}

	if n := len(c.Members); len(c.Join) == 0 && 2*len(c.BeginWithout) > n-1 {
		return fmt.Errorf("consensus: BeginWithout names %d of %d nodes; the others are no majority",
			len(c.BeginWithout), n)
	}

	return nil
}

// expected returns with how many nodes a domain is begun; 0 if this node waits for one.
func (c *Config) expected() int {
	if len(c.Join) > 0 {
		return c.Expect
	}

	return len(c.Members)
}

// Bounds of a domain: members that vote, all members, and by how many log entries a
// newcomer may be behind when it gets its vote.
const (
	maxVoters  = 5
	maxMembers = 32
	nearEnough = 100
)

// retryPause is how long a write waits before it looks for the leader again.
const retryPause = 20 * time.Millisecond

// enqueueTimeout bounds how long Raft may take to accept an entry or a change of members.
const enqueueTimeout = 2 * time.Second

// A Member is a node of the domain.
type Member = transport.Member

// The values of the replicated state that other packages use.
type (
	// Rules are the operator's rules about names and their owners.
	Rules = state.Rules
	// An OwnerRule is how much each of some identities may own.
	OwnerRule = state.OwnerRule
	// Quotas are how much of its quotas the domain uses.
	Quotas = state.Quotas
	// Versions are the versions and formats that a release reads.
	Versions = state.Versions
	// Numbers are the versions and formats that a domain writes.
	Numbers = state.Numbers
)

// MaxListeners bounds Config.Listeners, and maxListener one of them in bytes.
const (
	MaxListeners = 256
	maxListener  = 64
)
