package federation

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/federation/replica"
)

// A fetchBudget is the time for which pages are pulled from a node. For the origin's own nodes
// it is unlimited. For a relay it ends after relayTime, so that a slow relay does not delay a
// pull from the next one, or from the origin once it is reachable again. Each applied digest
// extends it at relayRate, to at most relayTime from now, because a first sync takes minutes
// and a change of the relay wastes the pages under way. There is no extension if the origin
// has sent a head since the budget began. Pages received before the end are still accepted.
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

// newFetchBudget returns the fetchBudget of a relay. Its caller must call end.
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

// over reports whether the budget ended because its time was spent.
func (s *fetchBudget) over() bool { return errors.Is(context.Cause(s.asking), errBudgetSpent) }

// bring counts applied digests and extends the budget.
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

// The time budget of a relay, and the rate of digests that extends it.
const relayRate = 500 // a second
