package consensus

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// A negotiator puts the newest versions and formats in force that all members and peers
// read, as the leader.
type negotiator struct {
	*member

	proposer *proposer
}

// negotiate puts, as the leader, the versions and formats in force that all members and
// peers read by now. It excludes changes of members meanwhile.
func (n *negotiator) negotiate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timing.Write)
	defer cancel()

	release, err := n.seats.hold(ctx)
	if err != nil {
		return
	}
	defer release()

	written := n.replica.Written()

	next, known := n.readByAll(n.seats.mayRise())
	if !known || next.Equal(written) {
		return
	}

	if _, err := n.proposer.propose(ctx, &state.Command{Feature: &next}); err != nil {
		n.log.Debug("cannot put other versions or formats in force yet", "err", err)
		return
	}

	// A rise is counted once it is in force. mayRise only looks whether one is left.
	if next.Raises(written) {
		n.seats.rises.Allow()
	}

	attrs := []any{"log", next.Log, "snapshot", next.Snapshot, "wire", next.Wire}
	for _, structure := range slices.Sorted(maps.Keys(next.Formats)) {
		attrs = append(attrs, string(structure)+"_format", next.Formats[structure])
	}

	n.log.Info("other versions or formats are in force", attrs...)
	n.proposeNext(ctx)
}

// proposeNext proposes the command that the next release's version of the log adds, if this
// build has one and the version is in force.
func (n *negotiator) proposeNext(ctx context.Context) {
	next := state.NextCommand()
	if next == nil || n.replica.Written().Log < state.NewestLogVersion {
		return
	}

	if _, err := n.proposer.propose(ctx, next); err != nil {
		n.log.Debug("cannot propose a command of the next log version", "err", err)
	}
}

// readByAll returns the highest versions and formats that all members and active peers
// read, with formats no higher than now unless they may rise; false if a member hasn't
// declared its versions.
func (n *negotiator) readByAll(mayRise bool) (next Numbers, known bool) {
	var (
		written Numbers
		reads   Versions
		peers   []spiffeid.TrustDomain
	)

	said := map[spiffeid.ID]bool{}

	n.replica.view(func(s *state.State) {
		written, reads, peers = s.Members().Written(), s.Members().ReadByAll(n.cfg.reads), s.Peerings().Active()

		for _, m := range s.Members().List() {
			said[m.ID] = true
		}
	})

	for _, m := range n.group.servers() {
		// A member is seated before it is declared, so nothing changes while one of them is unknown.
		if !said[m.ID] {
			return next, false
		}
	}

	formats, silent := n.readByPeers(reads.Formats, peers)

	// These versions never go back, because logs and snapshots have them. Formats go back for a peer that reads less.
	next = Numbers{
		Log:      max(reads.Log, written.Log),
		Snapshot: max(reads.Snapshot, written.Snapshot),
		Wire:     max(reads.Wire, written.Wire),
		Formats:  map[signed.Structure]uint{},
	}
	for _, structure := range signed.Structures() {
		next.Formats[structure] = formats.Highest(structure)
		if silent || !mayRise {
			next.Formats[structure] = highestUpTo(formats.Of(structure), written.Format(structure))
		}
	}

	return next.Normal(), true
}

// HeldBack returns the structures that the domain writes in a lower format than its
// members read, because that peer reads no higher one or isn't known to.
func (m *member) HeldBack(peer spiffeid.TrustDomain) (structures []signed.Structure) {
	var (
		own    signed.Formats
		active bool
	)

	m.replica.view(func(s *state.State) {
		own, active = s.Members().Readable(), s.Peerings().Get(peer).State == directory.PeeringActive
	})

	if !active {
		return nil
	}

	common, silent := m.readByPeers(own, []spiffeid.TrustDomain{peer})
	for _, structure := range signed.Structures() {
		if highest := own.Highest(structure); highest > 1 && (silent || common.Highest(structure) < highest) {
			structures = append(structures, structure)
		}
	}

	return structures
}

// readByPeers returns the formats that these peers read, too, and whether the formats of
// one of them are unknown: then no format may rise.
func (m *member) readByPeers(
	formats signed.Formats, peers []spiffeid.TrustDomain,
) (common signed.Formats, silent bool) {
	if m.cfg.FormatsOf == nil {
		return formats, false
	}

	now := m.cfg.Clock.Now()
	for _, peer := range peers {
		reads, until, known := m.cfg.FormatsOf(peer)

		switch {
		case !known:
			silent = true
		case now.Before(until.Add(keysForgotten)):
			formats = formats.Common(reads)
		}
	}

	return formats, silent
}

// keysForgotten is for how long after the end of its newest key document a peer's formats
// count.
const keysForgotten = 7 * 24 * time.Hour

// The seats are the right to change members or the versions in force, which one caller holds, and
// bound how often declarations of members and peers lead to proposals, in whatever term.
type seats struct {
	taken chan struct{}                 // holds one while they are held
	rises *rate.Limiter                 // of formats; of the leader's negotiation alone
	words map[spiffeid.ID]*rate.Limiter // of members; guarded by taken
}

func newSeats() seats {
	return seats{
		taken: make(chan struct{}, 1),
		rises: rate.NewLimiter(rate.Every(riseEvery), riseBurst),
		words: map[spiffeid.ID]*rate.Limiter{},
	}
}

// hold keeps members and the numbers in force as they are, until release.
func (s *seats) hold(ctx context.Context) (release func(), err error) {
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken }, nil
	case <-ctx.Done():
		return nil, tooBusy(ctx)
	}
}

// mayRise reports whether a format may rise now.
func (s *seats) mayRise() bool { return s.rises.Tokens() >= 1 }

// mayReplace reports whether a member's word of itself may take the place of its last.
// The caller holds the seats.
func (s *seats) mayReplace(id spiffeid.ID, members []server) bool {
	if s.words[id] == nil {
		maps.DeleteFunc(s.words, func(known spiffeid.ID, _ *rate.Limiter) bool {
			return !slices.ContainsFunc(members, func(m server) bool { return m.ID == known })
		})
		s.words[id] = rate.NewLimiter(rate.Every(wordEvery), wordBurst)
	}

	return s.words[id].Allow()
}

// highestUpTo returns the highest of formats, which ascend from 1, that is no higher
// than most.
func highestUpTo(formats []uint, most uint) uint {
	highest := uint(1)
	for _, format := range formats {
		if format <= most {
			highest = format
		}
	}

	return highest
}

// The pace of negotiation. A peer declares its formats, and a member the versions that it
// reads. Each change becomes a log entry, and a member's change also a key document. So formats
// rise seldom after a few rises, although they fall at once. A member that changes its
// declaration repeatedly waits.
const (
	riseEvery = 10 * time.Minute
	riseBurst = 8
	wordEvery = 10 * time.Second
	wordBurst = 8
)
