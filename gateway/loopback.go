package gateway

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"

	"github.com/roster-mesh/roster/directory/egress"
)

// checkPlain decides whether a request may go to a URL that is not https, before its host is
// resolved: nil or a *Refusal. With InsecureLoopback, http on this machine may be called.
func (g *Guard) checkPlain(target *url.URL) error {
	host := target.Hostname()

	switch {
	case !g.cfg.InsecureLoopback || target.Scheme != "http" || !egress.IsLoopback(host):
		return refuse(RuleScheme, nil, "agents are called by https, and not by %.20q", target.Scheme)
	case target.User != nil:
		return refuse(RuleAddress, nil, "the URL holds a user's name")
	}

	port, err := strconv.ParseUint(cmp.Or(target.Port(), "80"), 10, 16)
	if err != nil {
		return refuse(RulePort, nil, "%.10q is not a port", target.Port())
	}

	if addr, err := netip.ParseAddr(host); err == nil {
		return g.checkAddress(netip.AddrPortFrom(addr, uint16(port)), host)
	}

	return nil
}

// dialPlain connects to addr for http. It presents no certificate and verifies none, so it connects to this machine's
// own addresses alone, whatever a name resolves to.
func (g *Guard) dialPlain(ctx context.Context, network, addr string, server server) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)

	switch {
	case err != nil:
		return nil, err
	case !g.cfg.InsecureLoopback:
		return nil, refuse(RuleScheme, nil, "not https")
	case server.mutual:
		return nil, refuse(RuleIdentity, nil, "the agent speaks mTLS, and its binding is http")
	}

	dialer := net.Dialer{Timeout: min(dialTimeout, g.cfg.Timeout), Resolver: g.cfg.Resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			at, _ := netip.ParseAddrPort(address) // the zero address is refused
			if !at.Addr().Unmap().IsLoopback() {
				return refuse(RuleScheme, nil, "%s is at %q, and http is for loopback alone", host, address)
			}

			return g.checkAddress(at, host)
		}}

	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, notReached(err)
	}

	return conn, nil
}
