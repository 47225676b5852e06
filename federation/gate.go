package federation

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// A verifiedMessage is a page or a head that passed the gate, and the origin that issued it.
type verifiedMessage struct {
	origin *replica.Origin
	page   *replica.Page // nil for a head
	head   *signed.Head  // nil for a page
}

// verify verifies a page or a head (rule G6): the checks in their order, each with its code. It
// changes no stored data, and its caller counts refusals. The result names the origin of a refused
// message too, once that is known. For a pushed message, route has checked the sender's rate and the
// size before.
func (rc *receiver) verify(from replica.Sender, typ, text string) (verified verifiedMessage, err error) {
	limit := protocol.MaxPage
	if typ == signed.TypeHead {
		limit = gossip.MaxHead
	}

	if len(text) > limit {
		return verified, &protocol.Refusal{Code: protocol.CodeFormat, Err: errTooLarge}
	}

	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return verified, &protocol.Refusal{Code: protocol.CodeFormat, Err: err}
	}

	if err := protocol.CheckHeader(parts.Header, typ); err != nil {
		return verified, &protocol.Refusal{Code: protocol.CodeHeader, Err: err}
	}

	claim, err := verified.parse(rc.cfg.Dialect, typ, parts.Payload)

	// Of an unsupported format the members up to the epoch are known. The message is refused as
	// unsupported only after its signature was verified.
	unsupported := err
	if errors.Is(err, signed.ErrUnsupported) {
		err = nil
	}

	if err == nil && (claim.IssuedAt < 0 || claim.IssuedAt > protocol.MaxTime || claim.Epoch > protocol.MaxTime) {
		err = protocol.ErrTime
	}

	if err != nil {
		return verified, &protocol.Refusal{Code: protocol.CodeJSON, Err: err}
	}

	origin := rc.origins.Get(claim.Issuer)
	if origin == nil || !origin.Accepts() {
		return verified, &protocol.Refusal{Code: protocol.CodeOriginUnknown, Err: errOrigin}
	}

	verified.origin = origin

	// Streams to other domains are refused. The private stream is accepted only as an answer
	// to this node's own request.
	if origin.FeedOf(claim.Aud) == nil || from.Pushed && claim.Aud != directory.Mesh {
		return verified, &protocol.Refusal{Code: protocol.CodeOriginUnknown, Origin: claim.Issuer, Err: errOrigin}
	}

	_, kid, err := rc.cfg.Keys.Verify(claim.Issuer, typ, text)

	switch {
	case err != nil:
		return verified, &protocol.Refusal{Code: keyCode(err), Origin: claim.Issuer, Err: err}
	case origin.Distrusts(kid):
		return verified, &protocol.Refusal{Code: protocol.CodeDistrusted, Origin: claim.Issuer, Err: errDistrusted}
	case unsupported != nil:
		return verified, &protocol.Refusal{Code: protocol.CodeUnsupported, Origin: claim.Issuer, Err: unsupported}
	}

	if page := verified.page; page != nil {
		page.Text, page.KeyID, page.VerifiedAt = text, kid, time.Now()
	}

	return verified, origin.Admit(claim)
}

// parse reads a payload, and returns the members that the gate checks: with ErrUnsupported those up
// to the epoch.
func (v *verifiedMessage) parse(dialect signed.Dialect, typ string, payload []byte) (claim replica.Claim, err error) {
	if typ == signed.TypeHead {
		if v.head, err = dialect.ParseHead(payload); v.head == nil {
			return claim, err
		}

		return replica.Claim{Issuer: v.head.Issuer, Aud: directory.Mesh, Epoch: v.head.Epoch,
			IssuedAt: v.head.IssuedAt}, err
	}

	page, err := dialect.ParsePage(payload)
	if page == nil {
		return claim, err
	}

	v.page = &replica.Page{Page: page}
	claim = replica.Claim{Issuer: page.Issuer, Aud: page.Audience, Epoch: page.Epoch, IssuedAt: page.IssuedAt,
		Digests: len(page.Digests)}

	switch {
	case err != nil:
		// The audience of an unsupported page isn't known. The page passes as one of the mesh stream, to be
		// refused as unsupported.
		claim.Aud = directory.Mesh
	case len(page.Digests) > protocol.MaxDigests:
		err = errTooLarge
	}

	return claim, err
}

func keyCode(err error) protocol.Code {
	switch {
	case errors.Is(err, signed.ErrKeyUnknown):
		return protocol.CodeKeyUnknown
	case errors.Is(err, signed.ErrKeyRevoked):
		return protocol.CodeKeyRevoked
	case errors.Is(err, signed.ErrHeader):
		return protocol.CodeHeader
	}

	return protocol.CodeSignature
}

var (
	errTooLarge   = errors.New("message too large")
	errDistrusted = errors.New("other nodes of the domain contradict the node that signed it")
	errOrigin     = errors.New("origin is not an active peer, or its stream is not followed here")
)
