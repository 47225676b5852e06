package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// An Operator tells a node's operator how it stands, and takes what the operator
// decides.
type Operator interface {
	Raft() RaftStatus
	Members() []Member
	Peers() []Peer
	// SetPeering makes a peering or changes it, for the whole domain.
	SetPeering(context.Context, directory.Peering) error
	// Keys are the domain's, as its newest key document has them.
	Keys() KeysStatus
	// RotateKey gives this node another signing key.
	RotateKey(context.Context) error
	// RevokeKey takes a signing key back, for the whole domain and for good.
	RevokeKey(ctx context.Context, id string) error
	// Evidence is a file that Peers lists of a domain; the oldest where id is empty.
	Evidence(domain spiffeid.TrustDomain, id string) ([]byte, error)
	// Policy is what is in force at this node.
	Policy() PolicyText
	// SetPolicy puts a policy in force, for the whole domain, as by wants it: none is
	// taken that has an error, or by which by could not change it again, or, where
	// replaces is not nil, in the place of one that has none of these versions. Its
	// version is the revision of the position that it returns.
	SetPolicy(ctx context.Context, by directory.Identity, text string, replaces []uint64) (directory.Outcome, error)
}

// A RaftStatus is how a domain's nodes hold its directory together.
type RaftStatus struct {
	Leader string     `json:"leader"` // a SPIFFE ID; empty where none is known
	Peers  []RaftPeer `json:"peers"`
	// Admitted are nodes that may join.
	Admitted []Admission `json:"admitted,omitempty"`
	// Quotas are how much of its quotas the domain uses.
	Quotas QuotaStatus `json:"quotas,omitzero"`
}

// A QuotaStatus is how much of its quotas a domain uses. A limit of 0 is none.
type QuotaStatus struct {
	Registrations      uint64 `json:"registrations"`
	RegistrationsLimit uint64 `json:"registrations_limit"`
	Bytes              uint64 `json:"bytes"` // of documents, as they were written
	BytesLimit         uint64 `json:"bytes_limit"`
	Owners             int    `json:"owners"`
	// LargestShare is the part of its quota, from 0 to 1, that the owner uses who uses
	// most of it; exact to a 64th.
	LargestShare float64 `json:"largest_share"`
}

// A RaftPeer is one node of the domain.
type RaftPeer struct {
	ID          string    `json:"id"` // its SPIFFE ID
	Address     string    `json:"address"`
	API         string    `json:"api,omitempty"` // base URL of its directory, where it has said
	Voter       bool      `json:"voter"`
	LastContact time.Time `json:"last_contact,omitzero"` // when the node that answers heard of it last
	Unheard     bool      `json:"unheard,omitzero"`      // who leads has not heard it since it leads
}

// A Member is one node in the mesh's gossip pool.
type Member struct {
	ID      string `json:"id"` // its SPIFFE ID
	Domain  string `json:"domain"`
	Address string `json:"address"`
	State   string `json:"state"` // alive, or lost: it was a member and is looked for
}

// A Peer is how one peered domain stands, as the node that answers sees it.
type Peer struct {
	Domain string `json:"domain"`
	// State is honest: pending, active, frozen or terminated as agreed; but behind,
	// failing or unlisted (it answers, and lets this domain have nothing) where this
	// node finds an active peer so.
	State       string `json:"state"`
	Agreed      string `json:"agreed"`                // pending, active, frozen, terminated
	Fingerprint string `json:"fingerprint,omitempty"` // of the bundle that is believed
	// BundleEndpoint is where the peer's bundle is had anew, when that was done last,
	// and why it could not be.
	BundleEndpoint string    `json:"bundle_endpoint,omitempty"`
	BundleChecked  time.Time `json:"bundle_checked,omitzero"`
	BundleError    string    `json:"bundle_error,omitempty"`

	Exported     bool              `json:"exported"`          // whether the peer may have what is for the mesh
	Unlisted     bool              `json:"unlisted,omitzero"` // whether it lets this domain have nothing
	Until        time.Time         `json:"invited_until,omitzero"`
	EndedBy      string            `json:"ended_by,omitempty"` // of a terminated one: us, or peer
	Addresses    []string          `json:"addresses,omitempty"`
	Gossip       []string          `json:"gossip,omitempty"`    // addresses by which its pool is joined
	Watermark    string            `json:"watermark,omitempty"` // EPOCH.REVISION that this node has applied
	Tip          string            `json:"tip,omitempty"`       // EPOCH.REVISION that the peer has announced
	LagRevisions uint64            `json:"lag_revisions"`
	LagSeconds   float64           `json:"lag_seconds"`
	LastHeard    time.Time         `json:"last_heard,omitzero"`
	LastError    string            `json:"last_error,omitempty"`
	Received     map[string]uint64 `json:"received,omitempty"` // messages that name it, by outcome, whoever brought them
	Refused      map[string]uint64 `json:"refused,omitempty"`  // messages that its nodes brought, by the reason, whomever they name
	HeadAge      float64           `json:"head_age_seconds"`   // of its newest verified head
	// Export and Import are the peering's rules.
	Export directory.PeerRules `json:"export,omitzero"`
	Import directory.PeerRules `json:"import,omitzero"`
	// Hidden is whether what the peer told isn't shown, since it wasn't heard for long.
	Hidden    bool   `json:"hidden,omitzero"`
	Records   uint64 `json:"records,omitzero"`    // held of the peer, filtered or not
	Bytes     uint64 `json:"bytes,omitzero"`      // of them on disk
	Missing   int    `json:"missing,omitzero"`    // registrations whose records nobody gave yet
	OverQuota uint64 `json:"over_quota,omitzero"` // registrations for which there was no room
	BytesIn   uint64 `json:"bytes_in,omitzero"`   // of bodies that its nodes answered
	BytesOut  uint64 `json:"bytes_out,omitzero"`  // of bodies that its nodes were answered
	GossipIn  uint64 `json:"gossip_in,omitzero"`  // bytes that its nodes gossiped to this one
	GossipOut uint64 `json:"gossip_out,omitzero"` // and that this one gossiped to them

	Evidence []PeerEvidence `json:"evidence,omitempty"` // that this node has, the oldest first
}

