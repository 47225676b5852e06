package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/directory"
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
	if ctx == nil {
		ctx = context.Background()
	}

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
	})
	n.gatewayID.api = w
	n.source, err = w.Source(ctx)

	return err
}

// A gatewayIdentity is the identity with which a node calls agents. It is never the node's
// own, which other planes trust. Without one, agents see no certificate and no token.
type gatewayIdentity struct {
	files *trust.Source      // nil if no files are configured
	api   *trust.WorkloadAPI // nil if there is none
}

// wireGatewayIdentity opens the gateway's identity, if the node calls agents.
func (n *Node) wireGatewayIdentity() error {
	files := n.cfg.Gateway.Identity
	if !n.cfg.Gateway.Enabled && !n.cfg.Probe.Enabled {
		return nil
	}

	if files.Cert != "" {
		source, err := trust.OpenFiles(files.Cert, files.Key)
		if err != nil {
			return fmt.Errorf("gateway.identity: %w", err)
		}

		if id := source.SVID().ID; !trust.IsGateway(id) || !id.MemberOf(n.cfg.TrustDomain) {
			return fmt.Errorf("gateway.identity.cert: must be of an ID under %s%s, got %s",
				n.cfg.TrustDomain.IDString(), directory.GatewayPath, id)
		}

		n.gatewayID.files = source
		n.life.loop("gateway identity", func(ctx context.Context) { source.Run(ctx, n.log) })
	}

	if n.gatewayID.source() == nil {
		n.log.Warn("the gateway has no identity of its own, so agents see no certificate",
			"expected", n.cfg.TrustDomain.IDString()+directory.GatewayPath+"NAME")
	}

	return nil
}

// source returns the source in use; nil if there is none now.
func (g *gatewayIdentity) source() *trust.Source {
	switch {
	case g.files != nil:
		return g.files
	case g.api != nil:
		return g.api.Gateway()
	}

	return nil
}

// Certificate returns the certificate for agents that ask for one; nil if there is none, or
// if it has expired.
func (g *gatewayIdentity) Certificate() *tls.Certificate {
	source := g.source()
	if source == nil || source.Err() != nil {
		return nil
	}

	return source.Certificate()
}

// JWTSVID implements gateway.Tokens.
func (g *gatewayIdentity) JWTSVID(ctx context.Context, audience string) (token string, until time.Time, err error) {
	source := g.source()
	if source == nil {
		return "", time.Time{}, trust.ErrNoJWTSVID
	}

	return source.JWTSVID(ctx, audience)
}

// A front answers on the admin listener before, while and after the node serves.
type front struct {
	publicURL string
	hosts     []string // by which it may be asked
	handler   atomic.Pointer[http.Handler]
}

// show answers with metrics, if there are any yet, and with whether the node serves.
func (f *front) show(metrics http.Handler, ready func() error) {
	h := api.NewAdmin(api.AdminConfig{PublicURL: f.publicURL, Hosts: f.hosts, Metrics: metrics, Ready: ready})
	f.handler.Store(&h)
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*f.handler.Load()).ServeHTTP(w, r)
}
