package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/roster-mesh/roster/api/wire"
)

// The shortest and the longest pause between two attempts of a Keeper, or of a command that
// runs on, while the directory is unreachable.
const (
	FirstRetry = time.Second
	LastRetry  = 30 * time.Second
)

// The interval of looks at a registration between two refreshes is a sixtieth of its lifetime,
// within these bounds: 10^6 agents with lifetimes of a day look 3,300 times a second.
const (
	leastLook = time.Minute
	mostLook  = 5 * time.Minute
)

// mostUnseen is the number of looks in a row that may miss a registration that is there, because a
// node lags. After that policy hides it, and looks end until it is registered again.
const mostUnseen = 2

func lookInterval(lifetime time.Duration) time.Duration {
	return min(max(lifetime/60, leastLook), mostLook)
}

// shortestDelay is the shortest time between two refreshes, whatever lifetime was granted.
const shortestDelay = time.Second

// A Keeper keeps one agent registered. It refreshes the registration in time,
// waits for a directory that is away, and registers the agent again if the
// registration has ended meanwhile. It looks at the registration once in 1 to 5 minutes: if the
// domain was restored from a backup, peers don't have it until it is refreshed, which is done
// at once. Its methods are for one goroutine.
type Keeper struct {
	// Client speaks to the directory.
	Client *Client
	// Agent is the name, Document the document and Options the rest of the
	// registration.
	Agent    string
	Document []byte
	Options  RegisterOptions
	// Notify, if it is set, is called by Run with each change of the registration's
	// standing.
	Notify func(KeepEvent)

	rid     string
	granted time.Duration
	lowered bool // a refresh was granted less than the registration
	unseen  int  // looks in a row that missed a registration, although its refresh then succeeded
}

// A KeepEvent is a change of the standing of a kept registration.
type KeepEvent struct {
	Kind KeepKind
	// Registered is the answer of KeepRegistered.
	Registered *Registered
	// Err is why the registration could not be refreshed, of KeepFailing.
	Err error
}

// A KeepKind is a kind of KeepEvent.
type KeepKind string

// The kinds of events.
const (
	// KeepRegistered: the agent was registered, or registered again after the
	// registration had ended.
	KeepRegistered KeepKind = "registered"
	// KeepFailing: the registration could not be refreshed, for the first time or for another
	// cause than before; Run tries again.
	KeepFailing KeepKind = "failing"
	// KeepRecovered: it is refreshed again.
	KeepRecovered KeepKind = "recovered"
	// KeepRestored: the domain was restored from a backup with the registration, which has been
	// refreshed, so that peers have it again.
	KeepRestored KeepKind = "restored"
	// KeepRefreshed: it was refreshed in time.
	KeepRefreshed KeepKind = "refreshed"
)

// Register registers the agent. Run does it if it was not called.
func (k *Keeper) Register(ctx context.Context) (*Registered, error) {
	out, err := k.Client.Register(ctx, k.Agent, k.Document, k.Options)
	if err != nil {
		return nil, err
	}

	k.rid = out.RID

	// The answer names a lifetime only if less than the wanted one was granted.
	k.granted = k.wanted()
	k.unseen = 0

	k.lowered = false
	if out.Granted != 0 {
		k.granted = out.Granted
	}

	return out, nil
}

// Run keeps the agent registered until ctx ends, which is no error, or until the
// directory refuses it for good: ErrConflict if another identity has taken the
// name meanwhile, or ErrForbidden. If the first registration fails, Run returns its
// error at once. At the end of ctx the registration stays until its deadline; see
// Remove.
func (k *Keeper) Run(ctx context.Context) error {
	if k.rid == "" {
		out, err := k.Register(ctx)
		if err != nil {
			return err
		}

		k.notify(KeepEvent{Kind: KeepRegistered, Registered: out})
	}

	for {
		found := k.wait(ctx)
		if found == isCancelled {
			return nil
		}

		rid := k.rid
		if err := k.renew(ctx); err != nil {
			return err
		}

		switch {
		case ctx.Err() != nil || k.rid != rid:
		// A registration that was made anew has been notified by attempt.
		case found == isUnconfirmed:
			k.notify(KeepEvent{Kind: KeepRestored})
		case found == isAbsent:
			k.unseen++
		}
	}
}

// A keepFinding is the reason for the end of a wait between two refreshes.
type keepFinding int

const (
	isDue         keepFinding = iota // a part of the lifetime has passed
	isUnconfirmed                    // the registration was restored from a backup
	isAbsent                         // it can't be read: it has ended, or policy hides it
	isCancelled
)

