package api

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Peerings makes and ends peerings with other domains (federation.md, "Peering").
// Its errors are *directory.Error.
type Peerings interface {
	// Invite makes a token by which that domain, once and until it ends, becomes a
	// peer. An earlier one for it is good no longer.
	Invite(ctx context.Context, peer spiffeid.TrustDomain, life time.Duration) (Invitation, error)
	// Accept shows the secret of another domain's token to that domain, and makes it
	// a peer. To repeat it is safe.
	Accept(ctx context.Context, token Token) error
	// Invited reports whether this node knows of an invitation with that secret.
	Invited(secret string, peer spiffeid.TrustDomain) bool
	// Redeem takes the word of whoever shows the secret of an invitation.
	Redeem(ctx context.Context, secret string, peer directory.Peering) error
	// Change does what an operator wants of a peering that there is.
	Change(ctx context.Context, peer spiffeid.TrustDomain, verb PeerVerb) error
	// Set puts settings in the place of those of a peering.
	Set(ctx context.Context, peer spiffeid.TrustDomain, to PeerSettings) error
}

// PeerSettings are what of a peering one side says by itself: its rules, and where the
// peer is found. What is nil stays as it is.
type PeerSettings struct {
	Export    *directory.PeerRules      `json:"export,omitzero"`
	Import    *directory.PeerRules      `json:"import,omitzero"`
	Addresses []string                  `json:"addresses,omitzero"` // base URLs of its nodes
	Gossip    []string                  `json:"gossip,omitzero"`    // host:port of their gossip listeners
	Endpoint  *directory.BundleEndpoint `json:"bundle_endpoint,omitzero"`
}

func (p *PeerSettings) isZero() bool {
	return p.Export == nil && p.Import == nil && p.Addresses == nil && p.Gossip == nil && p.Endpoint == nil
}

func (p *PeerSettings) check() error {
	if p.Export != nil {
		if err := p.Export.CheckExport(); err != nil {
			return err
		}
	}
	if p.Import != nil {
		if err := p.Import.CheckImport(); err != nil {
			return err
		}
	}
	if p.Addresses != nil {
		if err := checkAddresses(p.Addresses); err != nil {
			return err
		}
	}
	for _, a := range p.Gossip {
		host, port, err := net.SplitHostPort(a)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil {
			return directory.Refuse(directory.BadRequest, "the gossip address %.200q is not host:port", a).At("/gossip")
		}
	}
	if p.Endpoint != nil {
		if err := p.Endpoint.Check(); err != nil {
			return directory.Refuse(directory.BadRequest, "bundle_endpoint: %w", err).At("/bundle_endpoint")
		}
	}
	return nil
}

// A PeerVerb is what an operator wants of a peering.
type PeerVerb string

// What can be wanted of a peering.
const (
	PeerRemove   PeerVerb = "remove"   // end it: all that was had is dropped, at both sides
	PeerRelease  PeerVerb = "release"  // of a frozen one: trust it again
	PeerExport   PeerVerb = "export"   // let the peer have what is for the mesh
	PeerUnexport PeerVerb = "unexport" // no longer
	PeerSet      PeerVerb = "set"      // other rules for what goes out or comes in, or other places where it is found
)

// An Invitation is a token, and what to compare at the other side.
type Invitation struct {
	Token       string    `json:"token"`
	Until       time.Time `json:"until"`
	Fingerprint string    `json:"fingerprint"` // of the inviting domain's bundle
}

// A Token invites one domain to peer. The bundle in it decides whom the invited
// domain believes, and the secret who may accept.
type Token struct {
	Domain    string         `json:"domain"`  // that invites
	Invited   string         `json:"invited"` // the domain that it is for
	Bundle    jsontext.Value `json:"bundle"`
	Addresses []string       `json:"addresses"`
	Gossip    []string       `json:"gossip,omitempty"`
	// Endpoint is where the bundle is had anew.
	Endpoint directory.BundleEndpoint `json:"bundle_endpoint,omitzero"`
	Secret   string                   `json:"secret"`
	Until    int64                    `json:"until"` // Unix seconds
}

