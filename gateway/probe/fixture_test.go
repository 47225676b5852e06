package probe_test

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// entry registers a document as that of spiffe://alpha.test/agent/alpha.
func entry(t testing.TB, kind directory.Kind, name, document string) *directory.Entry {
	t.Helper()

	doc, err := directory.ParseDocument(kind, []byte(document))
	if err != nil {
		t.Fatal(err)
	}

	projection, err := kinds.Project(name, doc)
	if err != nil {
		t.Fatal(err)
	}

	domain := spiffeid.RequireTrustDomainFromString("alpha.test")

	return &directory.Entry{
		Origin: domain, RID: directory.NewRID(1, [10]byte{}), Agent: name,
		Owner:    directory.IdentityOf(spiffeid.RequireFromPath(domain, "/agent/alpha")),
		Document: doc, Packed: directory.Pack(doc, projection), Statement: 1,
	}
}
