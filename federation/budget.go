package federation

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/federation/replica"
)

// A fetchBudget is the time in which a node is asked for page after page. An origin's own has
// no end. Of others it ends relayTime after its beginning: whoever answers slowly keeps
// nobody from an origin that is there again, or from the next one who has it. What it
// brings puts that off, at relayRate and never further than relayTime, unless the
// origin was heard meanwhile: a first sync takes minutes, and each change of who is
// asked costs what was on its way. What came before the end is still taken.
type fetchBudget struct {
	asking  context.Context // ends with the fetchBudget
	stop    context.CancelCauseFunc
	origin  *replica.Origin // nil for a fetchBudget without an end
	timer   *time.Timer
	began   time.Time
	ends    time.Time
	brought int // digests
}

// unlimited returns the fetchBudget of a node of the origin.
func unlimited(ctx context.Context) *fetchBudget { return &fetchBudget{asking: ctx} }

// newFetchBudget returns that of another node, which its caller ends.
func newFetchBudget(ctx context.Context, o *replica.Origin) *fetchBudget {
	budget := &fetchBudget{origin: o, began: time.Now()}
	budget.asking, budget.stop = context.WithCancelCause(ctx)
	budget.ends = budget.began.Add(relayTime)
	budget.timer = time.AfterFunc(relayTime, func() { budget.stop(errBudgetSpent) })

	return budget
}

func (s *fetchBudget) end() {
	s.timer.Stop()
	s.stop(nil)
}

// over reports whether it was its time that ended it.
func (s *fetchBudget) over() bool { return errors.Is(context.Cause(s.asking), errBudgetSpent) }

// bring notes what was applied.
func (s *fetchBudget) bring(digests int) {
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

var errBudgetSpent = errors.New("the fetch budget of this node is spent")

const relayTime = 30 * time.Second

// What a node that isn't the origin's has of time to bring what the origin announced,
// and the pace of digests at which it keeps its place.
const relayRate = 500 // a second
