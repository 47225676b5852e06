package agents

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"net/http"
	"slices"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

// A registrar registers, refreshes and removes the items of an import.
type registrar struct {
	console   *cli.Console
	client    *apiclient.Client
	closeIdle func() // so that the next request makes a new connection
	options   apiclient.RegisterOptions
}

func newRegistrar(s *connect.Session, client *apiclient.Client, options apiclient.RegisterOptions) *registrar {
	return &registrar{console: s.Console, client: client, closeIdle: s.CloseIdle, options: options}
}

// register registers an item. A refusal is the item's result; an error is one that the next
// item would have too.
func (r *registrar) register(ctx context.Context, i *item) error {
	done, err := r.client.Register(ctx, i.Agent, i.document, r.options)

	var response *apiclient.Error
	switch {
	case err == nil:
		i.granted = cmp.Or(done.Granted, r.lifetime())
		i.warnIgnored(done.Ignored())
		i.RID = done.RID

		i.Result = replaced
		if done.Created {
			i.Result = registered
		}

		return nil

	case errors.As(err, &response) && isRefusalOfDocument(response.Status):
		i.refuse(err)
		return nil
	}

	return err
}

// isRefusalOfDocument reports whether a status is about this document, not about the
// directory or the caller.
func isRefusalOfDocument(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusUnauthorized && status != http.StatusTooManyRequests
}

// lifetime returns the lifetime to ask for.
func (r *registrar) lifetime() time.Duration {
	return cmp.Or(r.options.Lifetime, directory.DefaultLifetime*time.Second)
}

// refreshDelay returns when to refresh items together: the shortest lease sets the pace.
func refreshDelay(items iter.Seq[*item]) time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for i := range items {
		shortest = min(shortest, i.granted)
	}

	return apiclient.RefreshDelay(shortest)
}

// keep refreshes the registered items until ctx ends or no item is left.
func (r *registrar) keep(ctx context.Context, items []*item) {
	for kept := registeredItems(items); len(kept) > 0; {
		if !apiclient.Pause(ctx, refreshDelay(slices.Values(kept))) {
			return
		}

		kept = r.refresh(ctx, kept)
	}
}

// refresh refreshes items, with retries while the directory is unreachable, and returns
// those to refresh again later: all but the ones that the directory refused for good.
func (r *registrar) refresh(ctx context.Context, items []*item) []*item {
	renewals := make([]apiclient.Renewal, len(items))
	for n, i := range items {
		renewals[n].ID = i.RID

		// A lease that was cut once, as before the end of the owner's credential, is asked for in full again.
		if i.granted < r.lifetime() {
			renewals[n].Lifetime = r.lifetime()
		}
	}

	results, err := r.client.RefreshMany(ctx, renewals)
	for wait := apiclient.FirstRetry; err != nil && ctx.Err() == nil; wait = min(2*wait, apiclient.LastRetry) {
		if !apiclient.Temporary(err) {
			r.console.Note("stopped refreshing: %s", cli.FailureOf(err).Message)
			return nil
		}

		r.console.Note("cannot refresh: %s; retrying", cli.FailureOf(err).Message)

		// Another connection may reach another node, with a newer certificate.
		r.closeIdle()

		if !apiclient.Pause(ctx, apiclient.Jitter(wait)) {
			return items
		}

		// The whole list is sent again, because a second refresh of an item does no harm.
		results, err = r.client.RefreshMany(ctx, renewals)
	}

	if err != nil {
		return items // ctx has ended
	}

	var left []*item
	for n, i := range items {
		if r.applyRefresh(ctx, i, results[n]) {
			left = append(left, i)
		}
	}

	return left
}

// applyRefresh handles the result of refreshing one item, and reports whether to refresh it
// again later.
func (r *registrar) applyRefresh(ctx context.Context, i *item, result apiclient.Renewed) bool {
	var response *apiclient.Error
	errors.As(result.Err, &response)

	switch {
	case result.Err == nil:
		i.granted = result.Lifetime
	case response.Status == http.StatusNotFound:
		return r.registerExpired(ctx, i)
	case response.Status < http.StatusInternalServerError:
		r.console.Note("stopped refreshing %s: %s", i.Agent, response.Detail)
		return false
	}

	return true
}

// registerExpired registers an expired item again, and reports whether to refresh it later.
func (r *registrar) registerExpired(ctx context.Context, i *item) bool {
	err := r.register(ctx, i)
	switch {
	case err != nil: // the next round tries again
	case i.Result == refused:
		r.console.Note("%s expired and was refused: %s", i.Agent, i.Reason)
		return false
	default:
		r.console.Note("%s had expired; registered again as %s", i.Agent, i.RID)
	}

	return true
}

// remove removes an item that its origin no longer lists.
func (r *registrar) remove(ctx context.Context, i *item) error {
	_, err := r.client.Deregister(ctx, connect.RegistrationPath(i.RID, ""))

	var response *apiclient.Error
	if errors.As(err, &response) && response.Status == http.StatusNotFound {
		return nil
	}

	if err == nil {
		r.console.Note("removed %s: no longer listed", i.Agent)
	}

	return err
}