// wait waits until the registration is due for its next refresh, or until a look at it shows that
// it needs one.
func (k *Keeper) wait(ctx context.Context) keepFinding {
	due := time.Now().Add(RefreshDelay(k.granted))
	interval := lookInterval(k.granted)

	for {
		left := time.Until(due)

		// A refresh that comes soon needs no look.
		if k.unseen >= mostUnseen || left <= 2*interval {
			if !Pause(ctx, left) {
				return isCancelled
			}

			return isDue
		}

		if !Pause(ctx, Jitter(interval)) {
			return isCancelled
		}

		if found := k.look(ctx); found != isDue {
			return found
		}
	}
}

// look reads the registration. A failed read shows nothing, and the refresh is made in time.
func (k *Keeper) look(ctx context.Context) keepFinding {
	found, err := k.Client.Get(ctx, resource(k.rid))

	switch {
	case ctx.Err() != nil:
		return isCancelled
	case errors.Is(err, ErrNotFound):
		return isAbsent
	case err == nil:
		k.unseen = 0

		if found.Provenance.Verification.Unconfirmed {
			return isUnconfirmed
		}
	}

	return isDue
}

// Remove removes the registration. That it has ended already is no error.
func (k *Keeper) Remove(ctx context.Context) error {
	_, err := k.Client.Deregister(ctx, resource(k.rid))
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	return err
}

// RID returns the id of the registration; empty before there is one.
func (k *Keeper) RID() string { return k.rid }

// Granted returns the lifetime that was granted last.
func (k *Keeper) Granted() time.Duration { return k.granted }

// wanted is the lifetime that is asked for.
func (k *Keeper) wanted() time.Duration {
	if k.Options.Lifetime != 0 {
		return k.Options.Lifetime
	}

	return wire.DefaultLifetime
}

// renew refreshes the registration, or makes it again, as often as it takes. It
// fails if repetition does not help.
func (k *Keeper) renew(ctx context.Context) error {
	var failing error // as it was notified last; nil before the first failure
	for wait := FirstRetry; ; wait = min(2*wait, LastRetry) {
		err := k.attempt(ctx)
		switch {
		case err == nil:
			kind := KeepRefreshed
			if failing != nil {
				kind = KeepRecovered
			}

			k.notify(KeepEvent{Kind: kind})

			return nil
		case ctx.Err() != nil:
			return nil // Run ends
		case !Temporary(err):
			return err
		case !SameCause(failing, err):
			failing = err
			k.notify(KeepEvent{Kind: KeepFailing, Err: err})
		}

		// Another connection may reach another node, with a newer certificate.
		k.Client.CloseIdleConnections()

		if !Pause(ctx, Jitter(wait)) {
			return nil
		}
	}
}

// attempt refreshes once, and registers again if the registration has ended. A refresh may be
// granted less than before, because the credential ends sooner; the next one asks
// for the whole lifetime again.
func (k *Keeper) attempt(ctx context.Context) error {
	var ask time.Duration // 0 keeps the granted lifetime
	if k.lowered {
		ask = k.wanted()
	}

	out, err := k.Client.Refresh(ctx, resource(k.rid), ask)
	if errors.Is(err, ErrNotFound) {
		registered, err := k.Register(ctx)
		if err == nil {
			k.notify(KeepEvent{Kind: KeepRegistered, Registered: registered})
		}

		return err
	}

	if err != nil {
		return err
	}

	switch {
	case out.Granted != 0:
		k.granted = out.Granted
		k.lowered = true
	case k.lowered:
		// The whole lifetime was granted again.
		k.granted = ask
		k.lowered = false
	}

	return nil
}

func (k *Keeper) notify(e KeepEvent) {
	if k.Notify != nil {
		k.Notify(e)
	}
}

// RefreshDelay returns when to refresh a registration with that lifetime: after
// 0.4 to 0.6 of it, by chance, so that agents which started together do not come
// back together, and a second or more.
func RefreshDelay(lifetime time.Duration) time.Duration {
	return max(time.Duration((0.4+0.2*rand.Float64())*float64(lifetime)), shortestDelay)
}

// Temporary reports whether a failure may be over at a later attempt: the directory
// is away, or something that stands before it answers in its place, or the
// connection's certificate has expired and the next one has a newer.
func Temporary(err error) bool {
	var refused *Error
	if !errors.As(err, &refused) {
		return true
	}

	return refused.Code == "" || refused.Status == http.StatusUnauthorized ||
		refused.Status == http.StatusTooManyRequests || refused.Status >= 500
}

// SameCause reports whether two failures of repeated attempts have one cause: their texts differ
// in numbers at most, such as ports and ages. No failure has the cause of nil.
func SameCause(before, now error) bool {
	return before != nil && now != nil && withoutDigits(before) == withoutDigits(now)
}

func withoutDigits(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}

		return r
	}, err.Error())
}

// Jitter returns half of d to one and a half times d, by chance, so that clients of one directory
// don't return at the same moment.
func Jitter(d time.Duration) time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(d))
}

// Pause waits for d. It reports false if ctx ended before that.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
