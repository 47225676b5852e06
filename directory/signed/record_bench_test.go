package signed_test

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// What a first sync does for every record that comes (federation.md, "Records on
// demand").
func BenchmarkOpenRecord(b *testing.B) {
	doc := directory.LoadDocument(directory.KindAD,
		[]byte(`{"base":"https://a.test/x","description":"books flights and hotels, and knows what they cost","protocols":["a2a","mcp"],"tags":["travel","booking","flights"],"languages":["en","de"],"capabilities":[{"name":"book","type":"tool","description":"books a flight","tags":["flight"]},{"name":"cancel","type":"tool","description":"cancels what was booked","tags":["flight","refund"]}],"version":"1.4.0","vendor":"Example"}`))
	c := &signed.Change{Issuer: alpha, RID: rid(1), Op: signed.OpPut, Epoch: 1, Revision: 1, Agent: "travel-agent",
		Owner: mustIdentity(b, "spiffe://alpha.test/agents/a"), Document: doc}
	ds := c.Disclosures()

	payload, err := signed.Statement(signed.StatementFormat, c, ds)
	must(b, err)

	shown, _ := signed.Disclosed(ds, directory.Grant{All: true})
	b.ReportAllocs()

	for b.Loop() {
		if _, err := signed.OpenRecord(payload, shown); err != nil {
			b.Fatal(err)
		}
	}
}
