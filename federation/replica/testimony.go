package replica

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Testimony is a node's statement about its domain, signed by its own key. It is compared with
// earlier statements of the origin's other nodes (rule S14).
type Testimony struct {
	Node   spiffeid.ID
	At     directory.Position // how far the node is
	Size   uint64             // of the ledger there, whose root is Root
	Root   directory.Hash
	Claims [2]*Claims // of the streams in the order of Feeds; nil for one that was not asked for
}

// Claims are the entries of a stream whose latest change is after Since and not after UpTo, as a node
// announces them.
type Claims struct {
	Since, UpTo uint64
	Entries     map[directory.RID]signed.Digest
}

// Unconfirmed is the part of an origin's announcements that only one node has made so far.
type Unconfirmed struct {
	Streams   [2]UnconfirmedStream // in the order of Feeds
	positions []statedPosition
}

// An UnconfirmedStream is the part of one stream, after Since and up to UpTo.
type UnconfirmedStream struct {
	ID          store.StreamID
	Since, UpTo uint64
}

// A signer is a key of the origin and its node.
type signer struct {
	kid  string
	node spiffeid.ID // zero if no key document lists the key
}

// A statedPosition is a position of the origin by the word of one node.
type statedPosition struct {
	directory.Position
	by   signer
	kind doubtKind // of a contradiction: doubtPosition, or doubtKeys for the issue of a key document
}

// unconfirmedAfter is how long after it was announced a change is shown as unconfirmed, unless its stream was confirmed
// further meanwhile: a first synchronisation announces more at once than is confirmed in a minute.
const unconfirmedAfter = time.Minute

// unconfirmedState is the part of an origin's streams that no second node has confirmed, for readers.
type unconfirmedState struct {
	streams [2]UnconfirmedStream // in the order of Feeds
	most    [2]uint64            // up to which each was confirmed so far: it is less again once a stream is pulled anew
	still   [2]time.Time         // since when each is confirmed no further
	entries int                  // that were announced longer than unconfirmedAfter ago
}

// IsUnconfirmed reports whether only one node of the origin has announced the last change of an entry, for a while.
func (o *Origin) IsUnconfirmed(e *directory.Entry, now time.Time) bool {
	open := o.open.Load()
	if open == nil || now.Sub(time.UnixMilli(e.Received.CheckedAt)) < unconfirmedAfter {
		return false
	}

	which := 0
	if e.Received.Private {
		which = 1
	}

	return open.streams[which].has(e.Revision) && now.Sub(open.still[which]) >= unconfirmedAfter
}

func (s *UnconfirmedStream) has(revision uint64) bool {
	return s.Since < revision && revision <= s.UpTo
}

// NoteUnconfirmed lets readers see which entries are unconfirmed, and counts them.
func (o *Origin) NoteUnconfirmed(now time.Time) error {
	found, is, err := o.Unconfirmed()
	if err != nil || !is {
		o.open.Store(nil)
		return err
	}

	noted, before := unconfirmedState{streams: found.Streams}, o.open.Load()

	for i := range noted.streams {
		stream := &noted.streams[i]

		noted.most[i], noted.still[i] = stream.Since, now
		if before != nil && before.streams[i].ID == stream.ID && before.most[i] >= stream.Since {
			noted.most[i], noted.still[i] = before.most[i], before.still[i]
		}

		// A busy peer always has unconfirmed changes, and its entries may be a million. They are read only if no
		// change was confirmed for a while. Readers of the file must not last long.
		lasts := stream.Since < stream.UpTo && now.Sub(noted.still[i]) >= unconfirmedAfter

		for after, more := []byte(nil), lasts; more && err == nil; {
			after, more, err = o.Store.EntriesAfter(stream.ID, after, store.FillBatch,
				func(_ *store.Tx, _ directory.RID, held *store.Entry) error {
					checked := time.UnixMilli(held.CheckedAt)
					if stream.has(held.Revision) && held.Record == store.RecordHeld &&
						now.Sub(checked) >= unconfirmedAfter {
						noted.entries++
					}

					return nil
				})
		}
	}

	if err == nil { // else the count is of a part
		o.open.Store(&noted)
	}

	return err
}

