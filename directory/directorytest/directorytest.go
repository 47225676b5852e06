// Package directorytest has the domains, identities, documents and assertions that the tests
// of several packages share.
package directorytest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// Must ends a test at an error.
func Must(t testing.TB, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

// DocumentOf returns a document of a size in bytes.
func DocumentOf(t testing.TB, size int) directory.Document {
	t.Helper()

	const base = `{"base":"https://ada.alpha.test","description":"`

	return Document(t, directory.KindAD, base+strings.Repeat("a", size-len(base)-2)+`"}`)
}

// Weighty returns a document of 1.4 KB as scenarios/load registers it.
func Weighty(i int) []byte {
	doc := fmt.Sprintf(`{"base":"https://agent-%08d.load.example/api","protocols":["%s","https"],"capabilities":[`+
		`{"name":"summarize-%03d","type":"tool","description":"Summarizes a given document.",`+
		`"tags":["tag-%02d","text"],`+
		`"input_schema":{"type":"object","properties":{"text":{"type":"string"},`+
		`"sentences":{"type":"integer","minimum":1,"maximum":20}},"required":["text"]}},`+
		`{"name":"translate","type":"tool","tags":["language"]}],"description":"`,
		i, []string{"a2a", "mcp", "grpc", "https"}[i/20%4], i%500, i%20)

	return []byte(doc + strings.Repeat("A sample agent that is registered to see how much a directory carries. ",
		20)[:1398-len(doc)] + `"}`)
}

// WantQuota reports an error unless err is a refusal with the key of a limit before its numbers.
func WantQuota(t testing.TB, err error, limit string, numbers ...int) {
	t.Helper()
	WantProblem(t, err, directory.QuotaExceeded)

	if err == nil || !strings.HasPrefix(err.Error(), limit+": ") {
		t.Errorf("the detail is %v; it begins with %s", err, limit)
		return
	}

	for _, n := range numbers {
		if !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("the detail is %v; it has not %d", err, n)
		}
	}
}

// Golden compares got with a file of testdata, byte for byte, or writes that anew.
func Golden(t testing.TB, write bool, name string, got []byte) {
	t.Helper()

	file := filepath.Join("testdata", name)
	if write {
		Must(t, os.WriteFile(file, got, 0o600))
	}

	want, err := os.ReadFile(file)
	Must(t, err)

	if string(got) != string(want) {
		t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
}
