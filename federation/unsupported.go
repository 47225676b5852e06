package federation

import (
	"errors"
	"strconv"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A later release may sign what this one can't read (federation.md, "Formats over
// time"). Such a page or head can't be applied: its stream stays at its watermark.
// Such a record is kept under its name, counted, passed on and not shown. Neither
// is a fault of who sent it, and a release that reads it goes on from here.

// A format says in which format a record is that this node keeps without having
// opened it. 0 is of a record that it has opened.
type format uint8

// otherFormats stands for all formats from that one on: who signs the records chooses
// the number, and each is counted by itself.
const otherFormats format = 17

// formatOf returns the format of a record that can't be opened; 0 if err is
// something else.
func formatOf(err error) format {
	var unsupported *directory.UnsupportedError
	if !errors.As(err, &unsupported) {
		return 0
	}

	return format(min(unsupported.Format, uint(otherFormats)))
}

func (f format) String() string {
	if f == otherFormats {
		return "other"
	}

	return strconv.Itoa(int(f))
}

// unopened counts records by the format in which they wait to be opened.
type unopened [otherFormats + 1]int64

// byFormat returns the counts that aren't 0.
func (u *unopened) byFormat() map[string]uint64 {
	counts := map[string]uint64{}

	for f, n := range u {
		if n > 0 {
			counts[format(f).String()] += uint64(n)
		}
	}

	return counts
}

// unsupported is what an origin signed last that this node can't read. Each is nil
// once something newer was read.
type unsupported struct {
	page, head *directory.UnsupportedError
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
func (o *origin) noteUnsupported(err *directory.UnsupportedError) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.heard = time.Now()

	last := &o.unread.page
	if err.Structure == directory.StructureHead {
		last = &o.unread.head
	}

	first = *last == nil || **last != *err
	*last = err

	return first
}

// unsupported counts a message that this node can't read. It counts as no refusal of
// who brought it. The origin's own nodes tell by it what the origin announces now, and
// the first of each kind is written down. Others may repeat an old one for ever: what
// would date it can't be read.
func (m *Mesh) unsupported(from sender, r *protocol.Refusal) {
	m.counts.add(r.Origin, protocol.CodeUnsupported)

	if from.domain != r.Origin {
		return
	}

	var unsupported *directory.UnsupportedError
	o := m.origin(r.Origin)
	if o == nil || !errors.As(r.Err, &unsupported) {
		return
	}
	if first := o.noteUnsupported(unsupported); !first || !m.refusals.allow(protocol.CodeUnsupported, r.Origin) {
		return
	}

	m.cfg.Logger.Warn("a peer announces what this release can't read; upgrade this node",
		"origin", r.Origin.Name(), "structure", string(unsupported.Structure), "format", unsupported.Format,
		"err", unsupported)
}
