package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/audit"
)

// A bundle that the peer's endpoint does not have raises the alarm of an operator's command without a
// proof, after the nodes of the endpoint had time to agree. One that cannot be checked is counted and
// recorded as such.
//
// Requirement: SEC-012
func TestABundleThatItsEndpointLacksIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		answers            []error // of the endpoint, the last one from then on
		found, full        bool
		invalid, unchecked int
	}{
		"the endpoint's":        {answers: []error{nil}},
		"the endpoint's, later": {answers: []error{errors.New("no route"), trust.ErrBundleOther, nil}},
		"found here":            {answers: []error{trust.ErrBundleOther}, found: true},
		"another":               {answers: []error{trust.ErrBundleOther}, invalid: 1},
		"another, then away":    {answers: []error{trust.ErrBundleOther, errors.New("no route")}, invalid: 1},
		"no answer":             {answers: []error{errors.New("no route")}, unchecked: 1},
		"too many":              {full: true, unchecked: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")

			trail, err := audit.Open(path, audit.Options{Logger: slog.New(slog.DiscardHandler)})
			must(t, err)

			invalid, unchecked, confirmed, asked := 0, 0, 0, 0

			j := &bundleJudge{
				found: func(*directory.BundleChange) bool { return c.found },
				confirm: func(context.Context, *directory.BundleChange) error {
					asked++

					return c.answers[min(asked, len(c.answers))-1]
				},
				trail: trail, log: slog.New(slog.DiscardHandler), invalid: func() { invalid++ },
				holds:     func(*directory.BundleChange) bool { return false },
				confirmed: func(*directory.BundleChange) { confirmed++ },
				unchecked: func() { unchecked++ }, pause: time.Second, during: time.Minute,
			}
			if c.full {
				j.add(&directory.BundleChange{}) // the queue has no room
			} else {
				j.judge(t.Context(), bundleCheck{BundleChange: &directory.BundleChange{}})
			}

			must(t, trail.Close())

			tail, err := audit.ReadTail(path, time.Now())
			if err != nil || invalid != c.invalid || unchecked != c.unchecked ||
				confirmed+invalid+unchecked != 1 ||
				len(tail.Suspect) != c.invalid+c.unchecked {
				t.Errorf("%s: %d invalid, %d unchecked, %d suspect lines, %v", name, invalid, unchecked,
					len(tail.Suspect), err)
			}
		})
	}
}
