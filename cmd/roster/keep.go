package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// How long a registrant waits between two attempts while the directory is away.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// leaveTimeout bounds the removal at the end.
const leaveTimeout = 2 * time.Second

// untilRefresh is how long to wait before a lifetime is renewed:
// not all agents that started together come back together (XU-048).
func untilRefresh(granted time.Duration) time.Duration {
	return time.Duration((0.4 + 0.2*rand.Float64()) * float64(granted))
}

// keep refreshes the registration until ctx ends.
func (r *registrant) keep(ctx context.Context) error {
	for {
		if !pause(ctx, untilRefresh(r.granted)) {
			return r.leave(ctx)
		}
		if err := r.renew(ctx); err != nil {
			return err
		}
	}
}

// renew refreshes the registration, or makes it again, as often as it takes. It
// fails where patience doesn't help.
func (r *registrant) renew(ctx context.Context) error {
	away := false
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := r.attempt(ctx)
		switch {
		case err == nil:
			if away {
				r.note("%s is refreshed again.", r.name)
			}
			return nil
		case ctx.Err() != nil:
			return nil // keep leaves
		case !passes(err):
			return suggest(err, exitConflict, r.command("get", r.name, "--provenance"))
		case !away:
			r.note("%s could not be refreshed: %s; trying on.", r.name, failureOf(err).what)
			away = true
		}
		r.close() // another connection may reach another node, with a newer certificate
		if !pauseAbout(ctx, wait) {
			return nil
		}
	}
}

// attempt refreshes once, and registers again what has expired. What is granted may come
// to less than before, where the credential ends sooner: the next one is asked for all of it
// again.
func (r *registrant) attempt(ctx context.Context) error {
	var ask time.Duration // keeps what was granted
	if r.lowered {
		ask = r.wish()
	}
	out, err := r.client.Refresh(ctx, resource(r.rid, ""), ask)
	switch {
	case err == nil && out.Granted != 0:
		r.granted, r.lowered = out.Granted, true
	case err == nil && r.lowered:
		r.granted, r.lowered = ask, false
	}
	if !errors.Is(err, apiclient.ErrNotFound) {
		return err
	}
	if _, err = r.register(ctx); err == nil {
		r.note("%s had expired and is registered again as %s.", r.name, r.rid)
	}
	return err
}

// passes reports whether an error may be over at the next attempt: the directory is
// away, or what stands before it answers in its place, or the certificate of the
// connection has expired and the next one has a newer.
func passes(err error) bool {
	var e *apiclient.Error
	if errors.As(err, &e) {
		return e.Code == "" || e.Status == http.StatusUnauthorized || e.Status == http.StatusTooManyRequests || e.Status >= 500
	}
	return true
}

// leave ends the registration where that was asked for.
func (r *registrant) leave(ctx context.Context) error {
	if !r.remove {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_, err := r.client.Deregister(ctx, resource(r.rid, ""))
	if err == nil || errors.Is(err, apiclient.ErrNotFound) {
		r.note("%s is removed.", r.name)
		return nil
	}
	return failureOf(err).because("%s stays registered until its lifetime ends.", r.name)
}

// pause waits and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// pauseAbout pauses for half of d to one and a half: not all who wait for the same
// directory come back together.
func pauseAbout(ctx context.Context, d time.Duration) bool {
	return pause(ctx, time.Duration((0.5+rand.Float64())*float64(d)))
}
