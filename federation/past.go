package federation

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The key documents of an origin that are kept beside the newest: a page is shown to
// others by one that lists its key, and an origin could else escape evidence by
// signing with another key (federation.md, "Evidence"). Where there is no room for
// one more, none goes that was the newest within pastFor; the origin waits instead.
// A key that is revoked needs none, since what it signed convicts nobody: so no
// revocation ever waits.
const (
	maxPast     = 64
	maxPastSize = 8 << 20 // bytes of all of them
	pastFor     = time.Hour
)

var errKeysPace = errors.New("it drops keys faster than what they signed can be compared: it has to revoke them, or to wait")

// A pastDocument is a key document that was an origin's newest.
type pastDocument struct {
	text  string
	until time.Time // when another took its place, or this node started
	doc   *signed.KeyDocument
}

// superseded returns what is kept of an origin once doc is its newest key document:
// of each key that was listed and isn't mentioned any more, the newest document that
// listed it. o.change is held.
func (kh *keyHistory) superseded(doc *signed.KeyDocument) ([]pastDocument, error) {
	old := kh.past
	if was := parseKeys(kh.newest); was != nil {
		old = append([]pastDocument{{kh.newest, time.Now(), was}}, old...)
	}
	var kept []pastDocument
	covered, size := map[string]bool{}, 0
	for _, d := range old {
		needed := false
		for _, k := range d.doc.Keys {
			id := k.KeyID()
			if _, err := doc.Key(id); errors.Is(err, signed.ErrKeyUnknown) && !covered[id] {
				covered[id], needed = true, true
			}
		}
		if needed {
			kept, size = append(kept, d), size+len(d.text)
		}
	}
	for len(kept) > maxPast || size > maxPastSize {
		oldest := kept[len(kept)-1]
		if time.Since(oldest.until) < pastFor {
			return nil, errKeysPace
		}
		kept, size = kept[:len(kept)-1], size-len(oldest.text)
	}
	return kept, nil
}

// adopt has the keyring take a key document, and keeps on disk beside it those that
// superseded returns. One that there is no room for is not adopted. One that is known
// is a sign of life where a node of the origin shows it (first-hand): others may
// repeat it for as long as it holds.
func (o *origin) adopt(text string, firstHand bool) error {
	if err := o.streams.change.lock(o.store); err != nil {
		return err
	}
	defer o.streams.change.unlock()

	if o.streams.hasEnded() {
		return nil
	}
	if claimed := parseKeys(text); claimed != nil && text != o.keys.newest && !o.contradicts(claimed) {
		if _, err := o.keys.superseded(claimed); err != nil {
			return err
		}
	}
	if _, err := o.cfg.Keys.Adopt(o.domain, text); err != nil {
		return err
	}
	if firstHand {
		o.hear()
	}
	if doc, kept, ok := o.cfg.Keys.Keys(o.domain); ok {
		if err := o.doubt(doc); err != nil {
			return err
		}
		if kept != o.keys.newest {
			o.hear()
			if err := o.replaceKeys(doc, kept); err != nil {
				return err
			}
			o.moved() // subscribers hear of it
		}
	}
	return o.obey()
}

// hear notes that something verified came.
func (o *origin) hear() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.heard = time.Now()
}

// contradicts reports whether a document says that it is the newest one that is here,
// and so may be evidence (E3). It isn't adopted, and needs no room.
func (o *origin) contradicts(claimed *signed.KeyDocument) bool {
	doc, _, ok := o.cfg.Keys.Keys(o.domain)
	return ok && protocol.Issue(doc) == protocol.Issue(claimed)
}

// replaceKeys writes an origin's newest key document down. o.change is held.
func (o *origin) replaceKeys(doc *signed.KeyDocument, text string) error {
	past, err := o.keys.superseded(doc)
	if err != nil {
		return err
	}

	texts := make([]string, 0, len(past))
	for _, d := range past {
		texts = append(texts, d.text)
	}
	st := o.saved(o.streams.shown.index.Clock.Now())
	st.Keys = text

	if err := o.store.SaveKeys(o.domain, texts, st); err != nil {
		return err
	}

	o.keys.replace(text, past)

	return nil
}

// parseKeys takes a document apart, and verifies nothing; nil for what is none.
func parseKeys(text string) *signed.KeyDocument {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return nil
	}
	doc, err := signed.ParseKeyDocument(parts.Payload)
	if err != nil {
		return nil
	}
	return doc
}

// loadPast returns the key documents that replaceKeys kept.
func (o *origin) loadPast(td spiffeid.TrustDomain) (all []pastDocument, err error) {
	texts, err := o.store.PastKeys(td)
	for _, text := range texts {
		if doc := parseKeys(text); doc != nil {
			all = append(all, pastDocument{text, time.Now(), doc})
		}
	}
	return all, err
}

// newestText returns the newest document, "" for none.
func (kh *keyHistory) newestText() string {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	return kh.newest
}

// replace makes a document the newest. The origin's change is held.
func (kh *keyHistory) replace(newest string, past []pastDocument) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	kh.newest = newest
	kh.past = past
}

// revokedKeys returns the revoked keys of which nothing is held.
func (kh *keyHistory) revokedKeys() map[string]bool {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	return kh.revoked
}

func (kh *keyHistory) setRevoked(revoked map[string]bool) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	kh.revoked = revoked
}

// issued returns the key documents of an origin that there are, the newest first.
func (kh *keyHistory) issued() []string {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	all := []string{kh.newest}
	for _, d := range kh.past {
		all = append(all, d.text)
	}
	return all
}

// issuedFor returns the newest key document here that lists a key, "" for none.
func (kh *keyHistory) issuedFor(kid string) string {
	kh.mu.Lock()
	all := append([]pastDocument{{text: kh.newest}}, kh.past...)
	kh.mu.Unlock()
	all[0].doc = parseKeys(all[0].text)
	for _, d := range all {
		if d.doc == nil {
			continue
		}
		if _, err := d.doc.Key(kid); err == nil {
			return d.text
		}
	}
	return ""
}

// documentFor is issuedFor of another domain.
func (h *holdings) documentFor(td spiffeid.TrustDomain, kid string) string {
	if o := h.origins.get(td); o != nil {
		return o.keys.issuedFor(kid)
	}
	return ""
}

// oldPage takes a page of one of the origin's streams apart whose signature can't be
// checked by the newest key document; nil for what is no such page.
func (g *gate) oldPage(o *origin, text string) *verifiedPage {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return nil
	}
	page, err := g.cfg.Dialect.ParsePage(parts.Payload)
	if err != nil || page.Issuer != o.domain || o.streams.pair.feedOf(page.Audience) == nil {
		return nil
	}
	return &verifiedPage{Page: page, text: text, kid: protocol.KeyIDOf(parts.Header)}
}
