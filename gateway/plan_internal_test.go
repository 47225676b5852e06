package gateway

import (
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// A plan counts as what it holds: the text of its document, however small that is at rest.
func TestPlansAreBoundedByWhatTheyHold(t *testing.T) {
	doc, err := directory.ParseDocument(directory.KindAD,
		[]byte(`{"base":"https://agents.example.com/a","notes":"`+strings.Repeat("a ", 15000)+`"}`))
	must(t, err)

	p, err := kinds.Project("agent", doc)
	must(t, err)

	e := &directory.Entry{Agent: "agent", Document: doc, Packed: directory.Pack(doc, p)}
	e.Compact()

	if small := len(e.Document.StoredBytes()); small > 1024 {
		t.Fatalf("the document has %d bytes at rest", small)
	}

	var kept plans

	most := 0
	for n := range byte(255) {
		for m := range byte(8) {
			e.RID = directory.NewRID(int64(m), [10]byte{n})
			kept.of(e, directory.Redaction{})
			most = max(most, len(kept.all))
		}
	}

	if held := most * len(doc.Bytes()); held > maxPlanBytes || most < 100 {
		t.Errorf("%d plans are kept, with documents of %d bytes", most, held)
	}
}
