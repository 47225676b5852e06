package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// follow keeps what an import registered to what the origin lists, until ctx ends:
// refreshed while it is listed, registered anew where it changed, removed when it is
// listed no more (WOA-013). While the origin can't be read nothing is refreshed
// (WOA-032).
func (im *importing) follow(ctx context.Context, client *apiclient.Client, source string, items []*item) {
	kept := map[string]*item{}
	for _, i := range registeredOf(items) {
		kept[i.Agent] = i
	}
	for retry := time.Duration(0); ; {
		wait := min(im.crawled.Fresh, apiclient.RefreshDelay(im.granted))
		if retry > 0 {
			wait = retry
		}
		if !pause(ctx, wait) {
			return
		}
		err := im.followOnce(ctx, client, source, kept)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			retry = 0
			continue
		}
		retry = min(max(2*retry, firstRetry), lastRetry)
		im.note("What is listed could not be followed: %s; trying on.", failureOf(err).what)
		im.close() // another connection may reach another node, with a newer certificate
	}
}

// followOnce fetches the document again and does what follows from it. kept are, by
// name, what is registered.
func (im *importing) followOnce(ctx context.Context, client *apiclient.Client, source string, kept map[string]*item) error {
	items, c, err := im.crawl(ctx, source, im.crawled)
	if err != nil {
		return err
	}
	listed, changed := map[string]bool{}, []*item{}
	if c.Unchanged {
		for name := range kept {
			listed[name] = true
		}
	}
	im.check(items)
	for _, i := range items {
		listed[i.Agent] = true
		switch old := kept[i.Agent]; {
		case i.Result == refused:
			im.note("%s is not taken: %s", i.Agent, i.Reason)
			delete(kept, i.Agent) // it is listed yet: what there is of it lapses
		case old == nil || !bytes.Equal(old.document, i.document):
			changed = append(changed, i)
			delete(kept, i.Agent)
		}
	}
	var same []*item
	for name, i := range kept {
		if listed[name] {
			same = append(same, i)
			continue
		}
		if err := im.remove(ctx, client, i); err != nil {
			return err
		}
		delete(kept, name)
	}
	for _, i := range changed {
		if err := im.registerOne(ctx, client, i); err != nil {
			return err
		}
		if i.Result == refused {
			im.note("%s is not taken: %s", i.Agent, i.Reason)
			continue
		}
		im.note("%s is %s as %s.", i.Agent, i.Result, i.RID)
		kept[i.Agent] = i
	}
	if len(same) > 0 {
		clear(kept)
		for _, i := range append(im.renew(ctx, client, same), registeredOf(changed)...) {
			kept[i.Agent] = i
		}
	}
	im.crawled = c // from here on what is as it was is asked for no more
	return nil
}

// registeredOf returns those items of which there is a registration.
func registeredOf(items []*item) (taken []*item) {
	for _, i := range items {
		if i.Result == registered || i.Result == replaced {
			taken = append(taken, i)
		}
	}
	return taken
}

// remove ends what is listed no more.
func (im *importing) remove(ctx context.Context, client *apiclient.Client, i *item) error {
	_, err := client.Deregister(ctx, resource(i.RID, ""))
	var answered *apiclient.Error
	if errors.As(err, &answered) && answered.Status == http.StatusNotFound {
		return nil
	}
	if err == nil {
		im.note("%s is listed no more, and removed.", i.Agent)
	}
	return err
}
