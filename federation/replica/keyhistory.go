package replica

import (
	"errors"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// keyHistory holds an origin's key documents: the newest, and earlier ones that list keys
// which the newest doesn't.
type keyHistory struct {
	mu      sync.Mutex // guards what follows; change is held as well when it is replaced
	Newest  string
	past    []pastDocument  // the newest first
	revoked map[string]bool // keys of which nothing is held
	reads   readFormats
}

// readFormats is what an origin's newest key document says of the formats that the
// origin reads.
type readFormats struct {
	text    string // of the document
	formats signed.Formats
	until   time.Time
}

// Formats returns which formats the newest key document lists, and until when it holds.
func (kh *keyHistory) Formats() (formats signed.Formats, until time.Time, known bool) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	if kh.Newest == "" {
		return nil, until, false
	}

	if kh.reads.text != kh.Newest {
		doc := ParseKeys(kh.Newest)
		if doc == nil {
			return nil, until, false
		}

		kh.reads = readFormats{text: kh.Newest, formats: doc.Formats, until: time.Unix(doc.Expires, 0)}
	}

	return kh.reads.formats, kh.reads.until, true
}

// NewestText returns the newest document, "" for none.
func (kh *keyHistory) NewestText() string {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	return kh.Newest
}

// replace makes a document the newest. The origin's change is held.
func (kh *keyHistory) replace(newest string, past []pastDocument) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	kh.Newest = newest
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

// Issued returns the key documents of an origin that there are, the newest first.
func (kh *keyHistory) Issued() []string {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	all := []string{kh.Newest}
	for _, d := range kh.past {
		all = append(all, d.text)
	}

	return all
}

// IssuedFor returns the newest key document here that lists a key, "" for none.
func (kh *keyHistory) IssuedFor(kid string) string {
	kh.mu.Lock()
	all := append([]pastDocument{{text: kh.Newest}}, kh.past...)
	kh.mu.Unlock()

	all[0].doc = ParseKeys(all[0].text)
	for _, document := range all {
		if document.doc == nil {
			continue
		}

		if _, err := document.doc.Key(kid); err == nil {
			return document.text
		}
	}

	return ""
}

// superseded returns what is kept of an origin once doc is its newest key document:
// of each key that was listed and isn't mentioned any more, the newest document that
// listed it. o.change is held.
func (kh *keyHistory) superseded(doc *signed.KeyDocument) ([]pastDocument, error) {
	old := kh.past
	if was := ParseKeys(kh.Newest); was != nil {
		old = append([]pastDocument{{kh.Newest, time.Now(), was}}, old...)
	}

	var kept []pastDocument

	covered, size := map[string]bool{}, 0
	for _, document := range old {
		needed := false
		for _, k := range document.doc.Keys {
			id := k.KeyID()
			if _, err := doc.Key(id); errors.Is(err, signed.ErrKeyUnknown) && !covered[id] {
				covered[id], needed = true, true
			}
		}

		if needed {
			kept, size = append(kept, document), size+len(document.text)
		}
	}

	for len(kept) > MaxPast || size > maxPastSize {
		oldest := kept[len(kept)-1]
		if time.Since(oldest.until) < PastFor {
			return nil, ErrKeysPace
		}

		kept, size = kept[:len(kept)-1], size-len(oldest.text)
	}

	return kept, nil
}

// A pastDocument is a key document that was an origin's newest.
type pastDocument struct {
	text  string
	until time.Time // when another took its place, or this node started
	doc   *signed.KeyDocument
}

// ParseKeys takes a document apart, and verifies nothing; nil for what is none.
func ParseKeys(text string) *signed.KeyDocument {
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

// The key documents of an origin that are kept beside the newest: a page is shown to
// others by one that lists its key, and an origin could else escape evidence by
// signing with another key (federation.md, "Evidence"). Where there is no room for
// one more, none goes that was the newest within pastFor; the origin waits instead.
// A key that is revoked needs none, since what it signed is not valid: so no
// revocation ever waits.
const (
	MaxPast     = 64
	maxPastSize = 8 << 20 // bytes of all of them
	PastFor     = time.Hour
)

var ErrKeysPace = errors.New("the origin drops keys faster than their signatures can be compared; it must revoke " +
	"them or wait")
