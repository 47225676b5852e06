package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
)

// keep refreshes, in lists, what an import registered, until ctx ends or nothing
// is left of it.
func (im *importing) keep(ctx context.Context, client *apiclient.Client, items []*item) {
	for kept := registeredOf(items); len(kept) > 0; {
		if !pause(ctx, apiclient.RefreshDelay(im.granted)) {
			return
		}
		kept = im.renew(ctx, client, kept)
	}
}

// renew refreshes what is kept, as often as it takes, and returns what is to be
// kept on: not what the directory won't have any more.
func (im *importing) renew(ctx context.Context, client *apiclient.Client, kept []*item) (left []*item) {
	asked := make([]apiclient.Renewal, len(kept))
	for n, i := range kept {
		asked[n].ID = i.RID
	}
	told, err := client.RefreshMany(ctx, asked)
	for wait := firstRetry; err != nil && ctx.Err() == nil; wait = min(2*wait, lastRetry) {
		if !apiclient.Temporary(err) {
			im.note("Nothing is refreshed any more: %s", failureOf(err).what)
			return nil
		}
		im.note("The registrations could not be refreshed: %s; trying on.", failureOf(err).what)
		im.close() // another connection may reach another node, with a newer certificate
		if !pauseAbout(ctx, wait) {
			return kept
		}
		told, err = client.RefreshMany(ctx, asked)
	}
	if err != nil {
		return kept // ctx has ended
	}
	for n, i := range kept {
		r := told[n]
		var refused *apiclient.Error
		errors.As(r.Err, &refused)
		switch {
		case r.Err == nil:
			im.granted = min(im.granted, r.Lifetime)
		case refused.Status == http.StatusNotFound:
			if !im.again(ctx, client, i) {
				continue
			}
		case refused.Status < http.StatusInternalServerError:
			im.note("%s is kept no longer: %s", i.Agent, refused.Detail)
			continue
		}
		left = append(left, i)
	}
	return left
}

// again registers what has expired, and reports whether it is to be kept on.
func (im *importing) again(ctx context.Context, client *apiclient.Client, i *item) bool {
	err := im.registerOne(ctx, client, i)
	switch {
	case err != nil: // the next round tries again
	case i.Result == refused:
		im.note("%s had expired and is not taken again: %s", i.Agent, i.Reason)
		return false
	default:
		im.note("%s had expired and is registered again as %s.", i.Agent, i.RID)
	}
	return true
}

// grantedTo notes the shortest lifetime that was granted.
func (im *importing) grantedTo(out *apiclient.Registered) {
	lifetime := im.options.Lifetime
	if lifetime == 0 {
		lifetime = directory.DefaultLifetime * time.Second
	}
	if out.Granted != 0 {
		lifetime = out.Granted
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.granted == 0 || lifetime < im.granted {
		im.granted = lifetime
	}
}
