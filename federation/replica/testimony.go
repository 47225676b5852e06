package replica

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Testimony is what a node of an origin says of its domain, signed by a key of its own. It is
// compared with what other nodes of the origin said before (rule S14).
type Testimony struct {
	Node   spiffeid.ID
	At     directory.Position // how far the node is
	Claims [2]*Claims         // of the streams in the order of Feeds; nil for one that was not asked for
}

// Claims are the entries of a stream whose latest change is after Since and not after UpTo, as a node
// announces them.
type Claims struct {
	Since, UpTo uint64
	Entries     map[directory.RID]signed.Digest
}

// An Unconfirmed is the part of an origin's announcements that one node alone stands for so far.
type Unconfirmed struct {
	Streams   [2]UnconfirmedStream // in the order of Feeds
	positions []statedPosition
	nodes     int // that the newest key document lists
}

// An UnconfirmedStream is the part of one stream, after Since and up to UpTo.
type UnconfirmedStream struct {
	ID          store.StreamID
	Since, UpTo uint64
}

// A statedPosition is a position of the origin by the word of one node.
type statedPosition struct {
	directory.Position
	kid  string
	node spiffeid.ID
}

// endKept is how long a change that ended an entry can be compared: its origin keeps it for
// directory.Skew at least.
const endKept = directory.Skew - 10*time.Second

// Unconfirmed returns what no second node of the origin has confirmed yet. It is false if all is
// confirmed, and if the origin has no second node.
func (o *Origin) Unconfirmed() (Unconfirmed, bool, error) {
	doc, _, ok := o.Cfg.Keys.Keys(o.Domain)
	if !ok {
		return Unconfirmed{}, false, nil
	}

	nodes := map[spiffeid.ID]bool{}
	for _, key := range doc.Keys {
		nodes[key.Node] = true
	}

	if len(nodes) < 2 {
		return Unconfirmed{}, false, nil
	}

	found, open := Unconfirmed{nodes: len(nodes)}, false

	for i, feed := range o.Feeds() {
		id, ok := o.newestID(feed)
		if !ok {
			continue
		}

		stream := UnconfirmedStream{ID: id}
		stated := statedPosition{Position: directory.Position{Epoch: id.Epoch}}

		err := o.Store.Read(id, func(t *store.Tx) error {
			stream.Since, stream.UpTo = t.Confirmed(), t.State.Watermark
			stated.Revision = t.State.Watermark

			page, _, err := t.PageOf(t.State.Watermark)
			if err == nil && page != nil {
				stated.kid = keyIDOf(page.JWS)
			}

			return err
		})
		if err != nil {
			return Unconfirmed{}, false, err
		}

		found.Streams[i] = stream
		open = open || stream.Since < stream.UpTo
		found.positions = append(found.positions, stated)
	}

	if head, text := o.newestHead(); head != nil {
		found.positions = append(found.positions, statedPosition{
			Position: directory.Position{Epoch: head.Epoch, Revision: head.At}, kid: keyIDOf(text),
		})
	}

	found.positions = slices.DeleteFunc(found.positions, func(stated statedPosition) bool {
		return stated.kid == "" || o.Doubts.attested(o.NodeOf(stated.kid), stated.Position)
	})
	for i := range found.positions {
		found.positions[i].node = o.NodeOf(found.positions[i].kid)
	}

	return found, open || len(found.positions) > 0, nil
}

// NodeOf returns the node whose key has an id, by the key documents that are known; the zero ID if none
// lists it.
func (o *Origin) NodeOf(kid string) (node spiffeid.ID) {
	doc, _, ok := o.Cfg.Keys.Keys(o.Domain)
	if ok {
		if key, err := doc.Key(kid); err == nil {
			return key.Node
		}
	}

	for _, past := range o.Keys.documents() {
		if key, err := past.Key(kid); err == nil {
			return key.Node
		}
	}

	return node
}

func keyIDOf(jws string) string {
	parts, err := protocol.SplitJWS(jws)
	if err != nil {
		return ""
	}

	return protocol.KeyIDOf(parts.Header)
}

// Hear compares testimonies of the origin's nodes with what is unconfirmed. It reports whether nothing
// is left to confirm. If it is, and in the last round, contradictions are judged: if enough nodes have
// contradicted another one for long enough, that node is distrusted, and the origin's streams are pulled
// again without it.
func (o *Origin) Hear(open Unconfirmed, all []Testimony, last bool, now time.Time) (settled bool, err error) {
	var found []contradiction

	settled = true

	for _, stated := range open.positions {
		if ahead, reached := stated.compare(all); !reached {
			settled = false
			found = append(found, ahead...)
		}
	}

	for i, feed := range o.Feeds() {
		stream := open.Streams[i]
		if stream.Since >= stream.UpTo {
			continue
		}

		compared, upTo, err := o.compareStream(feed, stream, i, all, now)
		if err != nil {
			return false, err
		}

		found = append(found, compared...)
		settled = settled && len(compared) == 0 && upTo >= stream.UpTo
	}

	if !settled && !last {
		return false, nil
	}

	if distrusted, from, is := o.Doubts.weigh(found, all, now); is {
		return false, o.distrust(distrusted, from)
	}

	return settled, nil
}

