package federation

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/federation/protocol"
)

// What a node that isn't the origin's has of time to bring what the origin announced,
// and the pace of digests at which it keeps its place.
const (
	relayTime = 30 * time.Second
	relayRate = 500 // a second
)

var errStint = errors.New("it was asked for long enough")

// A stint is the time in which a node is asked for page after page. An origin's own has
// no end. Of others it ends relayTime after its beginning: whoever answers slowly keeps
// nobody from an origin that is there again, or from the next one who has it. What it
// brings puts that off, at relayRate and never further than relayTime, unless the
// origin was heard meanwhile: a first sync takes minutes, and each change of who is
// asked costs what was on its way. What came before the end is still taken.
type stint struct {
	asking  context.Context // ends with the stint
	stop    context.CancelCauseFunc
	origin  *origin // nil for a stint without an end
	timer   *time.Timer
	began   time.Time
	ends    time.Time
	brought int // digests
}

// endless returns the stint of a node of the origin.
func endless(ctx context.Context) *stint { return &stint{asking: ctx} }

// beginStint returns that of another node, which its caller ends.
func (o *origin) beginStint(ctx context.Context) *stint {
	s := &stint{origin: o, began: time.Now()}
	s.asking, s.stop = context.WithCancelCause(ctx)
	s.ends = s.began.Add(relayTime)
	s.timer = time.AfterFunc(relayTime, func() { s.stop(errStint) })
	return s
}

func (s *stint) end() {
	s.timer.Stop()
	s.stop(nil)
}

// over reports whether it was its time that ended it.
func (s *stint) over() bool { return errors.Is(context.Cause(s.asking), errStint) }

// bring notes what was applied.
func (s *stint) bring(digests int) {
	if s.origin == nil {
		return
	}
	if s.brought += digests; s.origin.contacts.headSince(s.began) {
		return
	}
	s.ends = s.ends.Add(time.Duration(digests) * time.Second / relayRate)
	if most := time.Now().Add(relayTime); s.ends.After(most) {
		s.ends = most
	}
	s.timer.Reset(time.Until(s.ends))
}

// pullFromAnother pulls from a node that isn't the origin's. It reports whether that has
// more, and only its time has ended.
func (pl *puller) pullFromAnother(ctx context.Context, o *origin, f *feed, n protocol.Node) (more bool) {
	s := o.beginStint(ctx)
	defer s.end()
	err := error(nil)
	if f == &o.streams.pair.mesh {
		err = pl.receiver.askHead(s.asking, o, n)
	}
	if err == nil {
		err = pl.pullInTurn(ctx, o, f, n, s)
	}
	if err != nil {
		pl.cfg.Logger.Debug("can't pull all from another", "origin", o.domain.Name(), "audience", f.aud.String(), "node", n.Base, "digests", s.brought, "error", err)
	}
	return s.over() && s.brought > 0
}
