package operator

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// Paths of operators' changes.
const (
	PathPolicy       = "/v1/operator/policy"
	PathPeers        = "/v1/operator/peers"
	PathPeerInvite   = "/v1/operator/peers/invite"
	PathPeerAccept   = "/v1/operator/peers/accept"
	PathPeerChange   = "/v1/operator/peers/change"
	PathKeysRotate   = "/v1/operator/keys/rotate"
	PathKeysRevoke   = "/v1/operator/keys/revoke"
	PathHistoryErase = "/v1/operator/history/erase"
	PathRaftTransfer = "/v1/operator/raft/transfer"
	PathRaftRemove   = "/v1/operator/raft/remove"
	PathRaftAdmit    = "/v1/operator/raft/admit"
	PathRaftLeave    = "/v1/operator/raft/leave"
	PathRaftClock    = "/v1/operator/raft/clock"
	PathSnapshot     = "/v1/operator/snapshot"
	PathOwnedEnd     = wire.OwnedPath + "/end"
)

// errOtherCommand means that a command is not the one that its operator's request asks for.
func errOtherCommand(r *directory.OperatorRequest) error {
	return directory.Refuse(directory.Forbidden,
		"the command is not the one for which %s %.200q asks; nothing was changed", r.Method, r.Target)
}

// CheckOrder returns the action that an operator's request orders, about which policy is asked, and refuses a change
// that the request doesn't order. own is the domain.
func CheckOrder(own spiffeid.TrustDomain, change directory.OperatorChange, r *directory.OperatorRequest) (
	action string, err error) {
	target, err := url.Parse(r.Target)
	if err != nil {
		return "", errOtherCommand(r)
	}

	matches := false

	switch route := r.Method + " " + target.Path; route {
	case http.MethodPut + " " + PathPolicy:
		action, matches = "policy.write", ordersPolicy(change, r)
	case http.MethodPost + " " + PathPeers, http.MethodPost + " " + PathPeerInvite,
		http.MethodPost + " " + PathPeerAccept, http.MethodPost + " " + PathPeerChange:
		action, matches = "peer.write", change.Peering != nil && ordersPeering(own, target.Path, change.Peering, r)
	case http.MethodPost + " " + PathKeysRotate:
		// The node whose key it is: the one that was asked.
		action = "keys.write"
		matches = change.Action == directory.ActionRotateKey && change.Target == r.From.String()
	case http.MethodPost + " " + PathKeysRevoke:
		action = "keys.write"

		var in wire.RevokeRequest
		matches = change.Action == directory.ActionRevokeKey && decode(r, &in) && in.Key == change.Target
	case http.MethodPost + " " + PathHistoryErase:
		action = "history.erase"

		var in wire.EraseRequest
		matches = change.Action == directory.ActionErase && decode(r, &in) && in.RID == change.Target
	case http.MethodPost + " " + PathRaftTransfer, http.MethodPost + " " + PathRaftRemove,
		http.MethodPost + " " + PathRaftAdmit, http.MethodPost + " " + PathRaftLeave:
		action, matches = "raft.write", ordersMembers(target.Path, change, r)
	case http.MethodPost + " " + PathRaftClock:
		action, matches = "raft.write", ordersClock(change, r)
	case http.MethodPost + " " + PathSnapshot:
		action, matches = "snapshot.write", ordersRestore(change)
	case http.MethodPost + " " + PathOwnedEnd:
		action = "registration.write"

		var in wire.NewOwner
		matches = change.Action == directory.ActionEndOwned && decode(r, &in) && in.Owner == change.Target
	default:
		action, matches = "registration.transfer", ordersTransfer(target.Path, change, r)
	}

	if !matches {
		return action, errOtherCommand(r)
	}

	return action, nil
}

func decode(r *directory.OperatorRequest, into any) bool {
	return request.ParseObject(r.Body, into) == nil
}

