package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// An Operator tells a node's operator how it stands, and takes what the operator
// decides.
type Operator interface {
	Raft() wire.RaftStatus
	Members() []wire.Member
	Peers() []wire.Peer
	// SetPeering makes a peering or changes it, for the whole domain.
	SetPeering(context.Context, directory.Peering) error
	// Keys are the domain's, as its newest key document has them.
	Keys() wire.KeysStatus
	// RotateKey gives this node another signing key.
	RotateKey(context.Context) error
	// RevokeKey takes a signing key back, for the whole domain and for good.
	RevokeKey(ctx context.Context, id string) error
	// Evidence is a file that Peers lists of a domain; the oldest where id is empty.
	Evidence(domain spiffeid.TrustDomain, id string) ([]byte, error)
	// Policy is what is in force at this node.
	Policy() wire.PolicyText
	// SetPolicy puts a policy in force, for the whole domain, as by wants it: none is
	// taken that has an error, or by which by could not change it again, or, where
	// replaces is not nil, in the place of one that has none of these versions. Its
	// version is the revision of the position that it returns.
	SetPolicy(ctx context.Context, by directory.Identity, text string, replaces []uint64) (directory.Outcome, error)
}

func (s *Server) raft(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, s.cfg.Operator.Raft())
}

func (s *Server) members(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, wire.Members{Members: s.cfg.Operator.Members()})
}

func (s *Server) peers(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, wire.Peers{Peers: s.cfg.Operator.Peers()})
}

// evidence answers GET /v1/operator/peers/evidence with a file for roster verify.
func (s *Server) evidence(w http.ResponseWriter, c *call) error {
	q := c.URL.Query()
	td, err := spiffeid.TrustDomainFromString(q.Get("domain"))
	if err != nil || td.Name() != q.Get("domain") {
		return directory.Refuse(directory.BadQuery, "domain is %.100q; it is a trust domain, such as beta.test", q.Get("domain"))
	}
	b, err := s.cfg.Operator.Evidence(td, q.Get("id"))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	write(w, c.Request, http.StatusOK, "application/json", b)
	return nil
}

// setPeering answers POST /v1/operator/peers: what `peer accept` asks for.
func (s *Server) setPeering(w http.ResponseWriter, c *call) error {
	var in wire.Peering
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	p, err := parsePeering(&in, s.cfg.Domain)
	if err != nil {
		return err
	}
	if err := s.cfg.Operator.SetPeering(c.Context(), p); err != nil {
		return err
	}
	s.log.Info("peering set", "request_id", c.requestID, "caller", c.id.String(), "peer", p.Domain.Name(), "state", string(p.State))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// parsePeering checks a peering as an operator wrote it. Without a state it is active.
func parsePeering(in *wire.Peering, own spiffeid.TrustDomain) (directory.Peering, error) {
	p := directory.Peering{
		State: directory.PeeringState(in.State), Bundle: in.Bundle, Addresses: in.Addresses, Gossip: in.Gossip, Mesh: in.Mesh,
		Endpoint: directory.BundleEndpoint(in.BundleEndpoint),
	}
	var err error
	if p.Domain, err = spiffeid.TrustDomainFromString(in.Domain); err != nil || p.Domain.Name() != in.Domain || in.Domain == directory.Mesh.String() {
		return p, directory.Refuse(directory.BadRequest, "domain is %q, which is no trust domain", in.Domain).At("/domain")
	}
	if p.Domain == own {
		return p, directory.Refuse(directory.BadRequest, "%s is this directory's own domain", in.Domain).At("/domain")
	}
	switch p.State {
	case "":
		p.State = directory.PeeringActive
	case directory.PeeringPending, directory.PeeringActive, directory.PeeringFrozen, directory.PeeringTerminated:
	default:
		return p, directory.Refuse(directory.BadRequest, "state is %q; it is pending, active, frozen or terminated", in.State).At("/state")
	}
	if len(in.Bundle) == 0 || jsontext.Value(in.Bundle).Kind() != '{' {
		return p, directory.Refuse(directory.BadRequest, "bundle is missing: give the peer's SPIFFE bundle, a JWKS object").At("/bundle")
	}
	if err := p.Endpoint.Check(); err != nil {
		return p, directory.Refuse(directory.BadRequest, "bundle_endpoint: %w", err).At("/bundle_endpoint")
	}
	return p, checkAddresses(in.Addresses)
}

// WirePeering returns p as the wire has it.
func WirePeering(p directory.Peering) wire.Peering {
	return wire.Peering{
		Domain: p.Domain.Name(), State: string(p.State), Bundle: p.Bundle, Addresses: p.Addresses, Gossip: p.Gossip, Mesh: p.Mesh,
		BundleEndpoint: wire.BundleEndpoint(p.Endpoint),
	}
}

// WireRules returns the rules of a peering as the wire has them.
func WireRules(r directory.PeerRules) wire.PeerRules {
	rules := wire.PeerRules{
		Names: r.Names, Capabilities: r.Capabilities, Records: r.Records, Bytes: r.Bytes, MaxLifetime: r.MaxLifetime, OnStale: r.OnStale,
		OwnerShare: r.OwnerShare,
	}
	for _, kind := range r.Kinds {
		rules.Kinds = append(rules.Kinds, string(kind))
	}
	return rules
}

// rulesOf is the reverse of WireRules. It checks nothing.
func rulesOf(r *wire.PeerRules) *directory.PeerRules {
	if r == nil {
		return nil
	}
	rules := directory.PeerRules{
		Names: r.Names, Capabilities: r.Capabilities, Records: r.Records, Bytes: r.Bytes, MaxLifetime: r.MaxLifetime, OnStale: r.OnStale,
		OwnerShare: r.OwnerShare,
	}
	for _, kind := range r.Kinds {
		rules.Kinds = append(rules.Kinds, directory.Kind(kind))
	}
	return &rules
}

func checkAddresses(addresses []string) error {
	if len(addresses) == 0 {
		return directory.Refuse(directory.BadRequest, "addresses is empty: give the base URL of at least one of the peer's nodes").At("/addresses")
	}
	for _, a := range addresses {
		if u, err := url.Parse(a); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			return directory.Refuse(directory.BadRequest, "the address %.200q is not https://HOST[:PORT]", a).At("/addresses")
		}
	}
	return nil
}
