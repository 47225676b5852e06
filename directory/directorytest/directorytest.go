// Package directorytest has the domains, identities, documents and assertions that the tests
// of several packages share.
package directorytest

import (
	"errors"
	"os"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// The domains of tests, and two agents of the first.
var (
	Alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	Beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	Gamma = spiffeid.RequireTrustDomainFromString("gamma.test")
	Ada   = directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/agent/ada"))
	Bob   = directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/agent/bob"))
)

// Full reports whether tests run in full, with every byte, seed and round: STORIES asks for it, or
// STORY_LONG for more. Otherwise a sample of those has to do.
func Full() bool {
	return !testing.Short() && (os.Getenv("STORIES") != "" || os.Getenv("STORY_LONG") != "")
}

// Sample returns n if tests run in full, else short.
func Sample(n, short int) int {
	if !Full() {
		return short
	}

	return n
}

// Noon is 2026-06-01T12:00:00Z, in Unix seconds.
const Noon = 1780315200

// RID returns a registration id of Noon that only n decides.
func RID(n byte) directory.RID {
	return directory.NewRID(Noon*1000, [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, n})
}

// Hash returns the hash of a text.
func Hash(s string) directory.Hash { return directory.HashOf([]byte(s)) }

// Identity returns the identity in s.
func Identity(t testing.TB, s string) directory.Identity {
	t.Helper()

	id, err := directory.ParseIdentity(s)
	if err != nil {
		t.Fatal(err)
	}

	return id
}

// Node returns the id of a node of Alpha.
func Node(name string) (spiffeid.ID, error) {
	return spiffeid.FromString("spiffe://alpha.test/roster/node/" + name)
}

// Document returns the document in body.
func Document(t testing.TB, kind directory.Kind, body string) directory.Document {
	t.Helper()

	d, err := directory.ParseDocument(kind, []byte(body))
	if err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}

	return d
}

// Translator returns the document of an agent at the address of Ada with a path.
func Translator(t testing.TB, path string) directory.Document {
	t.Helper()

	return Document(t, directory.KindAD, `{"base":"https://ada.alpha.test/`+path+
		`","protocols":["https"],"capabilities":[{"name":"translate","type":"skill"}]}`)
}

// Project returns the projection of d, as an agent registers it.
func Project(t testing.TB, agent string, d directory.Document) *directory.Projection {
	t.Helper()

	p, err := kinds.Project(agent, d)
	if err != nil {
		t.Fatalf("%.200s: %v", d.Bytes(), err)
	}

	return p
}

// WantProblem reports an error unless err is a refusal with a problem.
func WantProblem(t testing.TB, err error, want directory.Problem) {
	t.Helper()

	if err == nil || directory.ProblemOf(err) != want {
		t.Errorf("got %v, want a refusal with %s", err, want)
	}
}

// WantRefusal reports an error unless err is a refusal with a problem, a pointer ("" for
// none) and a sentence.
func WantRefusal(t testing.TB, err error, want directory.Problem, pointer string) {
	t.Helper()

	var refusal *directory.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal as %s", err, want)
	}

	if refusal.Problem != want || refusal.Pointer != pointer || len(refusal.Detail) < 10 {
		t.Errorf("got %s at %q: %s; want %s at %q", refusal.Problem, refusal.Pointer, refusal.Detail, want, pointer)
	}
}