func ordersPolicy(change directory.OperatorChange, r *directory.OperatorRequest) bool {
	var in wire.PolicyChange
	if change.Policy == nil || json.Unmarshal(r.Body, &in) != nil || in.Policy == nil ||
		*in.Policy != string(change.Policy.Text) {
		return false
	}

	// A condition may stand in If-Match instead, which is not in the proof: it only restricts.
	return in.Version == nil ||
		change.Policy.Replaces != nil && slices.Equal(*change.Policy.Replaces, []uint64{*in.Version})
}

func ordersPeering(own spiffeid.TrustDomain, path string, change *directory.PeeringChange,
	r *directory.OperatorRequest) bool {
	was, next := directory.Peering{Domain: change.Next.Domain}, change.Next
	if change.Was != nil {
		was = *change.Was
	}

	switch path {
	case PathPeers:
		var in wire.Peering
		if !decode(r, &in) {
			return false
		}

		peering, err := ParsePeering(&in, own)

		return err == nil && next.Equal(peering.Replacing(was))
	case PathPeerInvite:
		return ordersInvitation(next, r)
	case PathPeerAccept:
		return ordersAcceptance(own, was, next, r)
	}

	var in wire.PeerChange
	if !decode(r, &in) || in.Domain != next.Domain.Name() {
		return false
	}

	// The change that the request asks for is made again, and must lead to the proposed peering.
	changed := was

	switch in.Verb {
	case wire.PeerSet:
		settings := parseSettings(&in.PeerSettings)
		settings.Apply(&changed)
	case wire.PeerRemove:
		changed = was.Removed()
	case wire.PeerRelease:
		changed.State = directory.PeeringActive
	case wire.PeerExport, wire.PeerUnexport:
		changed.Mesh = in.Verb == wire.PeerExport
	}

	return changed.Equal(next)
}

// ordersInvitation compares a peering with the invitation that the operator asks for. The operator
// chooses the secret, and how long it may be shown.
func ordersInvitation(next directory.Peering, r *directory.OperatorRequest) bool {
	var in wire.InviteRequest
	if !decode(r, &in) || in.Domain != next.Domain.Name() {
		return false
	}

	// The inviting node sets the end by its clock, and no later than the proof allows.
	life, err := invitationLife(in.LifeSeconds)
	if err != nil || r.ProofUntil != 0 && next.Until > r.ProofUntil+int64(life/time.Second) {
		return false
	}

	secret, err := directory.ParseHash(in.SecretHash)

	return err == nil && !secret.IsZero() && secret == next.Secret && next.Equal(directory.Peering{
		Domain: next.Domain, State: directory.PeeringPending, Secret: next.Secret, Until: next.Until,
	})
}

// ordersAcceptance compares a peering with the token that the operator has accepted. Apart from
// the domain, the token pins the bundle; the state follows from the answer of the other domain.
func ordersAcceptance(own spiffeid.TrustDomain, was, next directory.Peering, r *directory.OperatorRequest) bool {
	var in wire.AcceptRequest
	if !decode(r, &in) {
		return false
	}

	token, err := ParseToken(in.Token)
	if err != nil || sha256.Sum256(next.Bundle) != token.BundleHash {
		return false
	}

	peering, err := token.Peering(own, next.Bundle)
	peering.State = next.State

	return err == nil && next.State != directory.PeeringFrozen && was.Domain == peering.Domain && next.Equal(peering)
}

func ordersMembers(path string, change directory.OperatorChange, r *directory.OperatorRequest) bool {
	if path == PathRaftLeave {
		return change.Action == directory.ActionLeave && change.Target == r.From.String()
	}

	var in wire.MemberRequest

	// A transfer without a body is to any member, and its target is empty.
	if len(bytes.TrimSpace(r.Body)) > 0 && !decode(r, &in) || in.ID != change.Target {
		return false
	}

	switch path {
	case PathRaftTransfer:
		return change.Action == directory.ActionTransferLead
	case PathRaftRemove:
		return change.Action == directory.ActionRemoveMember
	}

	admission := change.Admission

	switch {
	case admission == nil || admission.Standing != in.Standing:
		return false
	case in.Withdraw:
		return change.Action == directory.ActionWithdraw
	case in.Standing:
		return change.Action == directory.ActionAdmit && admission.Max == in.Max
	}

	return change.Action == directory.ActionAdmit
}

