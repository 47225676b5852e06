package invoke_test

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// rid returns a registration id that only n decides.
func rid(n byte) directory.RID {
	return directory.NewRID(1780315200000, [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, n})
}

func mustDocument(t testing.TB, kind directory.Kind, body string) directory.Document {
	t.Helper()

	d, err := directory.ParseDocument(kind, []byte(body))
	if err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}

	return d
}

func mustProject(t testing.TB, agent string, d directory.Document) *directory.Projection {
	t.Helper()

	p, err := kinds.Project(agent, d)
	if err != nil {
		t.Fatalf("%.200s: %v", d.Bytes(), err)
	}

	return p
}
