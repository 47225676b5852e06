package federation

import (
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/signed"
)

// readFormats is what an origin's newest key document says of the formats that the
// origin reads.
type readFormats struct {
	text    string // of the document
	formats signed.Formats
	until   time.Time
}

// FormatsOf returns which formats a peer reads and until when that holds, by its
// newest key document, also if that has ended; known is false if none was received.
func (m *Mesh) FormatsOf(peer spiffeid.TrustDomain) (formats signed.Formats, until time.Time, known bool) {
	o := m.origins.get(peer)
	if o == nil {
		return nil, until, false
	}

	return o.keys.formats()
}

// formats returns which formats the newest key document lists, and until when it holds.
func (kh *keyHistory) formats() (formats signed.Formats, until time.Time, known bool) {
	kh.mu.Lock()
	defer kh.mu.Unlock()

	if kh.newest == "" {
		return nil, until, false
	}

	if kh.reads.text != kh.newest {
		doc := parseKeys(kh.newest)
		if doc == nil {
			return nil, until, false
		}
		kh.reads = readFormats{text: kh.newest, formats: doc.Formats, until: time.Unix(doc.Expires, 0)}
	}

	return kh.reads.formats, kh.reads.until, true
}
