package operator

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// Peers makes and ends peerings with other domains. Its errors are *directory.Error.
type Peers interface {
	// Invite makes a token by which that domain becomes a peer, once and until it ends. An
	// earlier token for it becomes invalid. secret is the SHA-256 of the operator's secret, which
	// the token then lacks; if it is zero, the node draws one.
	Invite(ctx context.Context, peer spiffeid.TrustDomain, life time.Duration, secret directory.Hash) (
		wire.Invitation, error)
	// Accept shows the secret of another domain's token to that domain, and makes it a
	// peer, if its bundle has the expected fingerprints or none are expected. It is safe to
	// repeat: a domain that is a peer by this token already stays as it is.
	Accept(ctx context.Context, token Token, expected []string) (wire.Accepted, error)
	// Invited reports whether this node knows an invitation with that secret.
	Invited(secret string, peer spiffeid.TrustDomain) bool
	// Redeem makes a peer of the domain that shows the secret of an invitation, and returns
	// this domain as that one needs it. used is whether that domain has shown the secret before.
	Redeem(ctx context.Context, secret string, peer directory.Peering) (own directory.Peering, used bool, err error)
	// Change does an operator's verb to an existing peering.
	Change(ctx context.Context, peer spiffeid.TrustDomain, verb wire.PeerVerb) error
	// Set replaces settings of a peering.
	Set(ctx context.Context, peer spiffeid.TrustDomain, to PeerSettings) error
}

// PeerSettings are the parts of a peering that one side decides alone: its rules, and
// where the peer is reached. A nil field stays as it is.
type PeerSettings struct {
	Export    *directory.PeerRules
	Import    *directory.PeerRules
	Addresses []string // base URLs of its nodes
	Gossip    []string // host:port of their gossip listeners
	Endpoint  *directory.BundleEndpoint
	Bundle    []byte // a JWKS; without Endpoint it ends the refresh
}

// Bounds of an invitation's lifetime.
const (
	defaultInvitation = time.Hour
	maxInvitation     = 7 * 24 * time.Hour
)

// A PeeringStore keeps the domain's peerings.
type PeeringStore interface {
	// SetPeering makes a peering or changes it as a whole, for the whole domain.
	SetPeering(context.Context, directory.Peering) error
}

// Peerings answers the routes that change peerings.
type Peerings struct {
	Domain spiffeid.TrustDomain
	Peers  Peers
	Store  PeeringStore
	Logger *slog.Logger
}

// Put answers POST /v1/operator/peers: it makes or changes a peering as a whole.
func (h *Peerings) Put(w http.ResponseWriter, call *request.Call) error {
	var in wire.Peering
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	peering, err := ParsePeering(&in, h.Domain)
	if err != nil {
		return err
	}

	if err := h.Store.SetPeering(call.Context(), peering); err != nil {
		return err
	}

	h.Logger.Info("peering set", "request_id", call.RequestID, "caller", call.Identity.String(),
		"peer", peering.Domain.Name(), "state", string(peering.State))

	return response.NoContent(w)
}

// Invite answers POST /v1/operator/peers/invite.
func (h *Peerings) Invite(w http.ResponseWriter, call *request.Call) error {
	var in wire.InviteRequest
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	peer, err := parsePeer(in.Domain, h.Domain)
	if err != nil {
		return err
	}

	life, err := invitationLife(in.LifeSeconds)
	if err != nil {
		return err
	}

	secret, err := directory.ParseHash(in.SecretHash)
	if err != nil || secret.IsZero() {
		return directory.Refuse(directory.BadRequest,
			"secret_hash must be the SHA-256 of a secret in base64url").At("/secret_hash")
	}

	invitation, err := h.Peers.Invite(call.Context(), peer, life, secret)
	if err != nil {
		return err
	}

	h.logChange(call, "invited", in.Domain)

	return response.Status(w, call, invitation)
}

// invitationLife returns how long an invitation holds; by default if seconds is 0.
func invitationLife(seconds int64) (time.Duration, error) {
	switch {
	case seconds == 0:
		return defaultInvitation, nil
	case seconds < 0 || seconds > int64(maxInvitation/time.Second):
		return 0, directory.Refuse(directory.BadRequest,
			"life must be 1 to %d seconds, got %d", maxInvitation/time.Second, seconds).At("/life")
	}

	return time.Duration(seconds) * time.Second, nil
}

// Accept answers POST /v1/operator/peers/accept.
func (h *Peerings) Accept(w http.ResponseWriter, call *request.Call) error {
	var in wire.AcceptRequest
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	token, err := ParseToken(in.Token)
	if err != nil {
		return err
	}

	accepted, err := h.Peers.Accept(call.Context(), token, in.Fingerprints)
	if err != nil {
		return err
	}

	if !accepted.Already {
		h.logChange(call, "accepted", token.Domain)
	}

	return response.Status(w, call, accepted)
}

