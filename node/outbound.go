package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// outbound is how a node calls agents: with which identity, and to which addresses it never
// connects. The identity is never the node's own, which other planes trust. Without one,
// agents see no certificate and no token.
type outbound struct {
	files *trust.Source      // of the identity; nil if no files are configured
	api   *trust.WorkloadAPI // of the identity; nil if there is none

	listeners []string // of this node
	members   func() []consensus.RaftPeer
}

// open opens the identity, if a node calls agents.
func (o *outbound) open(n *Node) error {
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

		o.files = source
		n.life.loop("gateway identity", func(ctx context.Context) { source.Run(ctx, n.log) })
	}

	if o.source() == nil {
		n.log.Warn("the gateway has no identity of its own, so agents see no certificate",
			"expected", n.cfg.TrustDomain.IDString()+directory.GatewayPath+"NAME")
	}

	return nil
}

// source returns the source in use; nil if there is none now.
func (o *outbound) source() *trust.Source {
	switch {
	case o.files != nil:
		return o.files
	case o.api != nil:
		return o.api.Gateway()
	}

	return nil
}

// Certificate returns the certificate for agents that ask for one; nil if there is none, or
// if it has expired.
func (o *outbound) Certificate() *tls.Certificate {
	source := o.source()
	if source == nil || source.Err() != nil {
		return nil
	}

	return source.Certificate()
}

// JWTSVID implements gateway.Tokens.
func (o *outbound) JWTSVID(ctx context.Context, audience string) (token string, until time.Time, err error) {
	source := o.source()
	if source == nil {
		return "", time.Time{}, trust.ErrNoJWTSVID
	}

	return source.JWTSVID(ctx, audience)
}

// isOwn reports whether a current member of the domain, this node among them, listens at an
// address.
func (o *outbound) isOwn(at netip.AddrPort) bool {
	addresses := []netip.Addr{at.Addr().Unmap()}
	if at.Addr().Unmap().IsLoopback() {
		// A listener on all addresses answers at each address of loopback, and names one.
		addresses = append(addresses, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}

	// Members sort their addresses before they announce them (listener.Addresses).
	listens := func(listeners []string) bool {
		return slices.ContainsFunc(addresses, func(address netip.Addr) bool {
			_, found := slices.BinarySearch(listeners, netip.AddrPortFrom(address, at.Port()).String())
			return found
		})
	}

	return listens(o.listeners) || slices.ContainsFunc(o.members(), func(member consensus.RaftPeer) bool {
		return listens(member.Listeners)
	})
}

// crawlGuard makes the client of crawls, which presents no identity.
func (o *outbound) crawlGuard(c *config.Crawl) (*gateway.Guard, error) {
	cfg, err := guardConfig("crawl", c.Allow, c.CA)
	if err != nil {
		return nil, err
	}

	cfg.IsOwn = o.isOwn

	return gateway.NewGuard(cfg), nil
}

// probeGuard makes the client of probes, which presents the gateway's identity.
func (o *outbound) probeGuard(c *config.Probe, bundles *trust.Bundles) (*gateway.Guard, error) {
	cfg, err := guardConfig("probe", c.Allow, c.CA)
	if err != nil {
		return nil, err
	}

	cfg.IsOwn = o.isOwn
	cfg.Timeout = probe.Timeout
	cfg.Certificate = o.Certificate
	cfg.Judge = func(chain []*x509.Certificate) (spiffeid.ID, error) { return trust.VerifyServer(chain, bundles) }

	return gateway.NewGuard(cfg), nil
}
