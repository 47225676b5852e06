package directory_test

import (
	"errors"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

var alpha = spiffeid.RequireTrustDomainFromString("alpha.test")

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
