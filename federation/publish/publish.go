package publish

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ErrNotReady means that this node can't sign for its domain yet: no issued key document lists
// its key.
var ErrNotReady = errors.New("this node's key is not in its domain's key document yet")

// A PageKey is the parameters of a request for a page.
type PageKey struct {
	aud    directory.Audience
	since  uint64
	limit  int
	format uint
}

type Page struct {
	*signed.Page
	Text string
}

// A Publisher makes pages and heads of the own domain. They are not stored: a page is a scan
// of the state (rule G2). The last pages are cached, because all subscribers request the same
// page at the same time.
type Publisher struct {
	domain  spiffeid.TrustDomain
	Source  Source
	keys    signer
	dialect signed.Dialect
	clock   *directory.CheckedClock

	mu    sync.Mutex
	Pages map[PageKey]Page
	ready directory.Position // issue of the key document last found to list the signing key
	known signatures         // of statements
}

// A signer signs as this node and returns the newest key documents.
type signer interface {
	Sign(typ string, payload []byte) (string, error)
	Keys(origin spiffeid.TrustDomain) (doc *signed.KeyDocument, jws string, ok bool)
}

// New returns a publisher of a domain. A nil clock is the wall clock.
func New(domain spiffeid.TrustDomain, source Source, keys signer, dialect signed.Dialect,
	clock *directory.CheckedClock) *Publisher {
	return &Publisher{domain: domain, Source: source, keys: keys, dialect: dialect, clock: clock,
		Pages: map[PageKey]Page{}}
}

// maxMade bounds the cached pages, each of at most protocol.MaxPage bytes.
const maxMade = 32

// Page returns a signed page of the own domain's stream, or nil if there is nothing above
// since. An empty page means that all entries announced since then have ended (rule G5). No
// head names the tip of a private stream. If tell is true, an empty page therefore states
// that nothing is new there.
func (b *Publisher) Page(aud directory.Audience, since uint64, limit int, tell bool) (*Page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	told := tell && aud != directory.Mesh && b.Source.Position().Revision > since
	if b.Source.Tip(aud) <= since && !told {
		return nil, nil
	}

	key := PageKey{aud, since, limit, b.pageFormat(aud)}

	// A page is complete as of one position, so a cached page serves while the position stays. A confirmed step of the
	// clocks may have left its time in the future.
	if made, ok := b.Pages[key]; ok && made.IssuedAt <= b.clock.Now().Unix() &&
		(directory.Position{Epoch: made.Epoch, Revision: made.At}) == b.Source.Position() {
		return &made, nil
	}

	ds, to, at := b.Source.Digests(aud, since, limit)

	made, err := b.sign(aud, ds, since, to, at)
	if err != nil {
		return nil, err
	}

	if len(b.Pages) >= maxMade {
		clear(b.Pages)
	}

	b.Pages[key] = *made

	return made, nil
}

// EntryPage returns a page, signed now, of nothing but the entry at a revision of a stream; nil
// if that entry has changed since. It is complete between the two revisions that it names, as every
// page (rule G2).
func (b *Publisher) EntryPage(aud directory.Audience, revision uint64) (*Page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	ds, _, at := b.Source.Digests(aud, revision-1, 1)
	if len(ds) != 1 || ds[0].Revision != revision {
		return nil, nil
	}

	return b.sign(aud, ds, revision-1, revision, at)
}

func (b *Publisher) sign(aud directory.Audience, ds []signed.Digest, from, to, at uint64) (*Page, error) {
	page := &signed.Page{
		Format: b.pageFormat(aud), Issuer: b.domain, Epoch: b.Source.Position().Epoch, Audience: aud,
		From: from, To: to, At: at, IssuedAt: b.clock.Now().Unix(), Digests: ds,
	}

	text, err := b.signed(signed.TypePage, page.Payload())
	if err != nil {
		return nil, err
	}

	return &Page{page, text}, nil
}

// signed signs a payload if the domain's key document lists this node's key, because peers
// would refuse other signatures. Otherwise it returns ErrNotReady.
func (b *Publisher) signed(typ string, payload []byte) (string, error) {
	doc := b.Source.KeyDocument()
	if doc == nil {
		return "", ErrNotReady
	}

	text, err := b.keys.Sign(typ, payload)
	if err != nil {
		return "", fmt.Errorf("federation: sign: %w", err)
	}

	if b.ready != protocol.Issue(doc) {
		// The key is looked up in this document, because the keyring may still have the one before.
		parts, err := protocol.SplitJWS(text)
		kid := protocol.KeyIDOf(parts.Header)

		if err == nil {
			_, err = doc.Key(kid)
		}

		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrNotReady, err)
		}

		b.ready = protocol.Issue(doc)
		b.known.keepBy(kid)
	}

	return text, nil
}