// A contradiction is between a node whose word this domain took, and others.
type contradiction struct {
	doubtKey

	kid     string
	against []spiffeid.ID
}

// compare returns that no other node has reached the position, if some node answered.
func (s *statedPosition) compare(all []Testimony) (found []contradiction, reached bool) {
	c := contradiction{doubtKey: doubtKey{node: s.node, kind: doubtPosition}, kid: s.kid}

	for _, testimony := range all {
		switch {
		case testimony.Node == s.node:
		case !testimony.At.Before(s.Position):
			return nil, true
		default:
			c.against = append(c.against, testimony.Node)
		}
	}

	if len(c.against) == 0 || s.node.IsZero() {
		return nil, false
	}

	c.at = s.Position

	return []contradiction{c}, false
}

// compareStream compares a stream with the claims about it, and confirms it up to the revision that it
// returns.
func (o *Origin) compareStream(feed *Feed, stream UnconfirmedStream, which int, all []Testimony,
	now time.Time) (found []contradiction, upTo uint64, err error) {
	w := &witnesses{origin: o, which: which, stream: stream, now: now, latest: map[directory.RID]heldDigest{}}
	for _, testimony := range all {
		if claims := testimony.Claims[which]; claims != nil && testimony.At.Epoch == stream.ID.Epoch {
			w.all = append(w.all, testimony)
		}
	}

	if len(w.all) == 0 {
		return nil, stream.Since, nil
	}

	if err := o.change.Lock(o.Store); err != nil {
		return nil, 0, err
	}

	defer o.change.Unlock()

	if id, ok := o.newestID(feed); !ok || id != stream.ID || o.HasEnded() {
		return nil, 0, nil
	}

	err = o.Store.Read(stream.ID, w.compare)
	if errors.Is(err, errIncomparable) {
		return nil, stream.Since, nil
	}

	if err != nil || w.upTo <= stream.Since {
		return w.found, stream.Since, err
	}

	_, err = o.Store.Change(stream.ID, func(t *store.Tx) error { return t.Confirm(w.upTo) })

	return w.found, w.upTo, err
}

// errIncomparable means that a stream has changed since it was asked about, or has pages of a format
// that this release can't read.
var errIncomparable = errors.New("the stream can't be compared")

// witnesses compare a stream with what nodes of its origin claim of it.
type witnesses struct {
	origin *Origin
	which  int // of Testimony.Claims
	stream UnconfirmedStream
	all    []Testimony
	now    time.Time

	spans  []pageSpan // of the chain, in its order
	latest map[directory.RID]heldDigest
	upTo   uint64 // result: up to where the stream is confirmed
	found  []contradiction
}

// A pageSpan is a page of the chain, whose node stands for all changes between its ends.
type pageSpan struct {
	from, to uint64
	kid      string
	node     spiffeid.ID
}

// A heldDigest is the latest digest of a registration in the chain.
type heldDigest struct {
	signed.Digest

	kid   string
	node  spiffeid.ID
	fresh bool // so that its origin still has it, if it is of an end
}

func (w *witnesses) compare(t *store.Tx) error {
	if t.Confirmed() != w.stream.Since {
		return errIncomparable
	}

	if err := t.PagesAfter(w.stream.Since, w.add); err != nil {
		return err
	}

	w.upTo = w.covered(t.State.Watermark)

	for rid, held := range w.latest {
		if err := w.compareHeld(t, rid, held); err != nil {
			return err
		}
	}

	for _, testimony := range w.all {
		for rid, digest := range testimony.Claims[w.which].Entries {
			if err := w.compareClaim(t, testimony, rid, digest); err != nil {
				return err
			}
		}
	}

	slices.SortFunc(w.found, func(a, b contradiction) int { return cmp.Compare(a.at.Revision, b.at.Revision) })

	if len(w.found) > 0 {
		w.upTo = min(w.upTo, w.found[0].at.Revision-1)
		w.found = w.found[:min(len(w.found), maxDoubts)]
	}

	return nil
}

