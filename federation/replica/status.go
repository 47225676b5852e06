package replica

import (
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// NoteUnsupported notes a verified message that this node can't read, which is a sign
// of life, and reports whether it is the first of its kind.
func (o *Origin) NoteUnsupported(err *signed.UnsupportedError) (first bool) {
	o.Mu.Lock()
	defer o.Mu.Unlock()

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
	lastErr     string
	unsupported string // why a later release is needed

	convicted, unlisted   bool
	headIs, pageIs, heard time.Time
}

// publish replaces the summary by the present one. The caller holds Mu, or nothing runs yet.
func (o *Origin) publish() {
	o.summary.Store(&summary{
		lastErr:     o.LastErr,
		unsupported: o.unread.why(),
		convicted:   o.Convicted,
		unlisted:    o.Unlisted,
		headIs:      o.HeadIs,
		pageIs:      o.pageIs,
		heard:       o.heard,
	})
}

// Status returns the state of the peering as this node observes it. No peer is called active
// if none of its nodes answers, or if its head is older than MaxHeadAge (federation.md,
// "Peering").
func (o *Origin) Status() PeerStatus {
	seen := o.summary.Load()
	held := o.Streams.summary.Load()
	peering := o.Peering.Load()
	limit := o.Streams.Quotas.Quota()
	now, clock := time.Now(), o.Streams.Shown.Index.Clock.Now()

	status := held.status
	status.Position, _ = o.Streams.Position()
	status.RecordsLimit = limit.Records
	status.BytesLimit = limit.Bytes
	status.Unopened = held.waits.ByFormat()
	status.LastHeard = seen.heard
	status.LastError = seen.lastErr
	status.NotExported = seen.unlisted
	status.Unsupported = seen.unsupported
	status.State = string(peering.State)
	status.LastPage = seen.pageIs

	if !seen.headIs.IsZero() {
		status.HeadAge = max(0, clock.Sub(seen.headIs))
	}

	if !seen.pageIs.IsZero() {
		status.PageAge = max(0, clock.Sub(seen.pageIs))
	}

	if status.LagRevisions > 0 {
		status.LagSeconds = now.Sub(held.level).Seconds()
	}

	last, silentSince, asked := o.Answers.Last()
	silent := asked && now.Sub(silentSince) > o.Cfg.SilentAfter()
	status.Asked = asked
	status.LastAnswer = last
	status.Up = !last.IsZero() && !silent
	status.Theirs, status.Refusal = o.Theirs.Last()
	status.Stated = o.Contacts.Stated()

	switch {
	case peering.State == "":
		status.State = "unknown" // on disk, and without a peering
	case peering.State != directory.PeeringActive:
	case seen.convicted:
		status.State = string(directory.PeeringFrozen)
	case silent && status.Refusal != StateCertificate:
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
	case seen.headIs.IsZero() || status.HeadAge > MaxHeadAge:
		status.State = "failing"
	case status.LagRevisions > 0 || status.Pending > 0:
		status.State = "behind"
	}

	return status
}
