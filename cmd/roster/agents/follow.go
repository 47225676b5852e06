package agents

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// A follower keeps the registrations of an import equal to the list of an origin (WOA-013):
// it refreshes agents while they are listed, registers new and changed ones, and removes
// those that are no longer listed. While the origin is unreadable it refreshes nothing
// (WOA-032).
type follower struct {
	importer  *importer
	registrar *registrar
	source    string
	items     map[string]*item // the registrations to keep, by name
}

func newFollower(im *importer, registrar *registrar, source string, items []*item) *follower {
	f := &follower{importer: im, registrar: registrar, source: source, items: map[string]*item{}}
	f.add(registeredItems(items))

	return f
}

func (f *follower) add(items []*item) {
	for _, i := range items {
		f.items[i.Agent] = i
	}
}

// run follows the origin until ctx ends.
func (f *follower) run(ctx context.Context) {
	retry := time.Duration(0)
	for {
		wait := f.delay()
		if retry > 0 {
			wait = retry
		}

		if !apiclient.Pause(ctx, wait) {
			return
		}

		err := f.update(ctx)
		switch {
		// An error after the end of ctx is an effect of that, not of the origin.
		case ctx.Err() != nil:
			return
		case err == nil:
			retry = 0
			continue
		}

		retry = min(max(2*retry, apiclient.FirstRetry), apiclient.LastRetry)
		f.registrar.console.Note("cannot follow the origin: %s; retrying", cli.FailureOf(err).Message)

		// Another connection may reach another node, with a newer certificate.
		f.registrar.closeIdle()
	}
}

// delay returns when to make the next round. One round serves the origin's caching and the shortest lease,
// so the earlier of the two counts; without registrations there is no lease.
func (f *follower) delay() time.Duration {
	fresh := f.importer.crawled.Fresh
	if len(f.items) == 0 {
		return fresh
	}

	return min(fresh, refreshDelay(maps.Values(f.items)))
}

// update fetches the document and applies the differences to the directory.
func (f *follower) update(ctx context.Context) error {
	listed, result, err := f.importer.crawl(ctx, f.source, f.importer.crawled)
	if err != nil {
		// While the origin is unreadable, no lease is extended: its agents expire unless it returns.
		return err
	}

	var toRegister []*item
	if !result.Unchanged {
		f.importer.check(listed)

		toRegister = f.takeChanged(listed)
		if err := f.removeUnlisted(ctx, listed); err != nil {
			return err
		}
	}

	// The list is made before registerAll adds its items, whose leases have just begun.
	toRefresh := slices.Collect(maps.Values(f.items))

	if err := f.registerAll(ctx, toRegister); err != nil {
		return err
	}

	if len(toRefresh) > 0 {
		// The refresh drops the items that the directory refused for good. Those of this round are kept.
		clear(f.items)
		f.add(f.registrar.refresh(ctx, toRefresh))
		f.add(registeredItems(toRegister))
	}

	// Only a complete round counts: after a failure, the next one applies the whole document again.
	f.importer.crawled = result

	return nil
}

// takeChanged returns the listed items to register, which are new or changed, and takes them
// out of the items to refresh. It also takes out listed items that are refused: their
// registrations expire.
func (f *follower) takeChanged(listed []*item) []*item {
	var toRegister []*item
	for _, i := range listed {
		switch old := f.items[i.Agent]; {
		case i.Result == refused:
			f.registrar.console.Note("refused %s: %s", i.Agent, i.Reason)
			delete(f.items, i.Agent)
		case old == nil || !bytes.Equal(old.document, i.document):
			toRegister = append(toRegister, i)
			delete(f.items, i.Agent)
		}
	}

	return toRegister
}

// removeUnlisted removes the registrations of agents that are no longer listed.
func (f *follower) removeUnlisted(ctx context.Context, listed []*item) error {
	isListed := map[string]bool{}
	for _, i := range listed {
		isListed[i.Agent] = true
	}

	for name, i := range f.items {
		if isListed[name] {
			continue
		}

		if err := f.registrar.remove(ctx, i); err != nil {
			return err
		}

		delete(f.items, name)
	}

	return nil
}

func (f *follower) registerAll(ctx context.Context, items []*item) error {
	for _, i := range items {
		if err := f.registrar.register(ctx, i); err != nil {
			return err
		}

		if i.Result == refused {
			f.registrar.console.Note("refused %s: %s", i.Agent, i.Reason)
			continue
		}

		f.registrar.console.Note("%s %s as %s", i.Result, i.Agent, i.RID)
		f.items[i.Agent] = i
	}

	return nil
}
