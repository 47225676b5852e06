package admission

import (
	"net"
	"net/netip"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A Caller is the party that a request counts against.
type Caller struct {
	Identity directory.Identity // zero for an anonymous caller
	Method   string             // how the identity was proved; see request.Credential
	Remote   string             // host:port of the connection's other end
}

// Key names the caller in quotas: its verified identity, or its address without one.
// All addresses of a /64 of IPv6 are one caller. Proxies' headers are not believed.
func (c Caller) Key() string {
	if !c.Identity.IsZero() {
		return c.Identity.String()
	}

	host, _, err := net.SplitHostPort(c.Remote)
	if err != nil {
		host = c.Remote
	}

	addr, err := netip.ParseAddr(host)
	if err != nil {
		return "address " + host
	}

	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return "address " + prefix.String()
		}
	}

	return "address " + addr.String()
}

// Party is Key, except that all identities of another domain are one party: that
// domain may make as many identities as it likes.
func (c Caller) Party(own spiffeid.TrustDomain) string {
	if id, ok := c.Identity.SPIFFE(); ok && id.TrustDomain() != own {
		return id.TrustDomain().Name()
	}

	return c.Key()
}
