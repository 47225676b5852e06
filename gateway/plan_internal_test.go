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

// The plan of a version is made once, and the one of the version before counts no more. So many plans are
// kept at most, however small they are.
func TestPlansAreKeptForAVersion(t *testing.T) {
	entry := func(document string) *directory.Entry {
		doc, err := directory.ParseDocument(directory.KindAD, []byte(document))
		must(t, err)

		p, err := kinds.Project("agent", doc)
		must(t, err)

		return &directory.Entry{Agent: "agent", Document: doc, Packed: directory.Pack(doc, p)}
	}

	const schema = `{"type":"object"}`

	one := entry(`{"base":"https://agents.example.com/a","protocols":["MCP"]}`)
	two := entry(`{"base":"https://agents.example.com/a","capabilities":[{"name":"say","type":"tool","input_schema":` +
		schema + `}]}`)

	var kept plans

	first := kept.of(one, directory.Redaction{})
	if kept.of(one, directory.Redaction{}) != first || first.binding.Protocol != protocolMCP || first.schemas != 0 {
		t.Errorf("the plan of a version is made anew: %+v", first)
	}

	second := kept.of(two, directory.Redaction{})
	if kept.bytes != second.size || len(kept.all) != 1 || second.schemas != len(schema) {
		t.Errorf("%d bytes are counted, of a plan of %d with schemas of %d", kept.bytes, second.size, second.schemas)
	}

	for n := range maxPlans + 1 {
		one.RID = directory.NewRID(int64(n+1), [10]byte{})
		kept.of(one, directory.Redaction{})
	}

	if len(kept.all) > maxPlans {
		t.Errorf("%d plans are kept", len(kept.all))
	}
}
