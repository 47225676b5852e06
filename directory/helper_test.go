package directory_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// update writes the golden files anew. A format that peers have seen never
// changes: a changed golden file is a new format.
var update = flag.Bool("update", false, "write the golden files anew")

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	gamma = spiffeid.RequireTrustDomainFromString("gamma.test")
)

// noon is 2026-06-01T12:00:00Z.
const noon = 1780315200

// rid returns a registration id that only n decides.
func rid(n byte) directory.RID {
	return directory.NewRID(noon*1000, [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, n})
}

func hash(s string) directory.Hash { return directory.HashOf([]byte(s)) }

func mustIdentity(t testing.TB, s string) directory.Identity {
	t.Helper()

	id, err := directory.ParseIdentity(s)
	if err != nil {
		t.Fatal(err)
	}

	return id
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

// golden compares got with a file of testdata, byte for byte.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()

	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if string(got) != string(want) {
		t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
}

// wantRefusal demands that err is a refusal with that problem and pointer, and a
// sentence.
func wantRefusal(t *testing.T, err error, p directory.Problem, pointer string) {
	t.Helper()

	var e *directory.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a refusal as %s", err, p)
	}

	if e.Problem != p || e.Pointer != pointer || len(e.Detail) < 10 {
		t.Errorf("got %s at %q: %s; want %s at %q", e.Problem, e.Pointer, e.Detail, p, pointer)
	}
}