// Unconfirmed returns the announcements that no second node of the origin has confirmed yet. It is
// false if all are confirmed, and if the origin has no second node.
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

	found, open := Unconfirmed{}, false

	state := func(epoch, revision uint64, jws string) {
		stated := statedPosition{directory.Position{Epoch: epoch, Revision: revision}, o.signerOf(jws), doubtPosition}
		if stated.by.kid != "" && !o.Doubts.attested(stated.by.node, stated.Position) {
			found.positions = append(found.positions, stated)
		}
	}

	for i, feed := range o.Feeds() {
		id, ok := o.newestID(feed)
		if !ok {
			continue
		}

		err := o.Store.Read(id, func(t *store.Tx) error {
			found.Streams[i] = UnconfirmedStream{ID: id, Since: t.Confirmed(), UpTo: t.State.Watermark}
			open = open || t.Confirmed() < t.State.Watermark

			// The last page states a position too, even if it lists nothing. The head may be by another node.
			page, _, err := t.PageOf(t.State.Watermark)
			if err == nil && page != nil {
				state(id.Epoch, t.State.Watermark, page.JWS)
			}

			return err
		})
		if err != nil {
			return Unconfirmed{}, false, err
		}
	}

	if head, text := o.newestHead(); head != nil {
		state(head.Epoch, head.At, text)
	}

	return found, open || len(found.positions) > 0, nil
}

// NodeOf returns the node of a key, by the known key documents. It returns the zero ID if no document
// lists the key.
func (o *Origin) NodeOf(kid string) spiffeid.ID {
	for _, key := range o.knownKeys() {
		if key.KeyID() == kid {
			return key.Node
		}
	}

	return spiffeid.ID{}
}

// signerOf returns the signer of a message that was accepted.
func (o *Origin) signerOf(jws string) signer {
	parts, err := protocol.SplitJWS(jws)
	if err != nil {
		return signer{}
	}

	kid := protocol.KeyIDOf(parts.Header)

	return signer{kid, o.NodeOf(kid)}
}

// Hear compares testimonies of the origin's nodes with the unconfirmed announcements, and reports
// whether all are confirmed (settled). Contradictions are judged in the last round: a node that enough
// others have contradicted for long enough is distrusted, and the origin's streams are pulled again
// without it.
func (o *Origin) Hear(open Unconfirmed, all []Testimony, last bool, now time.Time) (settled bool, err error) {
	var found []*doubt

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

	// Contradictions are weighed only after all nodes were asked, because one node alone may just lag.
	if !settled && !last {
		return false, nil
	}

	// If all is settled, nothing was found, and weigh forgets earlier contradictions.
	if distrusted, from, is := o.Doubts.weigh(found, all, now); is {
		return false, o.distrust(distrusted, from)
	}

	return settled, nil
}

// compare reports whether another node has reached the position. If others answered and none has, it
// returns that doubt.
func (s *statedPosition) compare(all []Testimony) (found []*doubt, reached bool) {
	doubted := &doubt{doubtKey: doubtKey{node: s.by.node, kind: s.kind}, kid: s.by.kid, at: s.Position}

	for _, testimony := range all {
		switch {
		case testimony.Node == s.by.node:
		case !testimony.At.Before(s.Position):
			return nil, true
		default:
			doubted.against = append(doubted.against, testimony.Node)
		}
	}

	if len(doubted.against) > 0 && !s.by.node.IsZero() {
		found = []*doubt{doubted}
	}

	return found, false
}

// compareStream compares a stream with the claims about it, and confirms it up to the revision that it
// returns.
func (o *Origin) compareStream(feed *Feed, stream UnconfirmedStream, which int, all []Testimony,
	now time.Time) (found []*doubt, upTo uint64, err error) {
	w := &witnesses{origin: o, stream: stream, now: now, claims: map[spiffeid.ID]*Claims{},
		latest: map[directory.RID]heldDigest{}, found: map[doubtKey]*doubt{}}
	for _, testimony := range all {
		if claims := testimony.Claims[which]; claims != nil && testimony.At.Epoch == stream.ID.Epoch {
			w.claims[testimony.Node] = claims
		}
	}

	if len(w.claims) == 0 {
		return nil, stream.Since, nil
	}

	if err := o.change.Lock(o.Store); err != nil {
		return nil, 0, err
	}

	defer o.change.Unlock()

	// No lock was held while the nodes were asked, so the stream may have been replaced.
	if id, ok := o.newestID(feed); !ok || id != stream.ID || o.HasEnded() {
		return nil, 0, nil
	}

	w.held = feed.Newest()

	err = o.Store.Read(stream.ID, w.compare)
	if errors.Is(err, errIncomparable) {
		return nil, stream.Since, nil
	}

	found = slices.SortedFunc(maps.Values(w.found), func(a, b *doubt) int {
		return cmp.Compare(a.at.Revision, b.at.Revision)
	})
	announced := w.upTo

	// The stream is confirmed only up to the first contradiction, and the earliest ones are kept.
	if len(found) > 0 {
		w.upTo = min(w.upTo, found[0].at.Revision-1)
		found = found[:min(len(found), maxDoubts)]
	}

	if err == nil && o.Cfg.Ledger != nil {
		o.trees[which].note(o.Cfg.Ledger, o.Domain, stream.ID.Epoch, all)
		w.demandLogged(&o.trees[which])
	}

	if err != nil || w.upTo <= stream.Since {
		return found, announced, err
	}

	_, err = o.Store.Change(stream.ID, func(t *store.Tx) error { return t.Confirm(w.upTo) })

	// No further node can help while the ledger is followed, so the caller gets how far the nodes agree.
	return found, announced, err
}