// Change answers POST /v1/operator/peers/change.
func (h *Peerings) Change(w http.ResponseWriter, call *request.Call) error {
	var in wire.PeerChange
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	peer, err := parsePeer(in.Domain, h.Domain)
	if err != nil {
		return err
	}

	settings := parseSettings(&in.PeerSettings)
	if err := checkChange(in.Verb, &settings); err != nil {
		return err
	}

	if in.Verb == wire.PeerSet {
		err = h.Peers.Set(call.Context(), peer, settings)
	} else {
		err = h.Peers.Change(call.Context(), peer, in.Verb)
	}

	if err != nil {
		return err
	}

	h.logChange(call, string(in.Verb), in.Domain)

	return response.NoContent(w)
}

// Redeem answers POST /v1/peerings for the domain that an invitation is for. That domain
// has no identity here yet: the invitation's secret authenticates it.
func (h *Peerings) Redeem(w http.ResponseWriter, call *request.Call) error {
	var in wire.RedeemRequest
	if err := request.ReadForeignObject(w, call, &in); err != nil {
		return err
	}

	// This side decides about state and exports.
	in.State = ""
	in.Mesh = false

	peering, err := ParsePeering(&in.Peering, h.Domain)
	if err != nil {
		return err
	}

	// A wrong secret costs no change and no line of the audit log.
	if !h.Peers.Invited(in.Secret, peering.Domain) {
		return directory.Refuse(directory.Forbidden, "this domain has no invitation for %s with that secret",
			peering.Domain.Name())
	}

	own, used, err := h.Peers.Redeem(call.Context(), in.Secret, peering)
	if err != nil {
		return err
	}

	h.logChange(call, "redeemed", peering.Domain.Name())

	return response.Status(w, call, wire.Redemption{Peering: WirePeering(own), Used: used})
}

func (h *Peerings) logChange(call *request.Call, change, peer string) {
	attrs := []any{"request_id", call.RequestID, "change", change, "peer", peer}
	if !call.Anonymous() {
		attrs = append(attrs, "caller", call.Identity.String())
	}

	h.Logger.Info("peering changed", attrs...)
}

// parseSettings returns settings from the wire. It checks nothing.
func parseSettings(in *wire.PeerSettings) PeerSettings {
	return PeerSettings{
		Export:    parseRules(in.Export),
		Import:    parseRules(in.Import),
		Addresses: in.Addresses,
		Gossip:    in.Gossip,
		Endpoint:  (*directory.BundleEndpoint)(in.BundleEndpoint),
		Bundle:    in.Bundle,
	}
}

func (s *PeerSettings) isZero() bool {
	return s.Export == nil && s.Import == nil && s.Addresses == nil && s.Gossip == nil && s.Endpoint == nil &&
		s.Bundle == nil
}

func (s *PeerSettings) check() error {
	if s.Export != nil {
		if err := s.Export.CheckExport(); err != nil {
			return err
		}
	}

	if s.Import != nil {
		if err := s.Import.CheckImport(); err != nil {
			return err
		}
	}

	if s.Addresses != nil {
		if err := checkAddresses(s.Addresses); err != nil {
			return err
		}
	}

	for _, address := range s.Gossip {
		host, port, err := net.SplitHostPort(address)
		if _, notPort := strconv.ParseUint(port, 10, 16); err != nil || host == "" || notPort != nil {
			return directory.Refuse(directory.BadRequest,
				"a gossip address must be HOST:PORT, got %.200q", address).At("/gossip")
		}
	}

	if s.Endpoint != nil {
		if err := s.Endpoint.Check(); err != nil {
			return directory.Refuse(directory.BadRequest, "bundle_endpoint: %w", err).At("/bundle_endpoint")
		}
	}

	return nil
}

// checkChange refuses an unknown verb, and settings that don't belong to it.
func checkChange(verb wire.PeerVerb, to *PeerSettings) error {
	switch verb {
	case wire.PeerRemove, wire.PeerRelease, wire.PeerExport, wire.PeerUnexport:
		if !to.isZero() {
			return directory.Refuse(directory.BadRequest,
				"export, import, addresses, gossip, bundle_endpoint and bundle belong to the verb set").At("/verb")
		}

		return nil
	case wire.PeerSet:
		if to.isZero() {
			return directory.Refuse(directory.BadRequest,
				"the verb set needs export, import, addresses, gossip, bundle_endpoint or bundle").At("/verb")
		}

		return to.check()
	default:
		return directory.Refuse(directory.BadRequest,
			"verb must be remove, release, export, unexport or set, got %.40q", verb).At("/verb")
	}
}
