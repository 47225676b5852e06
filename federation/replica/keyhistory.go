package replica

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// keyHistory holds an origin's key documents: the newest, and earlier ones that list keys
// which the newest doesn't.
type keyHistory struct {
	mu      sync.Mutex // guards the fields below; change is held too when newest is replaced
	newest  string
	past    []pastDocument  // the newest first
	revoked map[string]bool // keys that no stored page or entry depends on
	reads   readFormats
}

// readFormats caches the formats that an origin reads, from its newest key document.
type readFormats struct {
	text    string // of the document
	formats signed.Formats
	until   time.Time
}

// Formats returns which formats the newest key document lists, and until when it holds.
func (kh *keyHistory) Formats() (formats signed.Formats, until time.Time, known bool) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	if kh.newest == "" {
		return nil, until, false
	}

	if kh.reads.text != kh.newest {
		doc := ParseKeys(kh.newest)
		if doc == nil {
			return nil, until, false
		}

		kh.reads = readFormats{text: kh.newest, formats: doc.Formats, until: time.Unix(doc.Expires, 0)}
	}

	return kh.reads.formats, kh.reads.until, true
}

// NewestText returns the newest document, "" for none.
func (kh *keyHistory) NewestText() string {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	return kh.newest
}

// replace sets the newest document and the earlier ones. The caller holds change.
func (kh *keyHistory) replace(newest string, past []pastDocument) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	kh.newest = newest
	kh.past = past
}

// revokedKeys returns the revoked keys that no stored page or entry depends on.
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

// Issued returns the stored key documents of an origin, the newest first.
func (kh *keyHistory) Issued() []string {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	all := []string{kh.newest}
	for _, d := range kh.past {
		all = append(all, d.text)
	}

	return all
}

// documents returns the stored key documents of an origin, the newest first.
func (kh *keyHistory) documents() (all []*signed.KeyDocument) {
	kh.mu.Lock()
	newest, past := kh.newest, kh.past
	kh.mu.Unlock()

	if doc := ParseKeys(newest); doc != nil {
		all = append(all, doc)
	}

	for _, document := range past {
		all = append(all, document.doc)
	}

	return all
}

// IssuedFor returns the newest stored key document that lists a key, or "".
func (kh *keyHistory) IssuedFor(kid string) string {
	kh.mu.Lock()
	all := append([]pastDocument{{text: kh.newest}}, kh.past...)
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

// superseded returns the earlier documents to keep when doc becomes the newest: for each key
// that doc doesn't mention any more, the newest document that listed it. It returns
// ErrKeysPace if there is no room and none of them may be dropped yet. If there is no room, it
// drops those of which no key is certified. The caller holds change.
func (kh *keyHistory) superseded(doc *signed.KeyDocument, certified func(signed.SigningKey) bool) ([]pastDocument,
	error) {
	old := kh.past
	if was := ParseKeys(kh.newest); was != nil {
		old = append([]pastDocument{{kh.newest, time.Now(), was}}, old...)
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

	if len(kept) > MaxPast || size > maxPastSize {
		kept = slices.DeleteFunc(kept, func(d pastDocument) bool { return !slices.ContainsFunc(d.doc.Keys, certified) })
		size = sizeOf(kept)
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

func sizeOf(documents []pastDocument) (size int) {
	for _, document := range documents {
		size += len(document.text)
	}

	return size
}

// A pastDocument is a key document that was an origin's newest.
type pastDocument struct {
	text  string
	until time.Time // when it was replaced, or when this node started
	doc   *signed.KeyDocument
}

// ParseKeys parses a key document without verifying it; nil if it is malformed.
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

// The bounds of an origin's earlier key documents. A page is proven to others by a document
// that lists its key. Without earlier documents, an origin could escape evidence by changing
// its key (federation.md, "Evidence"). If there is no room, a document that was the newest
// within PastFor isn't dropped; the origin has to wait. A revoked key needs no document,
// because its signatures are invalid, so no revocation has to wait.
const (
	MaxPast     = 64
	maxPastSize = 8 << 20 // bytes of all of them
	PastFor     = time.Hour
)

var ErrKeysPace = errors.New("the origin drops keys faster than their signatures can be compared; it must revoke " +
	"them or wait")
