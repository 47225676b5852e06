package state

import (
	"io"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	ada   = directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/agent/ada"))
	bob   = directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/agent/bob"))
	tool  = directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/tool/commissioner"))
)

func document(t testing.TB, extra string) directory.Document {
	t.Helper()

	d, err := directory.ParseDocument(directory.KindAD,
		[]byte(`{"base":"https://ada.alpha.test/`+extra+
			`","protocols":["https"],"capabilities":[{"name":"translate","type":"skill"}]}`))
	if err != nil {
		t.Fatal(err)
	}

	return d
}

func problem(t testing.TB, err error, want directory.Problem) {
	t.Helper()

	if err == nil || directory.ProblemOf(err) != want {
		t.Errorf("got %v, want a refusal with %s", err, want)
	}
}

func alphaNode(name string) (spiffeid.ID, error) {
	return spiffeid.FromString("spiffe://alpha.test/roster/node/" + name)
}

// newer are the versions that a release reads that has a format 2 of pages and heads.
func newer() Versions {
	reads := older()
	reads.Formats = signed.Formats{signed.StructureHead: {1, 2}, signed.StructurePage: {1, 2}}

	return reads
}

// older are the versions that a release reads that has the first version of everything.
func older() Versions { return Versions{Log: 1, Snapshot: 1, Wire: 1} }

// readSnapshot reads a snapshot in one goroutine.
func readSnapshot(
	r io.Reader, domain spiffeid.TrustDomain, index *index.Index, h *Header,
) (s *State, err error) {
	s, *h, err = Read(r, domain, index, Parallel{})

	return s, err
}
