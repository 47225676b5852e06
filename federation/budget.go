package federation

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/federation/replica"
)

// A stint is the time in which a node is asked for page after page. An origin's own has
// no end. Of others it ends relayTime after its beginning: whoever answers slowly keeps
// nobody from an origin that is there again, or from the next one who has it. What it
// brings puts that off, at relayRate and never further than relayTime, unless the
// origin was heard meanwhile: a first sync takes minutes, and each change of who is
// asked costs what was on its way. What came before the end is still taken.
type stint struct {
	asking  context.Context // ends with the stint
	stop    context.CancelCauseFunc
	origin  *replica.Origin // nil for a stint without an end
	timer   *time.Timer
	began   time.Time
	ends    time.Time
	brought int // digests
}

// endless returns the stint of a node of the origin.
func endless(ctx context.Context) *stint { return &stint{asking: ctx} }

// beginStint returns that of another node, which its caller ends.
func beginStint(ctx context.Context, o *replica.Origin) *stint {
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
	if s.brought += digests; s.origin.Contacts.HeadSince(s.began) {
		return
	}
	s.ends = s.ends.Add(time.Duration(digests) * time.Second / relayRate)
	if most := time.Now().Add(relayTime); s.ends.After(most) {
		s.ends = most
	}
	s.timer.Reset(time.Until(s.ends))
}

var errStint = errors.New("it was asked for long enough")

const relayTime = 30 * time.Second

// What a node that isn't the origin's has of time to bring what the origin announced,
// and the pace of digests at which it keeps its place.
const relayRate = 500 // a second
