package federation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// future is how far ahead of a reader's time a message may have been issued.
const future = 60 * time.Second

// maxTime bounds the seconds that a message may name: the end of the year 9999. What
// comes later has no RFC 3339 form, by which it is shown.
const maxTime = 253402300799

// What one peer may make this node look at, by gossip, and what one origin may
// announce (rule G6). Pulls are paced by the puller and don't count as sent.
const (
	senderRate   = 200 // messages a second
	senderBurst  = 1000
	originRate   = 20_000 // digests a second
	originBurst  = 200_000
	refusalsEach = time.Second
)

var (
	errTooLarge   = errors.New("it is too large")
	errSender     = errors.New("its sender sends too much")
	errOrigin     = errors.New("its origin is no active peer, or the stream is not one that is followed")
	errQuota      = errors.New("its origin announces more than it may")
	errEpoch      = errors.New("its epoch is over")
	errFuture     = errors.New("it was issued in the future; is a clock wrong?")
	errTime       = errors.New("it names a time that is none")
	errUnlisted   = errors.New("the origin lets this domain have nothing")
	errPeeringEnd = errors.New("the peering has ended")
)

// A sender is who handed a message over.
type sender struct {
	domain spiffeid.TrustDomain
	pushed bool // without being asked
	again  bool // it was put off once (putAside)
}

// A claim is what page and head have in common.
type claim struct {
	issuer   spiffeid.TrustDomain
	aud      directory.Audience
	epoch    uint64
	issuedAt int64
	digests  int
}

// A verifiedPage is one that passed the gate; accept has the last word (G3).
type verifiedPage struct {
	*signed.Page
	text string
	kid  string
	at   time.Time
}

// openPage is the gate (rule G6): the checks in their order, one code each, and
// nothing changed. Whoever calls it counts what it refuses. What is pushed was paced
// and found to be no larger than gossip may be before (route).
func (g *gate) openPage(from sender, text string) (*origin, *verifiedPage, error) {
	var page *signed.Page
	o, kid, err := g.verify(from, signed.TypePage, text, protocol.MaxPage, func(payload []byte) (c claim, err error) {
		page, err = g.cfg.Dialect.ParsePage(payload)
		if errors.Is(err, signed.ErrUnsupported) {
			return claim{issuer: page.Issuer, aud: directory.Mesh, epoch: page.Epoch}, err
		}
		if err != nil {
			return c, err
		}
		if len(page.Digests) > protocol.MaxDigests {
			return c, errTooLarge
		}
		return claim{page.Issuer, page.Audience, page.Epoch, page.IssuedAt, len(page.Digests)}, nil
	})
	if err != nil {
		return o, nil, err
	}
	return o, &verifiedPage{page, text, kid, time.Now()}, nil
}

// openHead is the same gate for heads.
func (g *gate) openHead(from sender, text string) (*origin, *signed.Head, error) {
	var head *signed.Head
	o, _, err := g.verify(from, signed.TypeHead, text, gossip.MaxHead, func(payload []byte) (c claim, err error) {
		head, err = g.cfg.Dialect.ParseHead(payload)
		if errors.Is(err, signed.ErrUnsupported) {
			return claim{issuer: head.Issuer, aud: directory.Mesh, epoch: head.Epoch}, err
		}
		if err != nil {
			return c, err
		}
		return claim{head.Issuer, directory.Mesh, head.Epoch, head.IssuedAt, 0}, nil
	})
	if err != nil {
		return o, nil, err
	}
	return o, head, nil
}

// verify is what the gate checks of pages and heads alike. What parse returns with an
// error that is ErrUnsupported is what the message says up to its epoch: that it can't
// be read is found once its origin is known to have signed it.
func (g *gate) verify(from sender, typ, text string, limit int, parse func([]byte) (claim, error)) (*origin, string, error) {
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
	c, err := parse(parts.Payload)
	var unsupported error
	if errors.Is(err, signed.ErrUnsupported) {
		unsupported, err = err, nil
	}
	if err == nil && (c.issuedAt < 0 || c.issuedAt > maxTime || c.epoch > maxTime) {
		err = errTime
	}
	if err != nil {
		return nil, "", &protocol.Refusal{Code: protocol.CodeJSON, Err: err}
	}
	o := g.origins.get(c.issuer)
	if o == nil || !o.accepts() {
		return nil, "", &protocol.Refusal{Code: protocol.CodeOriginUnknown, Err: errOrigin}
	}
	// What is for another is not looked at, and what is for this domain alone comes
	// by its own asking.
	if o.streams.pair.feedOf(c.aud) == nil || from.pushed && c.aud != directory.Mesh {
		return o, "", &protocol.Refusal{Code: protocol.CodeOriginUnknown, Origin: c.issuer, Err: errOrigin}
	}
	_, kid, err := g.cfg.Keys.Verify(c.issuer, typ, text)
	if err != nil {
		return o, "", &protocol.Refusal{Code: keyCode(err), Origin: c.issuer, Err: err}
	}
	if unsupported != nil {
		return o, "", &protocol.Refusal{Code: protocol.CodeUnsupported, Origin: c.issuer, Err: unsupported}
	}
	if err := o.admit(c); err != nil {
		return o, "", err
	}
	return o, kid, nil
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

// admit is the rest of the gate, for what the origin did sign. What is too far
// ahead is judged by a time that the origin's own messages don't advance: a key
// that was stolen for minutes could else push the clock on page by page, and
// make all that the origin registered look dead for as long.
func (o *origin) admit(c claim) error {
	now := o.base.Now()
	cost := float64(c.digests)
	switch {
	case cost > 0 && o.announced.TokensAt(time.Now()) < cost:
		return &protocol.Refusal{Code: protocol.CodeQuota, Origin: c.issuer, Err: errQuota}
	case c.epoch < o.streams.newestEpoch(c.aud):
		return &protocol.Refusal{Code: protocol.CodeEpochOld, Origin: c.issuer, Err: errEpoch}
	case c.issuedAt > now.Add(future).Unix(), c.epoch > uint64(now.Add(future).Unix()):
		return &protocol.Refusal{Code: protocol.CodeFuture, Origin: c.issuer, Err: errFuture}
	}
	// The origin's own word on the time counts from here on (rule T4).
	o.streams.shown.index.Clock.Advance(time.Unix(c.issuedAt, 0))
	return nil
}

// refused counts a refusal, at who brought the message and at the origin that it names
// where that is known, and writes it down; each code once a second at most for each
// sender, so that a flood of messages is no flood of lines.
func (l *refusalLog) refused(from sender, text string, err error) error {
	var r *protocol.Refusal
	if !errors.As(err, &r) {
		return err
	}
	l.byOrigin.add(r.Origin, r.Code)
	l.bySender.add(from.domain, r.Code)
	if l.lines.allow(r.Code, from.domain) {
		l.log.LogAttrs(context.Background(), slog.LevelWarn, "refused a message", slog.String("code", string(r.Code)),
			slog.String("origin", r.Origin.Name()), slog.String("from", from.domain.Name()), slog.Any("error", r.Err),
			slog.Int("bytes", len(text)), slog.String("sha256", fmt.Sprintf("%x", directory.HashOf([]byte(text)))))
	}
	return r
}

// A gate judges messages of other domains (rule G6). It changes nothing but the clock of
// an origin.
type gate struct {
	cfg     *Config
	origins *originSet
}
