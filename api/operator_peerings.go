package api

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// Peerings makes and ends peerings with other domains (federation.md, "Peering").
// Its errors are *directory.Error.
type Peerings interface {
	// Invite makes a token by which that domain, once and until it ends, becomes a
	// peer. An earlier one for it is good no longer.
	Invite(ctx context.Context, peer spiffeid.TrustDomain, life time.Duration) (wire.Invitation, error)
	// Accept shows the secret of another domain's token to that domain, and makes it
	// a peer. To repeat it is safe.
	Accept(ctx context.Context, token Token) error
	// Invited reports whether this node knows of an invitation with that secret.
	Invited(secret string, peer spiffeid.TrustDomain) bool
	// Redeem takes the word of whoever shows the secret of an invitation.
	Redeem(ctx context.Context, secret string, peer directory.Peering) error
	// Change does what an operator wants of a peering that there is.
	Change(ctx context.Context, peer spiffeid.TrustDomain, verb wire.PeerVerb) error
	// Set puts settings in the place of those of a peering.
	Set(ctx context.Context, peer spiffeid.TrustDomain, to PeerSettings) error
}

// PeerSettings are what of a peering one side says by itself: its rules, and where the
// peer is found. What is nil stays as it is.
type PeerSettings struct {
	Export    *directory.PeerRules
	Import    *directory.PeerRules
	Addresses []string // base URLs of its nodes
	Gossip    []string // host:port of their gossip listeners
	Endpoint  *directory.BundleEndpoint
}

// settingsOf returns settings as the wire has them. It checks nothing.
func settingsOf(in *wire.PeerSettings) PeerSettings {
	return PeerSettings{
		Export: rulesOf(in.Export), Import: rulesOf(in.Import), Addresses: in.Addresses, Gossip: in.Gossip,
		Endpoint: (*directory.BundleEndpoint)(in.BundleEndpoint),
	}
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
)

// String returns the token as one word.
func (t *Token) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // only a bundle that is no JSON; none is believed
	}
	return tokenMark + directory.B64.EncodeToString(b)
}

// ParseToken reads a token. Another domain made it, perhaps by a later release, so
// that members which are not known are ignored (FORM-004). What stands in it is for
// Peering to check.
func ParseToken(word string) (Token, error) {
	var t Token
	text, marked := strings.CutPrefix(word, tokenMark)
	b, err := directory.B64.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if !marked || err != nil || len(word) > MaxToken || t.Secret == "" {
		return Token{}, directory.Refuse(directory.BadRequest, "The token is not one of \"roster peer invite\", or not whole: it is one word that begins with %s", tokenMark).At("/token")
	}
	return t, nil
}

// Peering is what the token says of the domain that invites, as a pending peering
// of the domain own.
func (t *Token) Peering(own spiffeid.TrustDomain) (directory.Peering, error) {
	in := wire.Peering{
		Domain: t.Domain, State: string(directory.PeeringPending), Bundle: wire.RawJSON(t.Bundle), Addresses: t.Addresses, Gossip: t.Gossip,
		BundleEndpoint: wire.BundleEndpoint(t.Endpoint),
	}
	p, err := parsePeering(&in, own)
	if err == nil && t.Invited != own.Name() {
		err = directory.Refuse(directory.BadRequest, "The token invites %.100q, and this is %s: ask for one of your own.", t.Invited, own.Name()).At("/token")
	}
	return p, err
}

// checkChange says what is wrong with a change of a peering.
func checkChange(verb wire.PeerVerb, to *PeerSettings) error {
	switch verb {
	case wire.PeerRemove, wire.PeerRelease, wire.PeerExport, wire.PeerUnexport:
		if !to.isZero() {
			return directory.Refuse(directory.BadRequest, "rules, addresses and a bundle endpoint are for the verb set").At("/verb")
		}
		return nil
	case wire.PeerSet:
		if to.isZero() {
			return directory.Refuse(directory.BadRequest, "set takes export, import, addresses, gossip or bundle_endpoint").At("/verb")
		}
		return to.check()
	default:
		return directory.Refuse(directory.BadRequest, "verb is %.40q; it is remove, release, export, unexport or set", verb).At("/verb")
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
	var in wire.InviteRequest
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	td, err := peerNamed(in.Domain, s.cfg.Domain)
	if err != nil {
		return err
	}
	life := defaultInvitation
	if in.LifeSeconds != 0 {
		if in.LifeSeconds < 0 || in.LifeSeconds > int64(maxInvitation/time.Second) {
			return directory.Refuse(directory.BadRequest, "life is %d; an invitation holds for 1 to %d seconds", in.LifeSeconds, maxInvitation/time.Second).At("/life")
		}
		life = time.Duration(in.LifeSeconds) * time.Second
	}
	made, err := s.cfg.Peerings.Invite(c.Context(), td, life)
	if err != nil {
		return err
	}
	s.peeringChanged(c, "invited", in.Domain)
	return sendStatus(w, c, made)
}

func (s *Server) accept(w http.ResponseWriter, c *call) error {
	var in wire.AcceptRequest
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
	var in wire.PeerChange
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	td, err := peerNamed(in.Domain, s.cfg.Domain)
	if err != nil {
		return err
	}
	settings := settingsOf(&in.PeerSettings)
	if err := checkChange(in.Verb, &settings); err != nil {
		return err
	}
	if in.Verb == wire.PeerSet {
		err = s.cfg.Peerings.Set(c.Context(), td, settings)
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
	var in wire.RedeemRequest
	if err := readForeignRequest(w, c, &in); err != nil {
		return err
	}
	in.State, in.Mesh = "", false // for this side to say
	p, err := parsePeering(&in.Peering, s.cfg.Domain)
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