// demandLogged ends the confirmed part before the first statement that is in no tree which another node than its
// announcer has signed.
func (w *witnesses) demandLogged(trees *signedTrees) {
	var missing heldDigest

	for rid, held := range w.latest {
		if !held.Live() || held.Revision > w.upTo {
			continue
		}

		// A record that this node doesn't show has nothing to be confirmed.
		entry, ok := w.origin.Shown.Index.Get(rid)
		if !ok || entry.Received.H != held.H {
			continue
		}

		lacks, err := w.origin.Cfg.Ledger.Lacks(w.origin.Domain, entry.Received.Leaf, held.H)
		if lacks {
			missing = held
		}

		if lacks || err != nil || !trees.includes(entry.Received.Leaf, held.by.node) {
			w.upTo = held.Revision - 1
		}
	}

	// One line a round, however many registrations were made up.
	if missing.Revision > 0 {
		w.origin.Cfg.Logger.Warn("a peer announces a registration that its ledger does not have",
			"origin", w.origin.Domain.Name(), "rid", missing.RID.String(), "node", missing.by.node.String())
	}
}

// errIncomparable means that a stream has changed since it was asked about, or has pages of a format
// that this release can't read.
var errIncomparable = errors.New("the stream can't be compared")

// witnesses compare a stream with the claims of its origin's nodes.
type witnesses struct {
	origin *Origin
	stream UnconfirmedStream
	held   *Stream                 // by this node
	claims map[spiffeid.ID]*Claims // by node
	now    time.Time

	spans  []pageSpan // of the chain, in its order
	latest map[directory.RID]heldDigest
	upTo   uint64 // result: up to where the stream is confirmed
	found  map[doubtKey]*doubt
}

// A pageSpan is a page of the chain, whose node stands for all changes between its ends.
type pageSpan struct {
	from, to uint64
	by       signer
}

// A heldDigest is the latest digest of a registration in the chain.
type heldDigest struct {
	signed.Digest

	by signer
}

func (w *witnesses) compare(t *store.Tx) error {
	// A page may have lowered the mark while the nodes were asked. Their claims then don't cover the part in
	// between.
	if t.Confirmed() != w.stream.Since {
		return errIncomparable
	}

	w.held.forgetEnds(w.stream.Since, w.now)

	w.upTo = t.State.Watermark
	if err := t.PagesAfter(w.stream.Since, w.add); err != nil {
		return err
	}

	for rid, held := range w.latest {
		if err := w.compareHeld(t, rid, held); err != nil {
			return err
		}
	}

	for node, claims := range w.claims {
		for rid, digest := range claims.Entries {
			if err := w.compareClaim(t, node, rid, digest); err != nil {
				return err
			}
		}
	}

	return nil
}

// add notes a page of the chain. Only the part that another node's claim covers can be confirmed.
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

	span := pageSpan{from: stored.From, to: to, by: w.origin.signerOf(stored.JWS)}
	w.spans = append(w.spans, span)

	for _, digest := range page.Digests {
		if digest.Revision > w.stream.Since && digest.Revision >= w.latest[digest.RID].Revision {
			w.latest[digest.RID] = heldDigest{digest, span.by}
		}
	}

	// The word of the page's own signer confirms nothing. The claim of any other node does, as far as it goes.
	covered := w.stream.Since

	for node, claims := range w.claims {
		if node != span.by.node {
			covered = max(covered, claims.UpTo)
		}
	}

	if covered < to {
		w.upTo = min(w.upTo, covered)
	}

	return nil
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
	} else if _, is := w.held.ended[rid]; !is {
		return nil // it removed nothing, or the entry would have expired
	}

	// A later change in a claim replaces this one, and so doesn't contradict it.
	w.note(doubtInvented, mine.by, rid, mine.Revision, func(theirs signed.Digest) bool {
		return theirs.Revision > mine.Revision || store.Agree(theirs, mine.Digest)
	})

	return nil
}

