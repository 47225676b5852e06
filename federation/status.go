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
	status PeerStatus // but for what depends on the time, the peering and the position
	waits  store.Unopened

	ended, convicted     bool
	headIs, heard, level time.Time
}

// publish makes the summary of now. o.mu is held, or nothing runs yet.
func (o *origin) publish() {
	newest := o.newest()
	seen := &summary{ended: o.ended, convicted: o.convicted, headIs: o.headIs, heard: o.heard, level: o.level}

	s := &seen.status
	s.Domain = o.domain
	s.Watermark = newest.state.Watermark
	s.Tip = max(o.tip, s.Watermark)
	s.LagRevisions = s.Tip - s.Watermark
	s.LastHeard, s.LastError = o.heard, o.lastErr
	s.Entries, s.Pending = newest.state.Live, len(newest.wanted)
	s.Unlisted, s.Hidden = o.unlisted, o.stale
	s.Unsupported = o.unread.why()

	for _, f := range o.feeds() {
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

	if private := o.private.cur; private != nil {
		s.Entries += private.state.Live
		s.Pending += len(private.wanted)
	}

	o.summary.Store(seen)

	if o.cur != nil && len(o.cur.wanted) == 0 && o.reached.Load() == nil {
		o.findPosition()
	}
}

// status is honest: nothing is called active whose head is older than
// maxHeadAge (federation.md, "Peering").
func (o *origin) status() PeerStatus {
	seen, peering, limit := o.summary.Load(), o.peering.Load(), o.quota()
	now, clock := time.Now(), o.index.Clock.Now()

	s := seen.status
	s.Position, _ = o.position()
	s.RecordsLimit, s.BytesLimit = limit.records, limit.bytes
	s.Unopened = seen.waits.ByFormat()
	s.State = string(peering.State)

	if !seen.headIs.IsZero() {
		s.HeadAge = max(0, clock.Sub(seen.headIs))
	}
	if s.LagRevisions > 0 {
		s.LagSeconds = now.Sub(seen.level).Seconds()
	}

	answers := now.Sub(seen.heard) <= maxHeadAge

	switch {
	case peering.State == "":
		s.State = "unknown" // on disk, and no peering says anything of it
	case peering.State != directory.PeeringActive:
	case seen.convicted:
		s.State = string(directory.PeeringFrozen)
	case s.Unlisted && answers:
		s.State = "unlisted" // there is nothing to have
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
func (o *origin) position() (directory.Position, bool) {
	if reached := o.reached.Load(); reached != nil {
		return *reached, true
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if o.cur == nil {
		return directory.Position{}, false
	}

	return o.findPosition(), true
}

// findPosition finds the position of a stream that is shown. o.mu is held.
func (o *origin) findPosition() directory.Position {
	if o.unshown || o.swapping {
		return o.shownUpTo
	}

	p := directory.Position{Epoch: o.cur.id.Epoch, Revision: o.cur.state.Watermark}
	if h := o.head; h != nil && h.Epoch == p.Epoch && h.Tip <= p.Revision {
		p.Revision = max(p.Revision, h.At) // what lies between changed nothing here (rule G5)
	}
	p.Revision = min(p.Revision, o.cur.complete())

	o.reached.Store(&p)
	o.shownUpTo = p

	return p
}
