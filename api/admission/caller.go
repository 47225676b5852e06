package admission

import (
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit"
)

// A Caller is the party that a request counts against.
type Caller struct {
	Identity directory.Identity // zero for an anonymous caller
	Method   string             // how the identity was proved; see request.Credential
	Party    limit.Caller       // in shares and rates
}

// Parties knows which callers belong together.
type Parties struct {
	Domain spiffeid.TrustDomain
	// Own are the prefixes of further identities that count as the own domain's: those of
	// issuers of tokens that configuration says are its own.
	Own []string
}

// Of returns the party of a request: its verified identity wherever it connects from, with
// its domain or issuer as the group if that isn't the own one. Without an identity it is
// the address of the connection's other end, host:port. All addresses of a /64 of IPv6 are
// one party, and those of a /48 a group. Headers of proxies are not believed.
func (p Parties) Of(identity directory.Identity, remote string) limit.Caller {
	if identity.IsZero() {
		return limit.StrangerAt(remote)
	}

	id := identity.String()

	domain, spiffe := domainOf(id)
	if spiffe && domain == p.Domain.Name() {
		return limit.Caller{Kind: limit.Own, ID: id}
	}

	for _, prefix := range p.Own {
		if strings.HasPrefix(id, prefix) {
			return limit.Caller{Kind: limit.Own, ID: id}
		}
	}

	return limit.Caller{Kind: limit.Foreign, ID: id, Group: domain}
}

// domainOf returns the domain of a SPIFFE or WIMSE identity, and whether it is the first;
// and the issuer of an OAuth identity.
func domainOf(id string) (domain string, spiffe bool) {
	if issuer, ok := strings.CutPrefix(id, "oauth:"); ok {
		issuer, _, _ = strings.Cut(issuer, "#") // a subject may have more of them
		return issuer, false
	}

	scheme, rest, _ := strings.Cut(id, "://")
	domain, _, _ = strings.Cut(rest, "/")

	return domain, scheme == "spiffe"
}