// ordersClock reports whether a change confirms the step of the leader's clock for which the operator asks.
// The leader's step is exact; the operator may have read it at another member.
func ordersClock(change directory.OperatorChange, r *directory.OperatorRequest) bool {
	var in wire.ClockStep
	if change.Action != directory.ActionConfirmClock || !decode(r, &in) {
		return false
	}

	said, err := clockStep(in)
	step, failed := directory.ParseClockStep(change.Target)

	return err == nil && failed == nil && (step-said).Abs() <= directory.MaxStep
}

// ordersRestore reports whether a change is a restore and nothing else.
func ordersRestore(change directory.OperatorChange) bool {
	return change.Action == directory.ActionRestore && change.Target == "" && change.Policy == nil &&
		change.Peering == nil && change.Admission == nil
}

// ordersTransfer compares the transfer of a registration with its request, whose path has the rid
// of the registration or its name.
func ordersTransfer(path string, change directory.OperatorChange, r *directory.OperatorRequest) bool {
	var in wire.Transfer

	path, under := strings.CutPrefix(path, "/ad/r/")
	name, transfers := strings.CutSuffix(path, "/transfer")

	if rid, err := directory.ParseRID(name); err == nil && rid.String() != change.Target ||
		err != nil && norm.NFC.String(name) != change.Agent {
		return false
	}

	return r.Method == http.MethodPost && under && transfers &&
		change.Action == directory.ActionTransfer && decode(r, &in) && in.Force && in.Owner == change.Owner.String()
}

// Apply changes a peering by settings.
func (s *PeerSettings) Apply(peering *directory.Peering) {
	if s.Export != nil {
		peering.Export = *s.Export
	}

	if s.Import != nil {
		peering.Import = *s.Import
	}

	if s.Addresses != nil {
		peering.Endpoint = movedEndpoint(peering, s.Addresses)
		peering.Addresses = s.Addresses
	}

	if s.Gossip != nil {
		peering.Gossip = s.Gossip
	}

	if s.Bundle != nil {
		peering.Bundle = s.Bundle

		// The former endpoint could replace a bundle that was set by hand.
		peering.Endpoint = directory.BundleEndpoint{}
	}

	if s.Endpoint != nil {
		peering.Endpoint = *s.Endpoint
	}
}

// movedEndpoint returns a peer's bundle endpoint when the peer's nodes get other addresses: if any
// node of the peer may be the endpoint, and it is one that is gone, it moves to the first address.
func movedEndpoint(peering *directory.Peering, addresses []string) directory.BundleEndpoint {
	endpoint := peering.Endpoint
	if endpoint.Profile != directory.ProfileSPIFFE || !endpoint.ID.IsZero() || len(addresses) == 0 {
		return endpoint
	}

	for _, old := range peering.Addresses {
		if path, is := strings.CutPrefix(endpoint.URL, old+"/"); is && !slices.Contains(addresses, old) {
			endpoint.URL = addresses[0] + "/" + path
		}
	}

	return endpoint
}

// OrdersFarewell reports whether a request of another domain's operator ends the peering with own.
func OrdersFarewell(own spiffeid.TrustDomain, r *directory.OperatorRequest) bool {
	target, err := url.Parse(r.Target)

	var in wire.PeerChange

	return err == nil && r.Method == http.MethodPost && target.Path == PathPeerChange && decode(r, &in) &&
		in.Verb == wire.PeerRemove && in.Domain == own.Name()
}