// compareClaim compares an entry that a node claims with the stream.
func (w *witnesses) compareClaim(t *store.Tx, node spiffeid.ID, rid directory.RID, theirs signed.Digest) error {
	// Such a claim is beyond the stream, was replaced in its chain, or is of an entry that has expired.
	if theirs.Revision > t.State.Watermark || w.latest[rid].Revision >= theirs.Revision ||
		theirs.Live() && !w.now.Before(time.Unix(theirs.Deadline, 0)) {
		return nil
	}

	held, err := t.Get(rid)
	if err != nil || held != nil && held.Revision >= theirs.Revision || held == nil && !theirs.Live() {
		return err
	}

	// The signer of the page that spans the revision is the one that left the change out.
	at := slices.IndexFunc(w.spans, func(s pageSpan) bool {
		return s.from < theirs.Revision && theirs.Revision <= s.to
	})
	if at >= 0 && w.spans[at].by.node != node {
		w.note(doubtOmitted, w.spans[at].by, rid, theirs.Revision, func(others signed.Digest) bool {
			return others.Revision < theirs.Revision
		})
	}

	return nil
}

// note adds a contradiction between a node and the others whose claims cover a revision. It adds
// nothing if one of them agrees, or if no key document lists the node's key.
func (w *witnesses) note(kind doubtKind, by signer, rid directory.RID, revision uint64,
	agrees func(theirs signed.Digest) bool) {
	doubted := &doubt{kid: by.kid, at: directory.Position{Epoch: w.stream.ID.Epoch, Revision: revision}}
	doubted.doubtKey = doubtKey{node: by.node, kind: kind, aud: w.stream.ID.Audience, rid: rid, change: doubted.at}

	for node, claims := range w.claims {
		switch {
		case node == by.node || revision > claims.UpTo:
		case agrees(claims.Entries[rid]):
			return
		default:
			doubted.against = append(doubted.against, node)
		}
	}

	if len(doubted.against) > 0 && !by.node.IsZero() {
		w.found[doubted.doubtKey] = doubted
	}
}

// A Ledger has the ledgers of origins, as far as this node has followed them.
type Ledger interface {
	// Begins reports whether an origin's ledger of an epoch begins with a tree, and whether it was followed so far.
	Begins(origin spiffeid.TrustDomain, epoch, size uint64, root directory.Hash) (begins, followed bool)
	// Lacks reports whether an origin's ledger was followed beyond an index and has no such statement there. It fails
	// if this node can't read that.
	Lacks(origin spiffeid.TrustDomain, index uint64, statement directory.Hash) (bool, error)
}

// signedTrees are the trees of an origin's ledger that its nodes have signed in heads. The ledger's copy may have
// come from the node that invented a statement, so an entry counts as logged only in a tree that another one signed.
// The loop that confirms the origin uses it alone.
type signedTrees struct {
	epoch uint64
	sizes map[spiffeid.ID]uint64    // by node, of the largest tree with which the ledger as followed begins
	ahead map[spiffeid.ID]Testimony // by node, of a tree that the ledger was not followed to yet
}

// note takes the trees of testimonies, and those of earlier ones that the ledger has been followed to meanwhile.
func (s *signedTrees) note(held Ledger, origin spiffeid.TrustDomain, epoch uint64, all []Testimony) {
	if s.epoch != epoch || s.sizes == nil {
		*s = signedTrees{epoch: epoch, sizes: map[spiffeid.ID]uint64{}, ahead: map[spiffeid.ID]Testimony{}}
	}

	for _, stated := range append(slices.Collect(maps.Values(s.ahead)), all...) {
		if stated.At.Epoch != epoch {
			continue
		}

		switch begins, followed := held.Begins(origin, epoch, stated.Size, stated.Root); {
		case begins:
			s.sizes[stated.Node] = max(s.sizes[stated.Node], stated.Size)
			delete(s.ahead, stated.Node)
		case followed:
			delete(s.ahead, stated.Node)
		default:
			// The smaller tree stays, which the ledger is followed to first.
			if waits, is := s.ahead[stated.Node]; !is || stated.Size < waits.Size {
				s.ahead[stated.Node] = stated
			}
		}
	}
}

// includes reports whether a tree that another node than by has signed has an entry at an index.
func (s *signedTrees) includes(index uint64, by spiffeid.ID) bool {
	for node, size := range s.sizes {
		if node != by && index < size {
			return true
		}
	}

	return false
}