const (
	tokenMark = "roster-peer-1." // a token's first characters
	// MaxToken bounds a token in bytes: its bundle must fit into a request's body.
	MaxToken = 60 << 10

	redeemPath = "/v1/peerings"
)

// String returns the token as one word.
func (t *Token) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // only a bundle that is no JSON; none is believed
	}
	return tokenMark + directory.B64.EncodeToString(b)
}

// ParseToken reads a token strictly. What stands in it is for Peering to check.
func ParseToken(word string) (Token, error) {
	var t Token
	text, marked := strings.CutPrefix(word, tokenMark)
	b, err := directory.B64.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &t, json.RejectUnknownMembers(true))
	}
	if !marked || err != nil || len(word) > MaxToken || t.Secret == "" {
		return Token{}, directory.Refuse(directory.BadRequest, "The token is not one of \"roster peer invite\", or not whole: it is one word that begins with %s", tokenMark).At("/token")
	}
	return t, nil
}

// Peering is what the token says of the domain that invites, as a pending peering
// of the domain own.
func (t *Token) Peering(own spiffeid.TrustDomain) (directory.Peering, error) {
	in := peering{Domain: t.Domain, State: string(directory.PeeringPending), Bundle: t.Bundle, Addresses: t.Addresses, Gossip: t.Gossip, Endpoint: t.Endpoint}
	p, err := in.parse(own)
	if err == nil && t.Invited != own.Name() {
		err = directory.Refuse(directory.BadRequest, "The token invites %.100q, and this is %s: ask for one of your own.", t.Invited, own.Name()).At("/token")
	}
	return p, err
}

// An offer is what the invited domain tells of itself.
type offer struct {
	peering
	Secret string `json:"secret"`
}

type inviteRequest struct {
	Domain string `json:"domain"`
	Life   int64  `json:"life,omitzero"` // seconds
}

type acceptRequest struct {
	Token string `json:"token"`
}

type changeRequest struct {
	Domain       string   `json:"domain"`
	Verb         PeerVerb `json:"verb"`
	PeerSettings          // of set
}

// check says what is wrong with what is asked for.
func (in *changeRequest) check() error {
	switch in.Verb {
	case PeerRemove, PeerRelease, PeerExport, PeerUnexport:
		if !in.isZero() {
			return directory.Refuse(directory.BadRequest, "rules, addresses and a bundle endpoint are for the verb set").At("/verb")
		}
		return nil
	case PeerSet:
		if in.isZero() {
			return directory.Refuse(directory.BadRequest, "set takes export, import, addresses, gossip or bundle_endpoint").At("/verb")
		}
		return in.PeerSettings.check()
	default:
		return directory.Refuse(directory.BadRequest, "verb is %.40q; it is remove, release, export, unexport or set", in.Verb).At("/verb")
	}
}

// Bounds of an invitation's life.
const (
	defaultInvitation = time.Hour
	maxInvitation     = 7 * 24 * time.Hour
)

func peerNamed(name string, own spiffeid.TrustDomain) (spiffeid.TrustDomain, error) {
	td, err := spiffeid.TrustDomainFromString(name)
	if err != nil || td.Name() != name || td == own || name == directory.Mesh.String() {
		return td, directory.Refuse(directory.BadRequest, "domain is %.100q; name another trust domain than this one, such as beta.test", name).At("/domain")
	}
	return td, nil
}

func (s *Server) invite(w http.ResponseWriter, c *call) error {
	var in inviteRequest
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	td, err := peerNamed(in.Domain, s.cfg.Domain)
	if err != nil {
		return err
	}
	life := defaultInvitation
	if in.Life != 0 {
		if in.Life < 0 || in.Life > int64(maxInvitation/time.Second) {
			return directory.Refuse(directory.BadRequest, "life is %d; an invitation holds for 1 to %d seconds", in.Life, maxInvitation/time.Second).At("/life")
		}
		life = time.Duration(in.Life) * time.Second
	}
	made, err := s.cfg.Peerings.Invite(c.Context(), td, life)
	if err != nil {
		return err
	}
	s.peeringChanged(c, "invited", in.Domain)
	return sendStatus(w, c, made)
}

