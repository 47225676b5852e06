package federation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A receiver takes messages of other domains: pages, heads, key documents and records.
type receiver struct {
	cfg      *Config
	store    *store.Store
	client   *protocol.Client
	origins  *replica.Set
	peers    peers
	refusals *replica.RefusalLog
	records  *replica.Gate
	evidence *prosecutor
}

// take brings a page from the wire to the index. Each step is one function: verify it (rule G6)
// and compare it with accepted pages, fetch its records, open them, accept it (rule G3).
func (rc *receiver) take(ctx context.Context, from replica.Sender, giver protocol.Node,
	text string) (*replica.Page, protocol.Code, error) {
	received := rc.receive(ctx, from, giver, text, replica.Ahead{})
	code := rc.finish(ctx, &received)

	return received.Page, code, received.err
}

// finish takes the steps of a page after the first.
func (rc *receiver) finish(ctx context.Context, received *receivedPage) protocol.Code {
	rc.prefetch(ctx, received)
	rc.open(ctx, received)

	return received.accept(ctx)
}

// A receivedPage is a page on its way, with the results of its steps, or the error that ended it: later
// steps do nothing then.
type receivedPage struct {
	*replica.Page
	origin  *replica.Origin
	from    replica.Sender
	giver   protocol.Node
	lacks   []protocol.RecordName
	records map[protocol.RecordName]replica.Fetched
	opened  map[directory.RID]store.Arrival
	span    span.Span // of the page; the zero Span if the caller of receive ends it
	err     error
}

// receive verifies a page, and compares it with those that were accepted: one that convicts its
// origin is refused (rule E1). It changes no stored data, and finds the records that are missing. ahead is
// the position of the stream after the pages before this one.
func (rc *receiver) receive(ctx context.Context, from replica.Sender, giver protocol.Node, text string,
	ahead replica.Ahead) receivedPage {
	received := receivedPage{from: from, giver: giver}

	err := rc.cfg.Panics.Run(contain.Page, func() error {
		return span.Do(ctx, span.Verify, func(step span.Span) error {
			verified, err := rc.verifyWithKeys(step.In(ctx), from, giver, signed.TypePage, text)
			if err != nil {
				return err
			}

			received.origin, received.Page = verified.origin, verified.page
			received.lacks, err = verified.origin.Examine(verified.page, verified.claim, ahead)

			if two := (*replica.Contradiction)(nil); errors.As(err, &two) {
				received.lacks, err = rc.accuse(&received, two.Other, ahead)
			}

			return err
		})
	})
	if err != nil {
		received.err = rc.refuse(from, text, err)
	}

	return received
}

// verifyWithKeys checks a message. If its key is unknown, it requests the newest key document
// and checks the message again. It returns errLate for a pushed message whose key is still
// unknown: the request may not be due yet, or the node asked may not have the newest document
// itself. Thus a key rotation seldom causes refusals. A message is postponed only once, so
// that forged messages don't wait long.
func (rc *receiver) verifyWithKeys(ctx context.Context, from replica.Sender, giver protocol.Node,
	typ, text string) (verifiedMessage, error) {
	verified, err := rc.check(from, typ, text)
	if protocol.CodeOf(err) != protocol.CodeKeyUnknown {
		return verified, err
	}

	if origin := verified.origin; origin.Contacts.MayRefresh(from) {
		if failed := rc.refreshKeys(ctx, origin, giver); failed != nil {
			err = &protocol.Refusal{Code: protocol.CodeKeyUnknown, Origin: origin.Domain, Err: failed}
		} else {
			verified, err = rc.check(from, typ, text)
		}
	}

	if protocol.CodeOf(err) == protocol.CodeKeyUnknown && from.Pushed && !from.Again {
		err = errLate
	}

	return verified, err
}

// A verifiedMessage is a page or a head that passed the gate, and the origin that issued it.
type verifiedMessage struct {
	origin *replica.Origin
	page   *replica.Page // nil for a head
	head   *signed.Head  // nil for a page
	claim  replica.Claim
}

// verify verifies a page or a head (rule G6), by itself and by what is known of its origin.
func (rc *receiver) verify(from replica.Sender, typ, text string) (verified verifiedMessage, err error) {
	if verified, err = rc.check(from, typ, text); err == nil {
		err = verified.origin.Admit(verified.claim)
	}

	return verified, err
}

