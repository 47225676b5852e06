package federation

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// errNotReady says that this node can't speak for its domain yet: no key document
// was issued, or none that has this node's key.
var errNotReady = errors.New("this node's key is not in its domain's key document yet")

// A pageKey is one question for a page.
type pageKey struct {
	aud    directory.Audience
	since  uint64
	limit  int
	format uint
}

type madePage struct {
	*directory.SignedPage
	text string
}

// A publisher makes pages and heads of the own domain. Nothing of them is kept:
// a page is a scan of the state (rule G2). The last ones are remembered, because
// every subscriber asks the same at the same moment.
type publisher struct {
	cfg *Config

	mu    sync.Mutex
	pages map[pageKey]madePage
	ready directory.Position // of the key document that was last seen to list the key that signs
	known madeSignatures     // of records, made while that was the newest
}

// maxMade bounds the pages that are remembered; a page is at most MaxPage.
const maxMade = 32

// page returns a signed page of the own domain's stream, nil where there is
// nothing above since. Where something was announced, an empty page says that it
// has ended since (rule G5). No head names the tip of a private stream; so whoever
// pulls one, and may know where this domain is, is told by an empty page that
// nothing is new.
func (b *publisher) page(aud directory.Audience, since uint64, limit int, tell bool) (*madePage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := tell && aud != directory.Mesh && b.cfg.Source.Position().Revision > since
	if b.cfg.Source.Tip(aud) <= since && !told {
		return nil, nil
	}
	key := pageKey{aud, since, limit, b.pageFormat(aud)}
	if made, ok := b.pages[key]; ok && (directory.Position{Epoch: made.Epoch, Revision: made.At}) == b.cfg.Source.Position() {
		return &made, nil
	}
	ds, to, at := b.cfg.Source.Digests(aud, since, limit)
	made, err := b.sign(aud, ds, since, to, at)
	if err != nil {
		return nil, err
	}
	if len(b.pages) >= maxMade {
		clear(b.pages)
	}
	b.pages[key] = *made
	return made, nil
}

func (b *publisher) sign(aud directory.Audience, ds []directory.Digest, from, to, at uint64) (*madePage, error) {
	p := &directory.SignedPage{
		Format: b.pageFormat(aud), Issuer: b.cfg.Domain, Epoch: b.cfg.Source.Position().Epoch, Audience: aud,
		From: from, To: to, At: at, IssuedAt: time.Now().Unix(), Digests: ds,
	}
	text, err := b.signed(directory.TypePage, p.Payload())
	if err != nil {
		return nil, err
	}
	return &madePage{p, text}, nil
}

// signed signs, once this node's own key document vouches for its key: what it
// said before would be refused everywhere.
func (b *publisher) signed(typ string, payload []byte) (string, error) {
	doc := b.cfg.Source.KeyDocument()
	if doc == nil {
		return "", errNotReady
	}
	text, err := b.cfg.Keys.Sign(typ, payload)
	if err != nil {
		return "", fmt.Errorf("federation: sign: %w", err)
	}
	if b.ready != issueOf(doc) {
		// By this document: the keyring may have the one before still.
		parts, err := protocol.SplitJWS(text)
		if err == nil {
			_, err = doc.Key(protocol.KeyIDOf(parts.Header))
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", errNotReady, err)
		}
		b.ready, b.known = issueOf(doc), madeSignatures{}
	}
	return text, nil
}

// issueOf tells one issue of the key document from another.
func issueOf(doc *directory.KeyDocument) directory.Position {
	return directory.Position{Epoch: doc.Epoch, Revision: doc.Seq}
}

// head returns the own domain's signed head (rule G5).
func (b *publisher) head() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	doc := b.cfg.Source.KeyDocument()
	if doc == nil {
		return "", errNotReady
	}
	tip := b.cfg.Source.Tip(directory.Mesh) // before the position, so that it doesn't exceed it
	size, root := b.cfg.Source.Ledger()
	at := b.cfg.Source.Position()
	h := &directory.Head{Format: b.cfg.Source.Format(directory.StructureHead), Issuer: b.cfg.Domain, Epoch: at.Epoch, Tip: tip, At: at.Revision, Size: size, Root: root,
		Keys: directory.HashOf(doc.Payload()), IssuedAt: time.Now().Unix()}
	return b.signed(directory.TypeHead, h.Payload())
}

// record returns a record of the own domain as that stream may have it.
func (b *publisher) record(aud directory.Audience, n protocol.RecordName) (string, bool, error) {
	payload, disclosures, ok := b.cfg.Source.Record(aud, n.H, n.M)
	if !ok {
		return "", false, nil
	}
	text, err := b.signedRecord(n.H, payload)
	if err != nil {
		return "", false, err
	}
	return directory.Record{JWS: text, Disclosures: disclosures}.String(), true, nil
}

// signedRecord is signed for records. They are many, and none waits for another where
// this node's signature was seen to hold.
func (b *publisher) signedRecord(h directory.Hash, payload []byte) (string, error) {
	doc := b.cfg.Source.KeyDocument()
	b.mu.Lock()
	if doc == nil || b.ready != issueOf(doc) {
		defer b.mu.Unlock()
		return b.signed(directory.TypeRecord, payload)
	}
	header, signature := b.known.of(h)
	b.mu.Unlock()
	if signature != "" {
		return protocol.JoinJWS(header, payload, signature), nil
	}
	text, err := b.cfg.Keys.Sign(directory.TypeRecord, payload)
	if err != nil {
		return "", fmt.Errorf("federation: sign: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready == issueOf(doc) { // else it may be by a key that is no longer listed
		b.known.add(h, text)
	}
	return text, nil
}

// The pace of gossip.
const (
	gossipEvery   = time.Second     // at most one page
	leaderSilence = 2 * time.Second // after which another member speaks
	gossipDigests = 48              // of which a page is surely under gossip.MaxMessage
)

// A tail makes the pages that are gossiped: from just below the tip.
type tail struct{ from uint64 }

// page returns a page of the newest digests, nil where there is none above what
// was given before.
func (t *tail) page(b *publisher) (*madePage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ds, to, at := b.cfg.Source.Digests(directory.Mesh, t.from, protocol.MaxDigests)
	for to < at && len(ds) > 0 {
		t.from = ds[len(ds)-1].Revision
		ds, to, at = b.cfg.Source.Digests(directory.Mesh, t.from, protocol.MaxDigests)
	}
	if n := len(ds) - gossipDigests; n > 0 {
		t.from, ds = ds[n-1].Revision, ds[n:]
	}
	if len(ds) == 0 {
		return nil, nil
	}
	return b.sign(directory.Mesh, ds, t.from, to, at)
}
