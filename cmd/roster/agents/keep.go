package agents

import (
	"context"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// removalTimeout bounds the removal of the registration when --keep ends.
const removalTimeout = 2 * time.Second

// keep refreshes the registration until ctx ends.
func (r *registrant) keep(ctx context.Context) error {
	stapler := r.startStapler(ctx)
	defer stapler.stop()

	r.keeper.Notify = func(event apiclient.KeepEvent) {
		// Each other event means a new deadline or a new rid, which the old staple doesn't have.
		if event.Kind != apiclient.KeepFailing {
			stapler.renew(r.keeper.RID())
		}

		switch event.Kind {
		case apiclient.KeepRegistered:
			r.session.Note("%s had expired; registered again as %s", r.keeper.Agent, event.Registered.RID)
		case apiclient.KeepFailing:
			r.session.Note("cannot refresh %s: %s; retrying", r.keeper.Agent, cli.FailureOf(event.Err).Message)
		case apiclient.KeepRecovered:
			r.session.Note("refreshed %s again", r.keeper.Agent)
		case apiclient.KeepRestored:
			r.session.Note("the domain was restored from a backup; refreshed %s at once, so that peers show it again",
				r.keeper.Agent)
		}
	}

	if err := r.keeper.Run(ctx); err != nil {
		return r.suggestGet(err)
	}

	if r.remove {
		return r.removeRegistration(ctx)
	}

	return nil
}

// removeRegistration removes the registration after ctx has ended.
func (r *registrant) removeRegistration(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
	defer cancel()

	if err := r.keeper.Remove(ctx); err != nil {
		return cli.FailureOf(err).WithHint("%s stays registered until its lifetime ends.", r.keeper.Agent)
	}

	r.session.Note("removed %s", r.keeper.Agent)

	return nil
}
