package operator

import (
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// ParsePeering checks a peering as an operator, or another domain, wrote it. Without a state it is active.
func ParsePeering(in *wire.Peering, own spiffeid.TrustDomain) (directory.Peering, error) {
	peering := directory.Peering{
		State:     directory.PeeringState(in.State),
		Bundle:    in.Bundle,
		Addresses: in.Addresses,
		Gossip:    in.Gossip,
		Mesh:      in.Mesh,
		Endpoint:  directory.BundleEndpoint(in.BundleEndpoint),
	}

	var err error

	peering.Domain, err = spiffeid.TrustDomainFromString(in.Domain)
	if err != nil || peering.Domain.Name() != in.Domain || in.Domain == directory.Mesh.String() {
		return peering, directory.Refuse(directory.BadRequest, "domain must be a trust domain, got %q", in.Domain).
			At("/domain")
	}

	if peering.Domain == own {
		return peering, directory.Refuse(directory.BadRequest,
			"domain must be another domain; %s is this directory's own", in.Domain).At("/domain")
	}

	switch peering.State {
	case "":
		peering.State = directory.PeeringActive
	case directory.PeeringPending, directory.PeeringActive, directory.PeeringFrozen, directory.PeeringTerminated:
	default:
		return peering, directory.Refuse(directory.BadRequest,
			"state must be pending, active, frozen or terminated, got %q", in.State).At("/state")
	}

	if len(in.Bundle) == 0 || jsontext.Value(in.Bundle).Kind() != '{' {
		return peering, directory.Refuse(directory.BadRequest,
			"bundle is missing: give the peer's SPIFFE bundle, a JWKS object").At("/bundle")
	}

	if err := peering.Endpoint.Check(); err != nil {
		return peering, directory.Refuse(directory.BadRequest, "bundle_endpoint: %w", err).At("/bundle_endpoint")
	}

	return peering, checkAddresses(in.Addresses)
}

func checkAddresses(addresses []string) error {
	if len(addresses) == 0 {
		return directory.Refuse(directory.BadRequest,
			"addresses is empty: give the base URL of at least one of the peer's nodes").At("/addresses")
	}

	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" ||
			u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			return directory.Refuse(directory.BadRequest,
				"an address must be https://HOST[:PORT], got %.200q", address).At("/addresses")
		}
	}

	return nil
}

// parsePeer reads the name of another domain.
func parsePeer(name string, own spiffeid.TrustDomain) (spiffeid.TrustDomain, error) {
	td, err := spiffeid.TrustDomainFromString(name)
	if err != nil || td.Name() != name || td == own || name == directory.Mesh.String() {
		return td, directory.Refuse(directory.BadRequest,
			"domain must be another trust domain such as beta.test, got %.100q", name).At("/domain")
	}

	return td, nil
}

// WirePeering returns p as it is on the wire.
func WirePeering(peering directory.Peering) wire.Peering {
	return wire.Peering{
		Domain:         peering.Domain.Name(),
		State:          string(peering.State),
		Bundle:         peering.Bundle,
		Addresses:      peering.Addresses,
		Gossip:         peering.Gossip,
		Mesh:           peering.Mesh,
		BundleEndpoint: wire.BundleEndpoint(peering.Endpoint),
	}
}

// WireRules returns the rules of a peering as they are on the wire.
func WireRules(r directory.PeerRules) wire.PeerRules {
	rules := wire.PeerRules{
		Names:        r.Names,
		Capabilities: r.Capabilities,
		Records:      r.Records,
		Bytes:        r.Bytes,
		MaxLifetime:  r.MaxLifetime,
		OnStale:      r.OnStale,
		OwnerShare:   r.OwnerShare,
	}
	for _, kind := range r.Kinds {
		rules.Kinds = append(rules.Kinds, string(kind))
	}

	return rules
}

// parseRules is the reverse of WireRules. It checks nothing.
func parseRules(r *wire.PeerRules) *directory.PeerRules {
	if r == nil {
		return nil
	}

	rules := directory.PeerRules{
		Names:        r.Names,
		Capabilities: r.Capabilities,
		Records:      r.Records,
		Bytes:        r.Bytes,
		MaxLifetime:  r.MaxLifetime,
		OnStale:      r.OnStale,
		OwnerShare:   r.OwnerShare,
	}
	for _, kind := range r.Kinds {
		rules.Kinds = append(rules.Kinds, directory.Kind(kind))
	}

	return &rules
}
