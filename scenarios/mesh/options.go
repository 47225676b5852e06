package mesh

import (
	"log/slog"
	"time"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/node/config"
)

// Options describe the mesh to start. The zero value is one domain of one node.
type Options struct {
	Domains, Nodes int    // of each domain
	Seed           uint64 // of the network's randomness
	Link           Link   // between different hosts
	NoGossip       bool   // changes cross by subscription and pull alone
	// SVIDs is how long those of nodes hold, which Renew renews; 0 is for longer than
	// any story.
	SVIDs time.Duration
	// RealTime is a mesh in no bubble, such as one that talks to real servers.
	RealTime bool
	// Endpoints has domains follow each other's bundles at their endpoints.
	Endpoints bool
	// Unhurried is for stories of long silence, in which traffic between a domain's
	// members would be nearly the whole cost. Members keep in touch less often and need
	// longer to notice a lost leader. Writes are announced as fast as ever.
	Unhurried bool
	// Silent is for stories of weeks in which domains are cut off. The nodes' own rounds
	// are slow while Drowse is on, and traffic between a domain's members always is.
	Silent bool
	// Log receives the nodes' logs from level debug on, each with its node, in place of
	// STORY_LOG; may be nil.
	Log slog.Handler
	// Configure changes the configuration of every node before it starts; may be nil.
	Configure func(*config.Config)
}

// svidTTL outlasts every story; most aren't about rotation.
const svidTTL = 365 * 24 * time.Hour

// unhurried is the timing of such stories.
var unhurried = consensus.Timing{
	Heartbeat: 10 * time.Second, Election: 10 * time.Second, Lease: 5 * time.Second, Commit: 250 * time.Millisecond,
	Presence: 20 * time.Second, Sweep: 5 * time.Second,
}

// silent is the timing of stories of weeks. A lost leader is noticed after a quarter of
// an hour; members learn of a commit after a minute or two, unless the leader waits for
// them.
var (
	silent = consensus.Timing{
		Heartbeat: 10 * time.Minute, Election: 10 * time.Minute, Lease: 5 * time.Minute, Commit: time.Minute,
		Presence: 30 * time.Minute, Sweep: time.Minute,
	}
	silentGossip = gossip.Timing{
		Probe: 5 * time.Minute, ProbeTimeout: 10 * time.Second, Gossip: time.Minute, PushPull: 15 * time.Minute,
	}
)

// timings returns those of the mesh's nodes.
func (o *Options) timings() (raft consensus.Timing, mesh gossip.Timing) {
	switch {
	case o.Silent:
		return silent, silentGossip
	case o.Unhurried:
		return unhurried, mesh
	}

	return raft, mesh
}

// patience is how long a domain without a leader may need for one.
func (o *Options) patience() time.Duration {
	switch {
	case o.Silent:
		return 6 * silent.Election
	case o.RealTime: // by the machine, which may have much else to do
		return 3 * time.Minute
	}

	return time.Minute
}