// A PeerEvidence is a file which shows that a peer contradicted itself.
type PeerEvidence struct {
	ID    string    `json:"id"` // the same at every node, of whatever domain
	Found time.Time `json:"found"`
}

func (s *Server) raft(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, s.cfg.Operator.Raft())
}

func (s *Server) members(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, struct {
		Members []Member `json:"members"`
	}{s.cfg.Operator.Members()})
}

func (s *Server) peers(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, struct {
		Peers []Peer `json:"peers"`
	}{s.cfg.Operator.Peers()})
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

// A peering is a directory.Peering as JSON shows it to people: the bundle is the
// JWKS object itself.
type peering struct {
	Domain    string         `json:"domain"`
	State     string         `json:"state,omitempty"`
	Bundle    jsontext.Value `json:"bundle"`
	Addresses []string       `json:"addresses"`
	Gossip    []string       `json:"gossip,omitempty"`
	Mesh      bool           `json:"mesh"`
	// Endpoint is where the bundle is had anew.
	Endpoint directory.BundleEndpoint `json:"bundle_endpoint,omitzero"`
}

// setPeering answers POST /v1/operator/peers: what `peer accept` asks for.
func (s *Server) setPeering(w http.ResponseWriter, c *call) error {
	var in peering
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	p, err := in.parse(s.cfg.Domain)
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

// parse checks a peering as an operator wrote it. Without a state it is active.
func (in *peering) parse(own spiffeid.TrustDomain) (directory.Peering, error) {
	p := directory.Peering{State: directory.PeeringState(in.State), Bundle: in.Bundle, Addresses: in.Addresses, Gossip: in.Gossip, Mesh: in.Mesh, Endpoint: in.Endpoint}
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
	if len(in.Bundle) == 0 || in.Bundle.Kind() != '{' {
		return p, directory.Refuse(directory.BadRequest, "bundle is missing: give the peer's SPIFFE bundle, a JWKS object").At("/bundle")
	}
	if err := in.Endpoint.Check(); err != nil {
		return p, directory.Refuse(directory.BadRequest, "bundle_endpoint: %w", err).At("/bundle_endpoint")
	}
	return p, checkAddresses(in.Addresses)
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

// Raft reads how the domain's nodes hold its directory together.
func (c *Client) Raft(ctx context.Context) (*RaftStatus, *Reply, error) {
	out := &RaftStatus{}
	r, err := c.read(ctx, "/v1/operator/raft", "peers", out)
	return out, r, err
}

// Members reads the mesh's gossip pool.
func (c *Client) Members(ctx context.Context) ([]Member, *Reply, error) {
	var out struct {
		Members []Member `json:"members"`
	}
	r, err := c.read(ctx, "/v1/operator/members", "members", &out)
	return out.Members, r, err
}

// Peers reads how the peered domains stand.
func (c *Client) Peers(ctx context.Context) ([]Peer, *Reply, error) {
	var out struct {
		Peers []Peer `json:"peers"`
	}
	r, err := c.read(ctx, "/v1/operator/peers", "peers", &out)
	return out.Peers, r, err
}

// SetPeering makes a peering with another domain, or changes it.
func (c *Client) SetPeering(ctx context.Context, p directory.Peering) error {
	body, err := json.Marshal(peering{p.Domain.Name(), string(p.State), p.Bundle, p.Addresses, p.Gossip, p.Mesh, p.Endpoint})
	if err != nil {
		return err
	}
	_, err = c.change(ctx, http.MethodPost, "/v1/operator/peers", nil, body)
	return err
}
