package limit

import (
	"context"
	"time"
)

// ownRate is the part of a DividedRate that one identity of the own domain may use.
const ownRate = 3. / 4

// maxRateParties bounds the callers that a DividedRate knows, which also bounds its memory: the one
// that was not used for longest counts as new.
const maxRateParties = 64

// A DividedRate is a rate that several callers use, so that neither one caller nor one domain uses it
// up. An identity of the own domain may use three quarters of it. All other domains together, and all
// strangers, may use their part of a pool, and one other domain half of that.
//
// It is safe for concurrent use.
type DividedRate struct {
	all   Rate
	rates *Rates[rateKey]
}

// A rateKey is a part of a DividedRate: of all, of a kind of callers, or of one party.
type rateKey struct {
	scope Scope
	party string
}

// NewDividedRate returns a rate of which nothing is used.
func NewDividedRate(all Rate) *DividedRate {
	return &DividedRate{all: all, rates: NewRates[rateKey](maxRateParties)}
}

// part is a part of a rate, with a burst of one at least.
func (r Rate) part(of float64) Rate {
	return Rate{PerSecond: r.PerSecond * of, Burst: max(1, int(float64(r.Burst)*of))}
}

// A rateUse is a part of a rate that a caller's event counts against.
type rateUse struct {
	key  rateKey
	rate Rate
}

// uses returns the parts that a caller's event counts against, the narrowest first.
func (d *DividedRate) uses(caller Caller) []rateUse {
	all := rateUse{rateKey{ScopeAll, ""}, d.all}

	switch caller.Kind {
	case Own:
		return []rateUse{{rateKey{ScopeCaller, caller.ID}, d.all.part(ownRate)}, all}
	case Foreign:
		return []rateUse{
			{rateKey{ScopeGroup, caller.Group}, d.all.part(foreignPart / 2)},
			{rateKey{ScopeForeign, ""}, d.all.part(foreignPart)},
			all,
		}
	}

	return []rateUse{{rateKey{ScopeStrangers, ""}, d.all.part(strangersPart)}, all}
}

// Allow counts an event of a caller, or returns the time until it is allowed.
func (d *DividedRate) Allow(caller Caller) (wait time.Duration, ok bool) {
	now := time.Now()

	// The narrowest part comes first, so that a caller beyond its part uses up no wider one.
	uses := d.uses(caller)
	for i, use := range uses {
		if _, wait, ok := d.rates.Take(use.key, use.rate, now, 1); !ok {
			d.giveBack(uses[:i])
			return wait, false
		}
	}

	return 0, true
}

// giveBack returns the tokens of an event that a wider part refused: other callers use that up.
func (d *DividedRate) giveBack(taken []rateUse) {
	for _, use := range taken {
		d.rates.GiveBack(use.key, use.rate, 1)
	}
}

// Wait counts an event of a caller once it is allowed. Its error is ctx's, or
// context.DeadlineExceeded if ctx would end before. Events of one party wait in their order.
func (d *DividedRate) Wait(ctx context.Context, caller Caller) error {
	uses := d.uses(caller)
	for i, use := range uses {
		if err := d.rates.wait(ctx, use.key, use.rate); err != nil {
			d.giveBack(uses[:i])
			return err
		}
	}

	return nil
}

// Idle reports whether nothing of the rate is used: a new one allows no more.
func (d *DividedRate) Idle() bool {
	left, _, _ := d.rates.Take(rateKey{ScopeAll, ""}, d.all, time.Now(), 0)

	return left >= float64(d.all.Burst)
}
