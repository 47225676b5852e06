package kinds_test

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// Nodes take each other's projections where both say that they are of one version.
// So what a version makes of these documents never changes: where it does,
// PackedVersion grows.
func TestPackedVersionIsOfWhatIsPacked(t *testing.T) {
	var all []byte
	for _, d := range []struct {
		kind        directory.Kind
		agent, body string
	}{
		{directory.KindAD, "agent", jimenez41}, {directory.KindAIDIP, "agent-12345", cui3},
		{directory.KindA2A, "agent", card},
		{directory.KindOASF, "agent", oasfRecord},
		{directory.KindProfile, "https://example.net/agents/minimal", xu131}, {directory.KindWoA, "agent", gaikwadB},
	} {
		doc := mustDocument(t, d.kind, d.body)
		p := mustProject(t, d.agent, doc)
		code := directory.Pack(doc, p).Code()

		all = append(all, code...)
		if directory.LoadPacked(code) != directory.Pack(doc, p) {
			t.Errorf("%s: the code is of something else", d.kind)
		}
	}

	const version, want = 2, "IGp-uk-Bo-w2BC1G6OAEFulvBZlscgd3UR5Q_pRQAD8"
	if got := directory.HashOf(all).String(); directory.PackedVersion != version || got != want {
		t.Errorf("version %d makes %s; this test knows version %d with %s", directory.PackedVersion, got, version, want)
	}
}
