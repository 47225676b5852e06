package audit

import (
	"context"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of refusals in the log. Within a window each caller has refusalLines lines and
// then a count, and all callers have refusalTotal lines. Callers beyond refusalCallers
// share one count. An identity of another domain counts as that domain.
const (
	maxRefusals    = 1024 // queued
	window         = time.Minute
	refusalLines   = 10
	refusalTotal   = 600
	refusalCallers = 1000
)

// Refused queues a refusal. It never blocks.
func (a *Log) Refused(e directory.AuditEvent) {
	select {
	case a.refusals <- e:
	default:
		a.dropped.Add(1)
	}
}

// Run writes queued refusals and counts of refreshes, and removes expired files, until ctx
// ends. It then writes the refusals that are still queued.
func (a *Log) Run(ctx context.Context) {
	ticker := time.NewTicker(window)
	defer ticker.Stop()
	aging := time.NewTicker(expireEvery)
	defer aging.Stop()
	a.expire()

	r := refusals{}
	for {
		select {
		case e := <-a.refusals:
			a.refused(e, &r)
		case <-ticker.C:
			a.tally(&r)
			a.tallyRefreshes()
		case <-aging.C:
			a.expire()
		case <-ctx.Done():
			for len(a.refusals) > 0 {
				a.refused(<-a.refusals, &r)
			}

			a.tally(&r)
			a.tallyRefreshes()

			return
		}
	}
}

// A caller is one that bounds hold for: an identity of the own domain or of an OAuth
// issuer, or all of another domain.
type caller struct {
	identity directory.Identity // zero for another domain, and for all anonymous callers
	domain   string             // of another domain
}

func (a *Log) callerOf(id directory.Identity) caller {
	scheme, rest, _ := strings.Cut(id.String(), "://")

	// Another domain can make any number of identities, so all of them count as one caller.
	if scheme != "spiffe" && scheme != "wimse" || id.MemberOf(a.o.Domain) {
		return caller{identity: id}
	}

	domain, _, _ := strings.Cut(rest, "/")

	return caller{domain: domain}
}

// event is an event that stands for count of a caller's.
func (c caller) event(action string, count uint64) directory.AuditEvent {
	return directory.AuditEvent{Action: action, Actor: c.identity, Target: c.domain, Count: count}
}

// refusals are those of one window.
type refusals struct {
	callers map[caller]*refusalCount
	lines   int // of all callers
}

type refusalCount struct{ lines, others uint64 }

func (a *Log) refused(event directory.AuditEvent, r *refusals) {
	by := a.callerOf(event.Actor)

	count := r.callers[by]
	if count == nil {
		if len(r.callers) >= refusalCallers {
			a.dropped.Add(1)
			return
		}

		if r.callers == nil {
			r.callers = map[caller]*refusalCount{}
		}

		count = &refusalCount{}
		r.callers[by] = count
	}

	if count.lines >= refusalLines || r.lines >= refusalTotal {
		count.others++
		return
	}

	count.lines++
	r.lines++
	a.refusal(event)
}

// tally writes the counts of refusals without a line of their own, and resets them.
func (a *Log) tally(r *refusals) {
	for by, count := range r.callers {
		if count.others > 0 {
			a.refusal(by.event("more", count.others))
		}
	}

	*r = refusals{}

	if n := a.dropped.Swap(0); n > 0 {
		a.refusal(directory.AuditEvent{Action: "more of anybody", Count: n})
	}
}

func (a *Log) refusal(event directory.AuditEvent) {
	if err := a.write(&logLine{Time: time.Now().UTC(), Phase: phaseRefused, AuditEvent: event}); err != nil {
		a.o.Logger.Warn("a refusal is missing in the audit trail", "err", err)
	}
}
