package federation

import (
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
)

// Requirement: FORM-002
func TestFormatsInWhichADomainIsWritten(t *testing.T) {
	source := newModel(alpha, beta)
	ring := newKeyring(alpha, "alpha", source)
	source.listKeys(nil, ring)
	rid := source.register("translator", 600)
	source.grant(rid, directory.Only(beta), true)
	publisher := publish.New(alpha, source, ring,
		signed.Dialect{Formats: signed.Formats{signed.StructurePage: {1, 2, 3}, signed.StructureHead: {1, 2}}}, nil)

	formats := func(aud directory.Audience) string {
		t.Helper()

		page, err := publisher.Page(aud, 0, 10, true)
		if err != nil || page == nil {
			t.Fatalf("no page for %s: %v", aud, err)
		}

		head, err := publisher.Head()
		must(t, err)

		return writtenFormat(t, page.Text) + writtenFormat(t, head)
	}
	adopts := func(reads signed.Formats) {
		ring.adopted[beta] = adoptedKeys{doc: &signed.KeyDocument{Issuer: beta, Formats: reads}}
	}

	// The mesh's are in the format in force, whatever this node or the peer reads.
	if got := formats(directory.Mesh); got != "11" {
		t.Errorf("page and head are in %s", got)
	}

	adopts(signed.Formats{signed.StructurePage: {1, 2}})

	source.formats = map[signed.Structure]uint{signed.StructureHead: 2}
	if got := formats(directory.Mesh); got != "12" {
		t.Errorf("with heads of format 2 in force page and head are in %s", got)
	}

	// A private stream's are in the highest that its audience reads and this node writes.
	private := directory.Only(beta)
	for _, c := range []struct {
		reads signed.Formats
		want  string
	}{
		{signed.Formats{signed.StructurePage: {1, 2}}, "2"},
		{signed.Formats{signed.StructurePage: {1, 2, 3, 4}}, "3"},
		{nil, "1"},
	} {
		adopts(c.reads)

		if got := formats(private); got[:1] != c.want {
			t.Errorf("a private page for a reader of %v is in format %s, want %s", c.reads, got[:1], c.want)
		}
	}

	delete(ring.adopted, beta)

	if got := formats(private); got[:1] != "1" {
		t.Errorf("a private page for a reader that nothing is known of is in format %s", got[:1])
	}
}

// writtenFormat returns the number of the format of a signed structure.
func writtenFormat(t *testing.T, text string) string {
	t.Helper()

	parts, err := protocol.SplitJWS(text)
	must(t, err)

	_, number, _ := strings.Cut(string(parts.Payload), `{"v":`)
	number, _, _ = strings.Cut(number, ",")

	return number
}
