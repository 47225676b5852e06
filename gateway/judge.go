package gateway

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/schema"
	"github.com/roster-mesh/roster/limit"
)

// Bounds of the judgements of inputs and answers (SEC-005).
const (
	// lightBytes is the size of a judgement that needs no slot: value and schemas. It is
	// judged with a small budget first.
	lightBytes    = 16 << 10
	maxHeavy      = 4   // that go on at once; each takes at most 64 MiB and 250 ms
	heavyPlaces   = 128 // that go on or wait
	heavyPatience = 5 * time.Second
)

// judgements bounds the work of judging. Heavy judgements take a slot, and callers get
// slots in turn. They leave half of the processors to other requests.
type judgements struct {
	heavy *limit.Fair
}

func (j *judgements) init() {
	slots := min(max(runtime.GOMAXPROCS(0)/2, 1), maxHeavy)

	j.heavy = limit.NewFair(limit.FairConfig{
		Slots:    slots,
		PerParty: max(slots/2, 1),
		Places:   limit.Divide(heavyPlaces, nil),
		Patience: heavyPatience,
	})
}

// do judges for a caller. size is the bytes of values and schemas. judge is called twice
// if the budget of a light judgement is too small.
func (j *judgements) do(ctx context.Context, caller limit.Caller, size int,
	judge func(*schema.Budget) error) error {
	if size <= lightBytes {
		err := judge(schema.NewBudget(schema.LightSteps))
		if !errors.Is(err, schema.ErrBudget) {
			return err
		}
	}

	leave, err := j.heavy.Enter(ctx, caller)
	if err != nil {
		return refuseJudgement(err)
	}
	defer leave()

	return judge(schema.NewBudget(schema.MaxSteps))
}

// refuseJudgement explains why a judgement got no slot.
func refuseJudgement(err error) error {
	why := "the node judges as many large inputs and answers at once as it can"

	var share *limit.ShareError

	switch {
	case errors.As(err, &share) && share.OfCaller():
		refusal := directory.Refuse(directory.RateLimited,
			"as many of your large inputs and answers are judged at once as may be; wait for 1 s")
		refusal.RetryAfter = 1

		return refusal
	case errors.As(err, &share) || errors.Is(err, limit.ErrShed):
		refusal := directory.Refuse(directory.Unavailable, "%s; wait for 1 s, or ask another node", why)
		refusal.RetryAfter = 1

		return refusal
	}

	return err
}
