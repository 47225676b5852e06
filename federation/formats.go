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

	o.mu.Lock()
	defer o.mu.Unlock()

	if o.keysText == "" {
		return nil, until, false
	}
	if o.reads.text != o.keysText {
		doc := parseKeys(o.keysText)
		if doc == nil {
			return nil, until, false
		}
		o.reads = readFormats{text: o.keysText, formats: doc.Formats, until: time.Unix(doc.Expires, 0)}
	}

	return o.reads.formats, o.reads.until, true
}
