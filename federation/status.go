package federation

import (
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// A guard is a mutex that publishes what it guards, for readers who take no lock, when
// it is unlocked.
type guard struct {
	sync.Mutex
	publish func() // is called while the mutex is held
}

// Unlock publishes and unlocks.
func (g *guard) Unlock() {
	g.publish()
	g.Mutex.Unlock()
}

// A summary is what readers see of an origin. It never changes: a later one takes its
// place.
type summary struct {
	lastErr     string
	unsupported string // what a later release is needed for

	convicted, unlisted bool
	headIs, heard       time.Time
}

// publish makes the summary of now. o.mu is held, or nothing runs yet.
func (o *origin) publish() {
	o.summary.Store(&summary{
		lastErr:     o.lastErr,
		unsupported: o.unread.why(),
		convicted:   o.convicted,
		unlisted:    o.unlisted,
		headIs:      o.headIs,
		heard:       o.heard,
	})
}

// A streamsSummary is what readers see of an origin's streams. It never changes either.
type streamsSummary struct {
	status PeerStatus // the part of it that the streams know
	waits  store.Unopened
	ended  bool
	level  time.Time
}

// publish makes the summary of now. ss.mu is held, or nothing runs yet.
func (ss *streams) publish() {
	newest := ss.pair.mesh.newest()
	seen := &streamsSummary{ended: ss.ended, level: ss.pair.mesh.level}

	s := &seen.status
	s.Domain = ss.domain
	s.Watermark = newest.state.Watermark
	s.Tip = max(ss.pair.mesh.tip, s.Watermark)
	s.LagRevisions = s.Tip - s.Watermark
	s.Entries = newest.state.Live
	s.Pending = len(newest.wanted)
	s.Hidden = ss.shown.stale

	for _, f := range ss.pair.feeds() {
		if f.cur == nil {
			continue
		}

		s.Records += uint64(f.cur.used.Records)
		s.Bytes += uint64(f.cur.used.Bytes)
		s.OverQuota += uint64(f.cur.used.OverQuota)
		for format, n := range f.cur.used.Unopened {
			seen.waits[format] += n
		}
	}

	if private := ss.pair.private.cur; private != nil {
		s.Entries += private.state.Live
		s.Pending += len(private.wanted)
	}

	ss.summary.Store(seen)

	if ss.pair.mesh.cur != nil && len(ss.pair.mesh.cur.wanted) == 0 && ss.reached.Load() == nil {
		ss.findPosition()
	}
}

// status is honest: no peer is called active if its head is older than maxHeadAge
// (federation.md, "Peering").
func (o *origin) status() PeerStatus {
	seen, held, peering := o.summary.Load(), o.streams.summary.Load(), o.peering.Load()
	limit := o.streams.quotas.quota()
	now, clock := time.Now(), o.streams.shown.index.Clock.Now()

	s := held.status
	s.Position, _ = o.streams.position()
	s.RecordsLimit = limit.records
	s.BytesLimit = limit.bytes
	s.Unopened = held.waits.ByFormat()
	s.LastHeard = seen.heard
	s.LastError = seen.lastErr
	s.Unlisted = seen.unlisted
	s.Unsupported = seen.unsupported
	s.State = string(peering.State)

	if !seen.headIs.IsZero() {
		s.HeadAge = max(0, clock.Sub(seen.headIs))
	}
	if s.LagRevisions > 0 {
		s.LagSeconds = now.Sub(held.level).Seconds()
	}

	answers := now.Sub(seen.heard) <= maxHeadAge

	switch {
	case peering.State == "":
		s.State = "unknown" // on disk, and without a peering
	case peering.State != directory.PeeringActive:
	case seen.convicted:
		s.State = string(directory.PeeringFrozen)
	case s.Unlisted && answers:
		s.State = "unlisted" // the origin exports nothing to this domain
	case s.Unsupported != "" && answers:
		s.State = "unsupported" // a later release is needed to read it
	case seen.headIs.IsZero() || s.HeadAge > maxHeadAge:
		s.State = "failing"
	case s.LagRevisions > 0 || s.Pending > 0:
		s.State = "behind"
	}

	return s
}

// position is how far readers may take this node to be: what was announced up to
// there is shown. Records that no holder would give hold it up no longer.
func (ss *streams) position() (directory.Position, bool) {
	if reached := ss.reached.Load(); reached != nil {
		return *reached, true
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	if ss.pair.mesh.cur == nil {
		return directory.Position{}, false
	}

	return ss.findPosition(), true
}

// findPosition finds the position of a stream that is shown. o.mu is held.
func (ss *streams) findPosition() directory.Position {
	if ss.rejudger.unshown || ss.swapping {
		return ss.shownUpTo
	}

	p := directory.Position{Epoch: ss.pair.mesh.cur.id.Epoch, Revision: ss.pair.mesh.cur.state.Watermark}
	if h := ss.head; h != nil && h.Epoch == p.Epoch && h.Tip <= p.Revision {
		p.Revision = max(p.Revision, h.At) // what lies between changed nothing here (rule G5)
	}
	p.Revision = min(p.Revision, ss.pair.mesh.cur.complete())

	ss.reached.Store(&p)
	ss.shownUpTo = p

	return p
}
