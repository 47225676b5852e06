package federation

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A later release may sign what this one can't read (federation.md, "Formats over
// time"). Such a page or head can't be applied: its stream stays at its watermark.
// Such a record is kept under its name, counted, passed on and not shown. Neither
// is a fault of who sent it, and a release that reads it goes on from here.

// unsupported is what an origin signed last that this node can't read. Each is nil
// once something newer was read.
type unsupported struct {
	page, head *signed.UnsupportedError
}

// why returns what a newer release is needed for; "" if nothing is.
func (u *unsupported) why() string {
	switch {
	case u.page != nil:
		return u.page.Error()
	case u.head != nil:
		return u.head.Error()
	}

	return ""
}

// noteUnsupported notes a verified message that this node can't read, which is a sign
// of life, and reports whether it is the first of its kind.
func (o *origin) noteUnsupported(err *signed.UnsupportedError) (first bool) {
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

// refuse counts and logs a refusal.
func (rc *receiver) refuse(from sender, text string, err error) error {
	var r *protocol.Refusal
	if errors.As(err, &r) && r.Code == protocol.CodeUnsupported {
		rc.unsupported(from, r)
		return r
	}

	return rc.refusals.refused(from, text, err)
}

// unsupported counts a message that this node can't read. It counts as no refusal of
// who brought it. The origin's own nodes tell by it what the origin announces now, and
// the first of each kind is written down. Others may repeat an old one for ever: what
// would date it can't be read.
func (rc *receiver) unsupported(from sender, r *protocol.Refusal) {
	rc.refusals.byOrigin.add(r.Origin, protocol.CodeUnsupported)

	if from.domain != r.Origin {
		return
	}

	var unsupported *signed.UnsupportedError
	o := rc.origins.get(r.Origin)
	if o == nil || !errors.As(r.Err, &unsupported) {
		return
	}
	if first := o.noteUnsupported(unsupported); !first || !rc.refusals.lines.allow(protocol.CodeUnsupported, r.Origin) {
		return
	}

	rc.cfg.Logger.Warn("a peer announces what this release can't read; upgrade this node",
		"origin", r.Origin.Name(), "structure", string(unsupported.Structure), "format", unsupported.Format,
		"err", unsupported)
}
