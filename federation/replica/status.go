package replica

import (
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
)

// NoteUnsupported notes a verified message that this node can't read, which is a sign
// of life, and reports whether it is the first of its kind.
func (o *Origin) NoteUnsupported(err *signed.UnsupportedError) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.heard = time.Now()

	last := &o.unread.page
	if err.Structure == signed.StructureHead {
		last = &o.unread.head
	}

	first = *last == nil || **last != *err
	*last = err

	return first
}

// unsupported describes the newest page and head of an origin if this node can't read them.
// Each field is nil after a newer page or head was read.
type unsupported struct {
	page, head *signed.UnsupportedError
}

// why returns the reason why a later release is needed, or "".
func (u *unsupported) why() string {
	switch {
	case u.page != nil:
		return u.page.Error()
	case u.head != nil:
		return u.head.Error()
	}

	return ""
}

// A summary is the part of an origin that readers see. It is immutable: a change replaces it.
type summary struct {
	status    PeerStatus // the part of it that mu guards
	waits     store.Unopened
	level     time.Time
	kept      store.Origin
	headIs    time.Time
	ended     bool
	convicted bool
}

// publish replaces the summary by the present one. The caller holds mu, or nothing runs yet.
func (o *Origin) publish() {
	newest := o.Mesh.Newest()
	seen := &summary{
		level: o.Mesh.level, kept: o.kept, headIs: o.headIs, ended: o.ended, convicted: o.convicted,
	}

	if o.Mesh.Cur != nil {
		seen.kept.Epoch = o.Mesh.Cur.Id.Epoch
	}

	status := &seen.status
	status.Domain = o.Domain
	status.Watermark = newest.State.Watermark
	status.Tip = max(o.Mesh.tip, status.Watermark)
	status.LagRevisions = status.Tip - status.Watermark
	status.Entries = newest.State.Live
	status.Pending = newest.Missing.Len()
	status.Hidden = o.Shown.stale
	status.Shed = o.IsShed()
	status.LastHeard = o.heard
	status.LastError = o.lastErr
	status.NotExported = o.unlisted
	status.Unsupported = o.unread.why()
	status.LastPage = o.pageIs

	for _, feed := range o.Feeds() {
		if feed.Cur == nil {
			continue
		}

		status.Records += uint64(feed.Cur.Used.Records)
		status.Bytes += uint64(feed.Cur.Used.Bytes)

		status.OverQuota += uint64(feed.Cur.Used.OverQuota)
		for format, n := range feed.Cur.Used.Unopened {
			seen.waits[format] += n
		}
	}

	if private := o.Private.Cur; private != nil {
		status.Entries += private.State.Live
		status.Pending += private.Missing.Len()
	}

	o.summary.Store(seen)

	// Computed while mu is held anyway, so that readers of the position need no lock.
	if o.Mesh.Cur != nil && o.reached.Load() == nil {
		o.findPosition()
	}
}

// Status returns the state of the peering as this node observes it. No peer is called active
// if none of its nodes answers, or if its head is older than MaxHeadAge (federation.md,
// "Peering").
func (o *Origin) Status() PeerStatus {
	seen := o.summary.Load()
	peering := o.Peering.Load()
	limit := o.Quota()
	now, clock := time.Now(), o.Shown.Index.Clock.Now()

	status := seen.status
	status.Position, _ = o.Position()
	status.RecordsLimit = limit.Records
	status.BytesLimit = limit.Bytes
	status.Unopened = seen.waits.ByFormat()
	status.State = string(peering.State)

	if !seen.headIs.IsZero() {
		status.HeadAge = max(0, clock.Sub(seen.headIs))
	}

	if !status.LastPage.IsZero() {
		status.PageAge = max(0, clock.Sub(status.LastPage))
	}

	if status.LagRevisions > 0 {
		status.LagSeconds = now.Sub(seen.level).Seconds()
	}

	last, silentSince, asked := o.Answers.Last()
	silent := asked && now.Sub(silentSince) > o.Cfg.SilentAfter()
	status.Asked = asked
	status.LastAnswer = last
	status.Up = !last.IsZero() && !silent
	status.Theirs, status.Refusal = o.Theirs.Last()
	status.Stated = o.Contacts.Stated()
	status.Doubtful = o.doubtful(now)

	if open := o.open.Load(); open != nil {
		status.Unconfirmed = open.entries
	}

	// Causes come before their consequences: the head of a silent peer grows old too.
	switch {
	case peering.State == "":
		status.State = "unknown" // on disk, and without a peering
	case peering.State != directory.PeeringActive:
	case seen.convicted:
		status.State = string(directory.PeeringFrozen)
	case silent && status.Refusal != StateCertificate:
		// A peer that rejects this domain's certificate can't answer either, but it is refused.
		status.State = "unreachable"
		status.SilentSince = silentSince
	case status.Refusal != "":
		status.State = "refused"
	case last.IsZero():
		status.State = "connecting"
	case status.NotExported:
		status.State = "not_exported"
	case status.Unsupported != "":
		status.State = "unsupported" // a later release is needed to read it
	case seen.headIs.IsZero() && now.Sub(o.Answers.Began()) <= o.Cfg.SilentAfter():
		status.State = "connecting" // the first head has not come yet
	case seen.headIs.IsZero() || status.HeadAge > MaxHeadAge:
		status.State = "failing"
	case status.LagRevisions > 0 || status.Pending > 0:
		status.State = "behind"
	}

	return status
}
