package replica

import (
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// AcceptHead stores a newer head. It ignores and counts an older one, because a node may
// lag. While the disk is stalled, a head of a known epoch is kept in memory only, so that
// this node can report its own lag.
func (o *Origin) AcceptHead(head *signed.Head, text string) error {
	if err := o.change.Lock(o.Store); err != nil {
		o.knowHead(head, text)
		return err
	}

	defer o.change.Unlock()

	if o.HasEnded() {
		return ErrPeeringEnd
	}

	if o.hasNewer(head) {
		o.Counted(protocol.CodeOld)
		return nil
	}

	// An older head is no sign of life, because anyone may replay it.
	o.hear()

	// The epoch begins before knowHead, which ignores heads of unknown epochs. SaveOrigin comes after it,
	// because saved includes the head.
	if err := o.beginEpoch(head); err != nil {
		return err
	}

	o.knowHead(head, text)

	if err := o.Store.SaveOrigin(o.Domain, o.saved()); err != nil {
		return err
	}

	// The stream may already be at the tip, if the origin announces nothing.
	if st := o.Mesh.Newest(); st.Id.Epoch == head.Epoch && st.State.Watermark >= head.Tip &&
		head.At >= st.RepullSince {
		if err := o.atTip(st); err != nil {
			return err
		}
	}

	o.Moved()

	return nil
}

// hasNewer reports whether the stored head is at least as new as head, or a stream is of a newer epoch: while the
// streams are pulled again, there is no head.
func (o *Origin) hasNewer(head *signed.Head) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.head != nil && !newerHead(head, o.head) || head.Epoch < o.Mesh.Newest().Id.Epoch
}

func newerHead(head, last *signed.Head) bool {
	switch {
	case head.Epoch != last.Epoch:
		return head.Epoch > last.Epoch
	case head.At != last.At:
		return head.At > last.At
	}

	return head.IssuedAt > last.IssuedAt
}

// beginEpoch begins the streams of a head's epoch, if the epoch is new. The caller holds
// change.
func (o *Origin) beginEpoch(head *signed.Head) error {
	if o.Private.Cur != nil { // a new epoch applies to all streams
		if _, err := o.streamOf(&o.Private, head.Epoch); err != nil {
			return err
		}
	}

	_, err := o.streamOf(&o.Mesh, head.Epoch)

	return err
}

// knowHead keeps a newer head in memory, if its epoch has begun here.
func (o *Origin) knowHead(head *signed.Head, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.head != nil && !newerHead(head, o.head) {
		return
	}

	st := o.Mesh.existing(head.Epoch)
	if o.ended || st == nil {
		return
	}

	// Revisions of two epochs can't be compared.
	if o.head != nil && head.Epoch > o.head.Epoch {
		o.Mesh.tip = 0
	}

	o.reached.Store(nil)
	o.Mesh.tip = max(o.Mesh.tip, head.Tip)

	if st.State.Watermark >= head.Tip {
		o.Mesh.level = time.Now()
	}

	o.head = head
	o.kept.Head = text
	o.headIs = time.Unix(head.IssuedAt, 0)
	o.heard = time.Now()
	o.lastErr = ""
	o.unread.head = nil
}

// forgetHead drops the newest head, and the issue of the newest page, from memory.
func (o *Origin) forgetHead() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.reached.Store(nil)
	o.head = nil
	o.kept.Head = ""
	o.pageIs = time.Time{}
}

// loadHead takes a head that was verified before it was written.
func (o *Origin) loadHead(text string) {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return
	}

	if head, err := o.Cfg.Dialect.ParseHead(parts.Payload); err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()

		o.head = head
		o.kept.Head = text
		o.headIs = time.Unix(head.IssuedAt, 0)
		o.Mesh.tip = head.Tip
	}
}

// loadPage takes the issue of the newest page on disk. Nothing runs yet.
func (o *Origin) loadPage() error {
	for _, feed := range o.Feeds() {
		if feed.Cur == nil {
			continue
		}

		err := o.Store.Read(feed.Cur.Id, func(t *store.Tx) error {
			stored, _, err := t.PageOf(feed.Cur.State.Watermark)
			if err != nil || stored == nil {
				return err
			}

			parts, err := protocol.SplitJWS(stored.JWS)
			if err != nil {
				return err
			}

			// The issue of a page in a later format can't be read, and stays unknown.
			if page, err := o.Cfg.Dialect.ParsePage(parts.Payload); err == nil {
				o.pageIs = later(o.pageIs, time.Unix(page.IssuedAt, 0))
			}

			return nil
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// obey drops the mesh stream of an origin if the origin's key document doesn't list this
// domain (MESH-025). The origin's clock, its key document and its private stream stay. The
// caller holds change.
func (o *Origin) obey() error {
	doc, _, ok := o.Cfg.Keys.Keys(o.Domain)

	// mu is released before the disk is used; change keeps the streams in place.
	o.mu.Lock()
	o.unlisted = ok && !slices.Contains(doc.Mesh, o.Cfg.Domain)
	o.mu.Unlock()

	if !o.unlisted || o.Mesh.Cur == nil && o.Mesh.next == nil {
		return nil
	}

	o.forgetHead() // on disk first, because a start without the streams finds nothing to obey

	if err := o.Store.SaveOrigin(o.Domain, o.saved()); err != nil {
		return err
	}

	if err := o.Store.DropStreams(o.Domain, directory.Mesh); err != nil {
		return err
	}

	o.replace(&o.Mesh, nil)

	o.Cfg.Logger.Warn("an origin no longer exports to this domain; its records were removed", "origin", o.Domain.Name())
	o.Moved()
	o.Hide(&o.Mesh, func(*directory.Entry) bool { return true })

	return nil
}