// check is the part of verify that ends with the signature: the checks in their order, each with its code.
// replica.Origin.Admit has the rest. It changes no stored data, and its caller counts refusals. The result
// names the origin of a refused message too, once that is known. For a pushed message, route has checked
// the sender's rate and the size before.
func (rc *receiver) check(from replica.Sender, typ, text string) (verified verifiedMessage, err error) {
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

	if err != nil {
		return verified, &protocol.Refusal{Code: keyCode(err), Origin: claim.Issuer, Err: err}
	}

	claim.KeyID, claim.Unsupported = kid, unsupported
	verified.claim = claim

	if page := verified.page; page != nil {
		page.Text, page.KeyID, page.VerifiedAt = text, kid, time.Now()
	}

	return verified, nil
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

// accuse refuses a page that convicts its origin together with an accepted one. If it doesn't, it returns the
// records that the page lacks.
func (rc *receiver) accuse(received *receivedPage, other string, ahead replica.Ahead) ([]protocol.RecordName, error) {
	origin := received.origin
	if rc.evidence.accuse(origin, []string{other, received.Text}, origin.Keys.Issued()) {
		return nil, &protocol.Refusal{Code: protocol.CodeEquivocation, Origin: origin.Domain, Err: errOffence}
	}

	return origin.Lacking(received.Page, ahead)
}

// prefetch fetches the missing records of an applicable page from the node that sent it, or for a gossiped
// page from the origin's contact, by up to fetchParts requests at once, so that both ends use more than one
// processor. It changes no stored data.
func (rc *receiver) prefetch(ctx context.Context, received *receivedPage) {
	names := received.lacks
	if received.err != nil || len(names) == 0 {
		return
	}

	ctx, step := span.Start(ctx, span.Fetch)
	defer step.End()

	step.Items(len(names))

	ctx, cancel := context.WithTimeout(ctx, protocol.PrefetchTime)
	defer cancel()

	// The parts share the answers of one page, so that splitting it doesn't raise the bound on memory.
	parts := slices.Collect(slices.Chunk(names, max(minPart, (len(names)+fetchParts-1)/fetchParts)))
	found := make([]map[protocol.RecordName]replica.Fetched, len(parts))

	var requests sync.WaitGroup
	for i, part := range parts {
		requests.Go(func() {
			found[i] = rc.fetch(ctx, received.origin.Domain, part, []protocol.Node{received.giver},
				maxAnswers/len(parts))
		})
	}

	requests.Wait()

	received.records = make(map[protocol.RecordName]replica.Fetched, len(names))
	for _, some := range found {
		maps.Copy(received.records, some)
	}
}

const (
	maxAnswers = 4          // for the records of one page
	fetchParts = maxAnswers // so that each part may have one answer
	minPart    = 100        // records of a part, because a request has a price too
)

// fetch requests records from one holder after the other until none is missing. It accepts a
// record only if it matches its name, and otherwise asks the next holder. The record gate
// checks the rest. It takes at most that many answers, each of at most protocol.MaxAnswer bytes. If
// documents are large, the rest is requested later.
func (rc *receiver) fetch(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName,
	holders []protocol.Node, most int) map[protocol.RecordName]replica.Fetched {
	got := make(map[protocol.RecordName]replica.Fetched, len(names))

	answers := 0
	for _, node := range holders {
		for ctx.Err() == nil && answers < most {
			missing := slices.DeleteFunc(slices.Clone(names), func(name protocol.RecordName) bool {
				_, ok := got[name]
				return ok
			})
			if len(missing) == 0 {
				return got
			}

			missing = missing[:min(len(missing), protocol.MaxNames)]

			before := len(got)
			if err := rc.askRecords(ctx, origin, missing, node, got); err != nil {
				rc.cfg.Logger.Debug("fetching records failed", "origin", origin.Name(), "from", node.Base, "err", err)
				break
			}

			// A holder that gave no record of these would give none again.
			if len(got) == before {
				break
			}

			answers++
		}
	}

	return got
}

// askRecords requests records from one holder and adds them to got.
func (rc *receiver) askRecords(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName,
	node protocol.Node, got map[protocol.RecordName]replica.Fetched) error {
	var header string // of the record before: usually it is the same

	return rc.client.Records(ctx, node, origin, names, func(line protocol.RecordLine) {
		named := protocol.RecordName{H: line.H, M: line.M}

		var r *store.Record

		err := rc.cfg.Panics.Run(contain.Record, func() (err error) {
			r, err = readRecord(named, line.Record, header)
			return err
		})
		if err != nil {
			rc.refusals.ByOrigin.Add(origin, protocol.CodeRecord)
			rc.refusals.BySender.Add(node.Domain, protocol.CodeRecord)

			if rc.refusals.Lines.Allow(protocol.CodeRecord, node.Domain) {
				rc.cfg.Logger.Warn("refused a record", "origin", origin.Name(), "from", node.Base, "h",
					line.H.String(), "err", err)
			}

			return
		}

		header = r.Header
		got[named] = replica.Fetched{Record: r, From: node.Domain, At: time.Now()}
	})
}

// readRecord parses a record and compares it with its name. A JWS header equal to header was
// checked before and isn't checked again; header may be empty.
func readRecord(name protocol.RecordName, text, header string) (*store.Record, error) {
	rec, err := signed.ParseRecord(text)
	if err != nil {
		return nil, err
	}

	parts, err := protocol.SplitJWS(rec.JWS)
	if err != nil {
		return nil, err
	}

	if written, _, _ := strings.Cut(rec.JWS, "."); written == "" || written != header {
		if err := protocol.CheckHeader(parts.Header, signed.TypeRecord); err != nil {
			return nil, err
		}

		header = written
	}

	r := &store.Record{
		Header: header, Payload: parts.Payload,
		Signature: rec.JWS[len(rec.JWS)-directory.B64.EncodedLen(64):], Disclosures: rec.Disclosures,
	}
	if !r.Is(name) {
		return nil, errNotNamed
	}

	return r, nil
}

// open puts the records of a page through the record gate.
func (rc *receiver) open(ctx context.Context, received *receivedPage) {
	if received.err == nil {
		received.opened = rc.records.Open(ctx, received.origin.Domain, received.Page.Page, received.records)
	}
}

// accept applies a page to its stream.
func (rp *receivedPage) accept(ctx context.Context) (code protocol.Code) {
	if rp.err == nil {
		code, rp.err = rp.origin.AcceptPage(ctx, rp.Page, rp.opened)
	}

	return code
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

var (
	errTooLarge = errors.New("message too large")
	errOrigin   = errors.New("origin is not an active peer, or its stream is not followed here")
	errOffence  = errors.New("origin contradicted itself and is frozen")
	errNotNamed = errors.New("the bytes don't match the record's hashes")

	// errLate means that a message is to be judged again after a request for the key document.
	errLate = errors.New("signed by a key that is not known yet")
)