// add notes a page of the chain.
func (w *witnesses) add(stored *store.Page, to uint64) error {
	parts, err := protocol.SplitJWS(stored.JWS)
	if err != nil {
		return store.ErrStore
	}

	page, err := w.origin.Cfg.Dialect.ParsePage(parts.Payload)
	if errors.Is(err, signed.ErrUnsupported) {
		return errIncomparable
	}

	if err != nil {
		return store.ErrStore
	}

	span := pageSpan{from: stored.From, to: to, kid: protocol.KeyIDOf(parts.Header)}
	span.node = w.origin.NodeOf(span.kid)
	w.spans = append(w.spans, span)

	for _, digest := range page.Digests {
		if digest.Revision > w.stream.Since && digest.Revision >= w.latest[digest.RID].Revision {
			w.latest[digest.RID] = heldDigest{Digest: digest, kid: span.kid, node: span.node,
				fresh: w.now.Sub(time.Unix(page.IssuedAt, 0)) < endKept}
		}
	}

	return nil
}

// covered returns the revision up to which each page of the chain is covered by the claims of another
// node than its own.
func (w *witnesses) covered(watermark uint64) (upTo uint64) {
	upTo = watermark

	for _, span := range w.spans {
		most := w.stream.Since

		for _, testimony := range w.all {
			if testimony.Node != span.node {
				most = max(most, testimony.Claims[w.which].UpTo)
			}
		}

		if most < span.to {
			upTo = min(upTo, most)
		}
	}

	return upTo
}

// compareHeld compares an entry with the claims of nodes other than the one that announced it.
func (w *witnesses) compareHeld(t *store.Tx, rid directory.RID, mine heldDigest) error {
	if mine.Live() {
		held, err := t.Get(rid)
		if err != nil {
			return err
		}

		if held == nil || held.Revision != mine.Revision || !w.now.Before(time.Unix(held.Deadline, 0)) {
			return nil // it was removed or replaced meanwhile
		}
	} else if !mine.fresh {
		return nil
	}

	var against []spiffeid.ID

	for _, testimony := range w.all {
		claims := testimony.Claims[w.which]
		if testimony.Node == mine.node || mine.Revision > claims.UpTo {
			continue
		}

		theirs, listed := claims.Entries[rid]
		if listed && (theirs.Revision > mine.Revision || agree(theirs, mine.Digest)) {
			return nil
		}

		against = append(against, testimony.Node)
	}

	w.note(rid, mine.Revision, doubtInvented, mine.node, mine.kid, against)

	return nil
}

// agree reports whether two digests announce the same. Whether a live entry is new makes no difference.
func agree(a, b signed.Digest) bool {
	if a.Live() && b.Live() {
		a.Op = b.Op
	}

	return a == b
}

// compareClaim compares an entry that a node claims with what the stream has.
func (w *witnesses) compareClaim(t *store.Tx, by Testimony, rid directory.RID, theirs signed.Digest) error {
	if theirs.Revision > t.State.Watermark || w.latest[rid].Revision >= theirs.Revision ||
		theirs.Live() && !w.now.Before(time.Unix(theirs.Deadline, 0)) {
		return nil
	}

	held, err := t.Get(rid)
	if err != nil || held != nil && held.Revision >= theirs.Revision || held == nil && !theirs.Live() {
		return err
	}

	at := slices.IndexFunc(w.spans, func(s pageSpan) bool {
		return s.from < theirs.Revision && theirs.Revision <= s.to
	})
	if at < 0 || w.spans[at].node == by.Node {
		return nil
	}

	span := w.spans[at]

	var against []spiffeid.ID

	for _, testimony := range w.all {
		claims := testimony.Claims[w.which]
		if testimony.Node == span.node || theirs.Revision > claims.UpTo {
			continue
		}

		if claims.Entries[rid].Revision < theirs.Revision {
			return nil // another node lacks it as well
		}

		against = append(against, testimony.Node)
	}

	w.note(rid, theirs.Revision, doubtOmitted, span.node, span.kid, against)

	return nil
}

// note adds a contradiction, unless it is known or concerns a key that no key document lists.
func (w *witnesses) note(rid directory.RID, revision uint64, kind doubtKind, node spiffeid.ID, kid string,
	against []spiffeid.ID) {
	c := contradiction{
		doubtKey: doubtKey{node: node, kind: kind, aud: w.stream.ID.Audience, rid: rid,
			at: directory.Position{Epoch: w.stream.ID.Epoch, Revision: revision}},
		kid: kid, against: against,
	}
	known := kind == doubtOmitted && slices.ContainsFunc(w.found, func(other contradiction) bool {
		return other.doubtKey == c.doubtKey
	})

	if len(against) > 0 && !node.IsZero() && !known {
		w.found = append(w.found, c)
	}
}
