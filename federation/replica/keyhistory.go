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
	newest  keyDocument
	past    []keyDocument   // the newest first
	revoked map[string]bool // keys that no stored page or entry depends on
}

// Formats returns which formats the newest key document lists, and until when it holds.
func (kh *keyHistory) Formats() (formats signed.Formats, until time.Time, known bool) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	if kh.newest.doc == nil {
		return nil, until, false
	}

	return kh.newest.doc.Formats, time.Unix(kh.newest.doc.Expires, 0), true
}

// NewestText returns the newest document, "" for none.
func (kh *keyHistory) NewestText() string {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	return kh.newest.text
}

// replace sets the newest document and the earlier ones. The caller holds change.
func (kh *keyHistory) replace(newest string, past []keyDocument) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	kh.newest = keyDocument{text: newest, doc: ParseKeys(newest)}
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

// documents returns the stored key documents of an origin, the newest first.
func (kh *keyHistory) documents() (all []keyDocument) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	if kh.newest.doc != nil {
		all = append(all, kh.newest)
	}

	return append(all, kh.past...)
}

// Issued returns the texts of the stored key documents of an origin, the newest first.
func (kh *keyHistory) Issued() (texts []string) {
	for _, document := range kh.documents() {
		texts = append(texts, document.text)
	}

	return texts
}

// IssuedFor returns the newest stored key document that lists a key, or "".
func (kh *keyHistory) IssuedFor(kid string) string {
	for _, document := range kh.documents() {
		if _, err := document.doc.Key(kid); err == nil {
			return document.text
		}
	}

	return ""
}

// superseded returns the earlier documents to keep when doc becomes the newest: for each key
// that doc doesn't mention any more, the newest document that listed it. If there is no room, the
// oldest are dropped; it returns errKeysPace if they are too young for that. The caller holds change.
//
// Documents without a certified key have a room of their own. Otherwise a thief of an authority could
// fill the only one, and the origin's true document would have to wait after the authority was dropped.
// It is twice as large, because the thief's newest document joins those that filled the other.
func (kh *keyHistory) superseded(doc *signed.KeyDocument, certified func(signed.SigningKey) bool) ([]keyDocument,
	error) {
	old := kh.documents()
	if kh.newest.doc != nil {
		old[0].until = time.Now()
	}

	var kept []keyDocument

	covered := map[string]bool{}

	for _, document := range old {
		needed := false
		for _, k := range document.doc.Keys {
			id := k.KeyID()
			if _, err := doc.Key(id); errors.Is(err, signed.ErrKeyUnknown) && !covered[id] {
				covered[id], needed = true, true
			}
		}

		if needed {
			kept = append(kept, document)
		}
	}

	trusted, others := pastRoom{maxPast, maxPastSize}, pastRoom{2 * maxPast, 2 * maxPastSize}
	young := false

	kept = slices.DeleteFunc(kept, func(document keyDocument) bool {
		room := &trusted
		if !slices.ContainsFunc(document.doc.Keys, certified) {
			room = &others
		}

		full := !room.take(document)
		young = young || full && time.Since(document.until) < pastFor

		return full
	})

	if young {
		return nil, errKeysPace
	}

	return kept, nil
}

// A pastRoom is what is left of the room for earlier documents.
type pastRoom struct{ documents, size int }

// take takes the room of a document, and reports whether there was so much.
func (r *pastRoom) take(document keyDocument) bool {
	r.documents--
	r.size -= len(document.text)

	return r.documents >= 0 && r.size >= 0
}

// A keyDocument is a key document that is or was an origin's newest.
type keyDocument struct {
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
// within pastFor isn't dropped; the origin has to wait. A revoked key needs no document,
// because its signatures are invalid, so no revocation has to wait.
const (
	maxPast     = 64
	maxPastSize = 8 << 20 // bytes of all of them
	pastFor     = time.Hour
)

var errKeysPace = errors.New("the origin drops keys faster than their signatures can be compared; it must revoke " +
	"them or wait")
