package federation

import (
	"context"
	"errors"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

// A receiver takes messages of other domains: pages, heads, key documents and records.
type receiver struct {
	cfg      *Config
	store    *store.Store
	client   *protocol.Client
	origins  *replica.Set
	peers    peers
	refusals *replica.RefusalLog
	records  *recordgate.Gate
	evidence *prosecutor
}

// take brings a page from the wire to the index. Each step is one function: verify it (rule G6)
// and compare it with accepted pages, fetch its records, open them, accept it (rule G3).
func (rc *receiver) take(ctx context.Context, from replica.Sender, giver protocol.Node,
	text string) (*replica.Page, protocol.Code, error) {
	received := rc.receive(ctx, from, giver, text, replica.Ahead{})
	if rc.prefetch(ctx, &received); received.err != nil {
		return nil, "", received.err
	}

	records := rc.records.Open(ctx, received.origin.Domain, received.Page.Page, received.records)
	code, err := received.origin.AcceptPage(ctx, received.Page, records)

	return received.Page, code, err
}

// A receivedPage is a page that passed the gate, with the records that were fetched for
// it, or the reason why it didn't pass.
type receivedPage struct {
	*replica.Page
	origin  *replica.Origin
	from    replica.Sender
	giver   protocol.Node
	ahead   replica.Ahead // the position of the stream after the pages before this one
	records map[protocol.RecordName]recordgate.Fetched
	span    span.Span // of the page; the zero Span if the caller of receive ends it
	err     error
}

// receive verifies a page, and compares it with those that were accepted: one that convicts its
// origin is refused (rule E1). It changes no stored data. ahead is the position of the stream after
// the pages before this one.
func (rc *receiver) receive(ctx context.Context, from replica.Sender, giver protocol.Node, text string,
	ahead replica.Ahead) (received receivedPage) {
	err := rc.cfg.Panics.Run(contain.Page, func() (err error) {
		inside, step := span.Start(ctx, span.Verify)
		defer func() { step.Done(err) }()

		verified, err := rc.verifyWithKeys(inside, from, giver, signed.TypePage, text)
		if err != nil {
			return err
		}

		origin, page := verified.origin, verified.page
		received = receivedPage{Page: page, origin: origin, from: from, giver: giver, ahead: ahead}

		other, err := origin.Contradicted(page)
		if err == nil && other != "" &&
			rc.evidence.accuse(origin, []string{other, page.Text}, origin.Keys.Issued()) {
			err = &protocol.Refusal{Code: protocol.CodeEquivocation, Origin: origin.Domain, Err: errOffence}
		}

		return err
	})
	if err != nil {
		return receivedPage{err: rc.refuse(from, text, err)}
	}

	return received
}

var errOffence = errors.New("origin contradicted itself and is frozen")

// errLate means that a message is to be judged again after a request for the key document.
var errLate = errors.New("signed by a key that is not known yet")

// verifyWithKeys verifies a message. If its key is unknown, it requests the newest key document
// and verifies the message again. It returns errLate for a pushed message whose key is still
// unknown: the request may not be due yet, or the node asked may not have the newest document
// itself. Thus a key rotation seldom causes refusals. A message is postponed only once, so
// that forged messages don't wait long.
func (rc *receiver) verifyWithKeys(ctx context.Context, from replica.Sender, giver protocol.Node,
	typ, text string) (verifiedMessage, error) {
	verified, err := rc.verify(from, typ, text)
	if protocol.CodeOf(err) != protocol.CodeKeyUnknown {
		return verified, err
	}

	if origin := verified.origin; origin.Contacts.MayRefresh(from) {
		if failed := rc.refreshKeys(ctx, origin, giver); failed != nil {
			err = &protocol.Refusal{Code: protocol.CodeKeyUnknown, Origin: origin.Domain, Err: failed}
		} else {
			verified, err = rc.verify(from, typ, text)
		}
	}

	if protocol.CodeOf(err) == protocol.CodeKeyUnknown && from.Pushed && !from.Again {
		err = errLate
	}

	return verified, err
}

// refuse counts and logs a refusal. A panic counts as a malformed message.
func (rc *receiver) refuse(from replica.Sender, text string, err error) error {
	if panicked := (*contain.Error)(nil); errors.As(err, &panicked) {
		err = &protocol.Refusal{Code: protocol.CodeFormat, Err: err}
	}

	var r *protocol.Refusal
	if errors.As(err, &r) && r.Code == protocol.CodeUnsupported {
		rc.unsupported(from, r)
		return r
	}

	return rc.refusals.Refused(from, text, err)
}

// unsupported counts a message that this node can't read. It is not counted against the
// sender. If it comes from the origin's own nodes, it shows the formats in use, and the first
// of each kind is logged. Other senders may repeat an old message for ever, because its date
// can't be read.
func (rc *receiver) unsupported(from replica.Sender, r *protocol.Refusal) {
	rc.refusals.ByOrigin.Add(r.Origin, protocol.CodeUnsupported)

	if from.Domain != r.Origin {
		return
	}

	var unsupported *signed.UnsupportedError

	origin := rc.origins.Get(r.Origin)
	if origin == nil || !errors.As(r.Err, &unsupported) {
		return
	}

	if first := origin.NoteUnsupported(unsupported); !first ||
		!rc.refusals.Lines.Allow(protocol.CodeUnsupported, r.Origin) {
		return
	}

	rc.cfg.Logger.Warn("a peer uses a format that this release can't read; upgrade this node",
		"origin", r.Origin.Name(), "structure", string(unsupported.Structure), "format", unsupported.Format,
		"err", unsupported)
}
