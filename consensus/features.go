package consensus

import (
	"bufio"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// keysForgotten is how long after the end of its newest key document a peer's
// formats still count: an organisation that is away for a week holds nobody back.
const keysForgotten = 7 * 24 * time.Hour

// The pace of negotiation. What a peer says of its formats, and a member of what it
// reads, is theirs to change, and each change becomes a log entry, and of a member's
// a key document. So formats rise seldom once they have risen a few times: they fall at
// once, as often as they rose. A member that changes its word again and again waits.
const (
	riseEvery = 10 * time.Minute
	riseBurst = 8
	wordEvery = 10 * time.Second
	wordBurst = 8
)

// A negotiationPace bounds how often the leader proposes what others have it propose.
type negotiationPace struct {
	rises *rate.Limiter                 // of formats; of tendLoop alone
	words map[spiffeid.ID]*rate.Limiter // of members; guarded by seating
}

func newNegotiationPace() negotiationPace {
	return negotiationPace{
		rises: rate.NewLimiter(rate.Every(riseEvery), riseBurst),
		words: map[spiffeid.ID]*rate.Limiter{},
	}
}

// mayRise reports whether a format may rise now.
func (p *negotiationPace) mayRise() bool { return p.rises.Tokens() >= 1 }

// mayReplace reports whether a member's word of itself may take the place of its last.
// The caller holds the seats.
func (p *negotiationPace) mayReplace(id spiffeid.ID, members []server) bool {
	if p.words[id] == nil {
		maps.DeleteFunc(p.words, func(known spiffeid.ID, _ *rate.Limiter) bool {
			return !slices.ContainsFunc(members, func(m server) bool { return m.ID == known })
		})
		p.words[id] = rate.NewLimiter(rate.Every(wordEvery), wordBurst)
	}

	return p.words[id].Allow()
}

// negotiate puts, as the leader, those numbers in force that all members and peers
// read by now. It excludes seat, so that no member comes between what it looks at
// and what it proposes.
func (s *Store) negotiate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timing.Write)
	defer cancel()

	release, err := s.holdSeats(ctx)
	if err != nil {
		return
	}
	defer release()

	written := s.Written()
	next, known := s.readByAll(s.pace.mayRise())
	if !known || next.Equal(written) {
		return
	}

	if _, err := s.propose(ctx, &state.Command{Feature: &next}); err != nil {
		s.log.Debug("versions and formats stay as they are for now", "err", err)
		return
	}

	if next.Raises(written) {
		s.pace.rises.Allow()
	}

	s.log.Info("the domain writes other versions or formats",
		"log", next.Log, "snapshot", next.Snapshot, "wire", next.Wire, "formats", next.Formats)
	s.proposeNext(ctx)
}

// proposeNext proposes what the second version of the log adds, if this build has
// one and it is in force.
func (s *Store) proposeNext(ctx context.Context) {
	next := nextOfTerm()
	if next == nil || s.Written().Log == state.FirstVersion {
		return
	}

	if _, err := s.propose(ctx, next); err != nil {
		s.log.Debug("a command of the next version is not applied", "err", err)
	}
}

// holdSeats keeps members and the numbers in force as they are, until release.
func (s *Store) holdSeats(ctx context.Context) (release func(), err error) {
	select {
	case s.seating <- struct{}{}:
		return func() { <-s.seating }, nil
	case <-ctx.Done():
		return nil, tooBusy(ctx)
	}
}

// readByAll returns the highest numbers that all members and active peers read, of
// formats none higher than is written unless they may rise; false while a member hasn't
// said what it reads.
func (s *Store) readByAll(mayRise bool) (next Numbers, known bool) {
	s.mu.RLock()
	written := s.state.Members().Written()
	members := s.state.Members().List()
	reads := s.state.Members().ReadByAll(s.cfg.reads)
	peers := s.state.Peerings().Active()
	s.mu.RUnlock()

	said := map[spiffeid.ID]bool{}
	for _, m := range members {
		said[m.ID] = true
	}
	for _, m := range s.servers() {
		if !said[m.ID] {
			return next, false
		}
	}

	formats, silent := s.readByPeers(reads.Formats, peers)
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

// readByPeers returns what is left of formats if these peers are to read all of it,
// and whether it isn't known of one of them what it reads: such a peer lets nothing
// rise.
func (s *Store) readByPeers(
	formats signed.Formats, peers []spiffeid.TrustDomain,
) (common signed.Formats, silent bool) {
	if s.cfg.FormatsOf == nil {
		return formats, false
	}

	now := s.cfg.clock()
	for _, peer := range peers {
		reads, until, known := s.cfg.FormatsOf(peer)

		switch {
		case !known:
			silent = true
		case now.Before(until.Add(keysForgotten)):
			formats = formats.Common(reads)
		}
	}

	return formats, silent
}

// HeldBack returns the structures that the domain writes in a lower format than its
// members read, because that peer reads no higher one or isn't known to.
func (s *Store) HeldBack(peer spiffeid.TrustDomain) (structures []signed.Structure) {
	s.mu.RLock()
	own := s.state.Members().Readable()
	active := s.state.Peerings().Get(peer).State == directory.PeeringActive
	s.mu.RUnlock()

	if !active {
		return nil
	}

	common, silent := s.readByPeers(own, []spiffeid.TrustDomain{peer})
	for _, structure := range signed.Structures() {
		if highest := own.Highest(structure); highest > 1 && (silent || common.Highest(structure) < highest) {
			structures = append(structures, structure)
		}
	}

	return structures
}

// lookBack bounds how many log entries are read to find the newest with commands.
const lookBack = 1024

// readableBy refuses a disk on which a newer release has written, before Raft reads
// it: Raft would take an older snapshot in the place of one that cannot be read, and
// miss the log between them.
func readableBy(d *disk.Disk, reads Versions, dir string) error {
	snapshots, err := d.Snapshots.List() // the newest first
	if err != nil {
		return err
	}

	if len(snapshots) > 0 {
		path := filepath.Join(dir, "snapshots", snapshots[0].ID, "state.bin")
		if err := snapshotReadableBy(reads, path); err != nil {
			return err
		}
	}

	return logReadableBy(d, reads)
}

// snapshotReadableBy is readableBy of one snapshot's file. What is damaged passes:
// Raft says so.
func snapshotReadableBy(reads Versions, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()

	var header struct {
		Version uint    `cbor:"1,keyasint"`
		Written Numbers `cbor:"25,keyasint"`
	}
	if err := cbor.NewDecoder(bufio.NewReader(file)).Decode(&header); err != nil {
		return nil
	}
	if header.Version > reads.Snapshot {
		return state.NewerSnapshot(header.Version, reads.Snapshot)
	}

	return reads.Lacks(header.Written)
}

// logReadableBy is readableBy of the newest log entry with commands: versions never
// fall, so those before it are no newer.
func logReadableBy(d *disk.Disk, reads Versions) error {
	last, err := d.Logs.LastIndex()
	if err != nil {
		return err
	}
	first, err := d.Logs.FirstIndex()
	if err != nil {
		return err
	}

	for index := last; index >= max(first, 1) && index+lookBack > last; index-- {
		var entry raft.Log
		if err := d.Logs.GetLog(index, &entry); err != nil {
			return nil // Raft reads it again, and says what is wrong
		}
		if entry.Type != raft.LogCommand {
			continue
		}

		var batch struct {
			Version uint `cbor:"1,keyasint"`
		}
		if err := cbor.Unmarshal(entry.Data, &batch); err == nil && batch.Version > reads.Log {
			return state.NewerLog(batch.Version, reads.Log)
		}

		return nil
	}

	return nil
}
