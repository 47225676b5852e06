package federation

import (
	"context"
	"errors"

	"github.com/roster-mesh/roster/directory"
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

// take brings a page from the wire to the index. Each step is one function: verify (rule
// G6), compare with accepted pages, fetch its records, open them, accept (rule G3).
func (rc *receiver) take(ctx context.Context, from replica.Sender, giver protocol.Node,
	text string) (*replica.Page, protocol.Code, error) {
	received := rc.receive(ctx, from, giver, text, replica.Ahead{})
	if rc.fetchFor(ctx, &received); received.err != nil {
		return nil, "", received.err
	}

	records := rc.open(ctx, received)
	code, err := received.origin.AcceptPage(ctx, received.Page, records)

	return received.Page, code, err
}

// open passes the records of a page through their gate.
func (rc *receiver) open(ctx context.Context, page receivedPage) map[directory.RID]recordgate.Opened {
	_, step := span.Start(ctx, span.Open)
	defer step.End()

	step.Items(len(page.records))

	return rc.records.Open(page.origin.Domain, page.Page.Page, page.records)
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

// receive verifies a page and compares it. It changes no stored data. A panic counts as a
// malformed page. ahead is the position of the stream after the pages before this one.
func (rc *receiver) receive(ctx context.Context, from replica.Sender, giver protocol.Node, text string,
	ahead replica.Ahead) (received receivedPage) {
	err := rc.cfg.Panics.Run(contain.Page, func() error {
		inside, step := span.Start(ctx, span.Verify)

		var page *replica.Page

		origin, err := rc.withKeys(inside, from, giver, func() (o *replica.Origin, err error) {
			o, page, err = rc.openPage(from, text)
			return o, err
		})
		if err == nil {
			err = rc.compare(origin, page)
		}

		step.Done(err)

		if err != nil {
			received.err = rc.refuse(from, text, err)
			return nil
		}

		received = receivedPage{Page: page, origin: origin, from: from, giver: giver, ahead: ahead}

		return nil
	})
	if err != nil {
		return receivedPage{err: rc.refusePanic(from, text, err)}
	}

	return received
}

// fetchFor fetches the records of a page that was received. It changes no stored data. A panic
// counts as a malformed page.
func (rc *receiver) fetchFor(ctx context.Context, received *receivedPage) {
	if received.err != nil {
		return
	}

	err := rc.cfg.Panics.Run(contain.Page, func() (err error) {
		received.records, err = rc.prefetch(ctx, received.origin, received.Page, received.giver, received.ahead)
		received.err = err

		return nil
	})
	if err != nil {
		received.err = rc.refusePanic(received.from, received.Text, err)
	}
}

// refusePanic refuses a page that caused a panic.
func (rc *receiver) refusePanic(from replica.Sender, text string, panicked error) error {
	return rc.refuse(from, text, &protocol.Refusal{Code: protocol.CodeFormat, Err: panicked})
}

// compare refuses a page that contradicts an accepted one, if that convicts the origin.
func (rc *receiver) compare(origin *replica.Origin, page *replica.Page) error {
	if rc.cfg.Verifier == nil {
		return nil
	}

	other, err := origin.Contradicted(page)
	if err != nil || other == "" {
		return err
	}

	if rc.evidence.accuse(origin, []string{other, page.Text}, origin.Keys.Issued()) {
		return &protocol.Refusal{Code: protocol.CodeEquivocation, Origin: origin.Domain, Err: errOffence}
	}

	return nil
}

var errOffence = errors.New("origin contradicted itself and is frozen")

// errLate means that a message is to be judged again after a request for the key document.
var errLate = errors.New("signed by a key that is not known yet")

// withKeys judges a message. If its key is unknown, it requests the newest key document and
// judges the message again. It returns errLate for a pushed message whose key is still
// unknown: the request may not be due yet, or the node asked may not have the newest document
// itself. Thus a key rotation seldom causes refusals. A message is postponed only once, so
// that forged messages don't wait long.
func (rc *receiver) withKeys(ctx context.Context, from replica.Sender, giver protocol.Node,
	judge func() (*replica.Origin, error)) (*replica.Origin, error) {
	origin, err := judge()
	if protocol.CodeOf(err) != protocol.CodeKeyUnknown {
		return origin, err
	}

	if origin.Contacts.MayRefresh(from) {
		if failed := rc.refreshKeys(ctx, origin, giver); failed != nil {
			err = &protocol.Refusal{Code: protocol.CodeKeyUnknown, Origin: origin.Domain, Err: failed}
		} else {
			origin, err = judge()
		}
	}

	if protocol.CodeOf(err) == protocol.CodeKeyUnknown && from.Pushed && !from.Again {
		return origin, errLate
	}

	return origin, err
}

// refuse counts and logs a refusal.
func (rc *receiver) refuse(from replica.Sender, text string, err error) error {
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
