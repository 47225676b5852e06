package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// wireIdentity determines this node's identity, and has its SVID renewed. If a Workload
// API is not available, it waits for it until env.Context ends.
func (n *Node) wireIdentity(env Env) (err error) {
	n.bundles = trust.NewBundles()

	where := "identity.cert"
	switch {
	case n.cfg.Identity.WorkloadAPI != "":
		where = "identity.workload_api"
		err = n.awaitIdentity(env.Context)
	case env.Source != nil:
		n.source = env.Source
	default:
		n.source, err = trust.OpenFiles(n.cfg.Identity.Cert, n.cfg.Identity.Key)
	}

	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}

	if n.id = n.source.SVID().ID; n.member() == nil {
		return fmt.Errorf("%s: %s is not a member: list this node under members", where, n.id)
	}

	// The Workload API brings the bundles and renews the SVID, so no file is followed.
	if n.cfg.Identity.WorkloadAPI != "" {
		return nil
	}

	if err := n.source.Follow(n.bundles, n.cfg.Identity.Bundle); err != nil {
		return fmt.Errorf("identity.bundle: %w", err)
	}

	n.life.loop("identity", func(ctx context.Context) { n.source.Run(ctx, n.log) })

	return nil
}

// awaitIdentity waits for the SVID of one of the members. Meanwhile the admin listener
// reports the wait.
func (n *Node) awaitIdentity(ctx context.Context) error {
	ctx = cmp.Or(ctx, context.Background())

	// A Workload API may give this process several SVIDs. The node's is the one that members lists.
	mine := func(id spiffeid.ID) bool { return n.cfg.Member(id) != nil }

	w, err := trust.OpenWorkloadAPI(n.cfg.Identity.WorkloadAPI, n.bundles, mine)
	if err != nil {
		return err
	}

	if n.cfg.Callers.WITSVID {
		w.FollowWITBundles()
	}

	n.life.loop("Workload API", func(ctx context.Context) { w.Run(ctx, n.log) })
	n.admin.show(nil, func() error {
		if err := w.Err(); err != nil {
			return fmt.Errorf("identity: waiting for an SVID: %w", err)
		}

		return errors.New("starting")
	}, nil)
	n.outbound.api = w
	n.source, err = w.Source(ctx)

	return err
}