func (s *Server) accept(w http.ResponseWriter, c *call) error {
	var in acceptRequest
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	token, err := ParseToken(in.Token)
	if err == nil {
		err = s.cfg.Peerings.Accept(c.Context(), token)
	}
	if err != nil {
		return err
	}
	s.peeringChanged(c, "accepted", token.Domain)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) changePeering(w http.ResponseWriter, c *call) error {
	var in changeRequest
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	td, err := peerNamed(in.Domain, s.cfg.Domain)
	if err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if in.Verb == PeerSet {
		err = s.cfg.Peerings.Set(c.Context(), td, in.PeerSettings)
	} else {
		err = s.cfg.Peerings.Change(c.Context(), td, in.Verb)
	}
	if err != nil {
		return err
	}
	s.peeringChanged(c, string(in.Verb), in.Domain)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// redeem answers the domain that an invitation is for. It has no identity here
// yet: the secret is what it shows.
func (s *Server) redeem(w http.ResponseWriter, c *call) error {
	var in offer
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	in.State, in.Mesh = "", false // for this side to say
	p, err := in.parse(s.cfg.Domain)
	if err != nil {
		return err
	}
	if !s.cfg.Peerings.Invited(in.Secret, p.Domain) { // a guess costs no change and no line of the trail
		return directory.Refuse(directory.Forbidden, "%s has no such invitation from here", p.Domain.Name())
	}
	if err := s.cfg.Peerings.Redeem(c.Context(), in.Secret, p); err != nil {
		return err
	}
	s.peeringChanged(c, "redeemed", p.Domain.Name())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) peeringChanged(c *call, what, peer string) {
	s.log.Info("a peering was changed", "request_id", c.requestID, "caller", c.id.String(), "change", what, "peer", peer)
}

// Invite makes a token for another domain; a life of 0 is an hour.
func (c *Client) Invite(ctx context.Context, peer string, life time.Duration) (Invitation, *Reply, error) {
	var out Invitation
	r, err := c.ask(ctx, "/v1/operator/peers/invite", inviteRequest{peer, int64(life / time.Second)}, "token", &out)
	return out, r, err
}

// Accept makes the domain that a token is of a peer.
func (c *Client) Accept(ctx context.Context, token string) error {
	return c.order(ctx, "/v1/operator/peers/accept", acceptRequest{token})
}

// ChangePeering does something with a peering that there is.
func (c *Client) ChangePeering(ctx context.Context, peer string, verb PeerVerb) error {
	return c.order(ctx, "/v1/operator/peers/change", changeRequest{Domain: peer, Verb: verb})
}

// SetPeer puts settings in the place of those of a peering.
func (c *Client) SetPeer(ctx context.Context, peer string, to PeerSettings) error {
	return c.order(ctx, "/v1/operator/peers/change", changeRequest{peer, PeerSet, to})
}

// Evidence reads a file that Peers lists of a domain; the oldest where id is empty.
func (c *Client) Evidence(ctx context.Context, domain, id string) (*Reply, error) {
	q := url.Values{"domain": {domain}}
	if id != "" {
		q.Set("id", id)
	}
	return c.do(ctx, http.MethodGet, "/v1/operator/peers/evidence?"+q.Encode(), nil, nil)
}

// Redeem shows an invitation's secret to the domain that it is of, with what p
// says of the invited one.
func (c *Client) Redeem(ctx context.Context, secret string, p directory.Peering) error {
	return c.order(ctx, redeemPath, offer{peering{Domain: p.Domain.Name(), Bundle: p.Bundle, Addresses: p.Addresses, Gossip: p.Gossip, Endpoint: p.Endpoint}, secret})
}