// Head returns the own domain's signed head (rule G5).
func (b *Publisher) Head() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	doc := b.Source.KeyDocument()
	if doc == nil {
		return "", ErrNotReady
	}

	tip := b.Source.Tip(directory.Mesh) // before the position, so that it doesn't exceed it
	size, root := b.Source.Ledger()
	at := b.Source.Position()
	h := &signed.Head{Format: b.Source.Format(signed.StructureHead), Issuer: b.domain, Epoch: at.Epoch, Tip: tip,
		At: at.Revision, Size: size, Root: root,
		Keys: directory.HashOf(doc.Payload()), IssuedAt: b.clock.Now().Unix()}

	return b.signed(signed.TypeHead, h.Payload())
}

// Record returns a record of the own domain with the disclosures of that stream.
func (b *Publisher) Record(aud directory.Audience, name protocol.RecordName) (protocol.RecordParts, bool, error) {
	payload, disclosures, ok := b.Source.Record(aud, name.H, name.M)
	if !ok {
		return protocol.RecordParts{}, false, nil
	}

	header, signature, err := b.signedRecord(name.H, payload)
	if err != nil {
		return protocol.RecordParts{}, false, err
	}

	return protocol.RecordParts{Header: header, Payload: payload, Signature: signature, Disclosures: disclosures},
		true, nil
}

// signedRecord signs a record as signed does, and returns the other parts of the JWS than the
// payload. Records are many; once this node's key was found in the key document, they are signed
// concurrently.
func (b *Publisher) signedRecord(hash directory.Hash, payload []byte) (header, signature string, err error) {
	doc := b.Source.KeyDocument()
	b.mu.Lock()
	if doc == nil || b.ready != protocol.Issue(doc) {
		defer b.mu.Unlock()

		text, err := b.signed(signed.TypeRecord, payload)
		if err != nil {
			return "", "", err
		}

		b.known.add(hash, text)
		header, signature = partsOf(text)

		return header, signature, nil
	}

	header, signature = b.known.of(hash)
	b.mu.Unlock()

	if signature != "" {
		return header, signature, nil
	}

	text, err := b.keys.Sign(signed.TypeRecord, payload)
	if err != nil {
		return "", "", fmt.Errorf("federation: sign: %w", err)
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if b.ready == protocol.Issue(doc) { // else it may be by a key that is no longer listed
		b.known.add(hash, text)
	}

	header, signature = partsOf(text)

	return header, signature, nil
}

// partsOf returns the header and the signature of a JWS, both encoded.
func partsOf(jws string) (header, signature string) {
	header, _, _ = strings.Cut(jws, ".")
	return header, jws[strings.LastIndexByte(jws, '.')+1:]
}

// GossipDigests bounds the digests of a gossiped page, so that it is under gossip.MaxMessage.
const GossipDigests = 48

// A GossipCursor makes the pages to gossip, which begin just below the tip.
type GossipCursor struct {
	From uint64 // revision after which the next page begins
}

// GossipPage returns a page of the newest digests, or nil if there is none above the cursor's
// previous page.
func (b *Publisher) GossipPage(cursor *GossipCursor) (*Page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	ds, to, at := b.Source.Digests(directory.Mesh, cursor.From, protocol.MaxDigests)

	// Older digests are skipped: a member that lacks them finds a gap and pulls.
	for to < at && len(ds) > 0 {
		cursor.From = ds[len(ds)-1].Revision
		ds, to, at = b.Source.Digests(directory.Mesh, cursor.From, protocol.MaxDigests)
	}

	if n := len(ds) - GossipDigests; n > 0 {
		cursor.From, ds = ds[n-1].Revision, ds[n:]
	}

	if len(ds) == 0 {
		return nil, nil
	}

	return b.sign(directory.Mesh, ds, cursor.From, to, at)
}

// pageFormat returns the format of the next page of a stream: of the mesh's the one
// that is in force in the domain, of a private one the highest that its audience
// reads. An audience without a known key document reads format 1.
func (b *Publisher) pageFormat(aud directory.Audience) uint {
	if aud == directory.Mesh {
		return b.Source.Format(signed.StructurePage)
	}

	reader, err := spiffeid.TrustDomainFromString(aud.String())
	if err != nil {
		return 1
	}

	doc, _, known := b.keys.Keys(reader)
	if !known {
		return 1
	}

	return b.dialect.Formats.Common(doc.Formats).Highest(signed.StructurePage)
}
