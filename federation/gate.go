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

// openPage verifies a page (rule G6): the checks in their order, each with its code. It
// changes no stored data, and its caller counts refusals. For a pushed message, route has
// checked the sender's rate and the size before.
func (rc *receiver) openPage(from replica.Sender, text string) (*replica.Origin, *replica.Page, error) {
	var page *signed.Page

	origin, kid, err := rc.passGate(from, signed.TypePage, text, protocol.MaxPage,
		func(payload []byte) (claim replica.Claim, err error) {
			page, err = rc.cfg.Dialect.ParsePage(payload)
			if errors.Is(err, signed.ErrUnsupported) {
				return replica.Claim{Issuer: page.Issuer, Aud: directory.Mesh, Epoch: page.Epoch}, err
			}

			if err != nil {
				return claim, err
			}

			if len(page.Digests) > protocol.MaxDigests {
				return claim, errTooLarge
			}

			return replica.Claim{Issuer: page.Issuer, Aud: page.Audience, Epoch: page.Epoch, IssuedAt: page.IssuedAt,
				Digests: len(page.Digests)}, nil
		})
	if err != nil {
		return origin, nil, err
	}

	return origin, &replica.Page{Page: page, Text: text, KeyID: kid, VerifiedAt: time.Now()}, nil
}

// openHead verifies a head by the same checks (rule G6).
func (rc *receiver) openHead(from replica.Sender, text string) (*replica.Origin, *signed.Head, error) {
	var head *signed.Head

	origin, _, err := rc.passGate(from, signed.TypeHead, text, gossip.MaxHead,
		func(payload []byte) (claim replica.Claim, err error) {
			head, err = rc.cfg.Dialect.ParseHead(payload)
			if errors.Is(err, signed.ErrUnsupported) {
				return replica.Claim{Issuer: head.Issuer, Aud: directory.Mesh, Epoch: head.Epoch}, err
			}

			if err != nil {
				return claim, err
			}

			return replica.Claim{Issuer: head.Issuer, Aud: directory.Mesh, Epoch: head.Epoch, IssuedAt: head.IssuedAt,
				Digests: 0}, nil
		})
	if err != nil {
		return origin, nil, err
	}

	return origin, head, nil
}

// passGate runs the checks that pages and heads share. With ErrUnsupported, parse returns the
// claim up to the epoch. The message is then refused as unsupported only after its
// signature was verified.
func (rc *receiver) passGate(from replica.Sender, typ, text string, limit int,
	parse func([]byte) (replica.Claim, error)) (*replica.Origin, string, error) {
	if len(text) > limit {
		return nil, "", &protocol.Refusal{Code: protocol.CodeFormat, Err: errTooLarge}
	}

	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return nil, "", &protocol.Refusal{Code: protocol.CodeFormat, Err: err}
	}

	if err := protocol.CheckHeader(parts.Header, typ); err != nil {
		return nil, "", &protocol.Refusal{Code: protocol.CodeHeader, Err: err}
	}

	claim, err := parse(parts.Payload)

	var unsupported error
	if errors.Is(err, signed.ErrUnsupported) {
		unsupported, err = err, nil
	}

	if err == nil && (claim.IssuedAt < 0 || claim.IssuedAt > protocol.MaxTime || claim.Epoch > protocol.MaxTime) {
		err = protocol.ErrTime
	}

	if err != nil {
		return nil, "", &protocol.Refusal{Code: protocol.CodeJSON, Err: err}
	}

	origin := rc.origins.Get(claim.Issuer)
	if origin == nil || !origin.Accepts() {
		return nil, "", &protocol.Refusal{Code: protocol.CodeOriginUnknown, Err: errOrigin}
	}

	// Streams to other domains are refused. The private stream is accepted only as an answer
	// to this node's own request.
	if origin.FeedOf(claim.Aud) == nil || from.Pushed && claim.Aud != directory.Mesh {
		return origin, "", &protocol.Refusal{Code: protocol.CodeOriginUnknown, Origin: claim.Issuer, Err: errOrigin}
	}

	_, kid, err := rc.cfg.Keys.Verify(claim.Issuer, typ, text)
	if err != nil {
		return origin, "", &protocol.Refusal{Code: keyCode(err), Origin: claim.Issuer, Err: err}
	}

	if origin.Distrusts(kid) {
		return origin, "", &protocol.Refusal{Code: protocol.CodeDistrusted, Origin: claim.Issuer, Err: errDistrusted}
	}

	if unsupported != nil {
		return origin, "", &protocol.Refusal{Code: protocol.CodeUnsupported, Origin: claim.Issuer, Err: unsupported}
	}

	if err := origin.Admit(claim); err != nil {
		return origin, "", err
	}

	return origin, kid, nil
}

// oldPage parses a page whose signature the newest key document can't verify. It returns nil
// if text is not a page of one of the origin's streams.
func (rc *receiver) oldPage(origin *replica.Origin, text string) *replica.Page {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return nil
	}

	page, err := rc.cfg.Dialect.ParsePage(parts.Payload)
	if err != nil || page.Issuer != origin.Domain || origin.FeedOf(page.Audience) == nil {
		return nil
	}

	return &replica.Page{Page: page, Text: text, KeyID: protocol.KeyIDOf(parts.Header)}
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
