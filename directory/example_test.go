package directory_test

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
)

// A registration comes in, is projected and indexed, and is found.
func Example() {
	body := []byte(`{"base":"https://agents.alpha.test/maps","capabilities":[{"name":"route","type":"tool","tags":["travel"]}],"x-seats":4}`)

	doc, err := directory.ParseDocument(directory.KindAD, body)
	if err != nil {
		panic(err)
	}

	proj, err := kinds.Project("maps", doc)
	if err != nil {
		panic(err)
	}

	domain := spiffeid.RequireTrustDomainFromString("alpha.test")
	view := index.NewView(domain)
	view.Own().Put(&directory.Entry{
		Origin: domain, RID: directory.NewRID(1780315200000, [10]byte{}), Agent: "maps", Created: 1,
		Document: doc, Packed: directory.Pack(doc, proj), ExpiresAt: time.Now().Add(time.Hour).UnixMilli(),
	})

	values, _ := url.ParseQuery("cap_type=tool&tag=travel&agent=m*")

	query, err := index.ParseQuery(values)
	if err != nil {
		panic(err)
	}

	for _, e := range view.Lookup(query, nil).Entries {
		fmt.Println(e.Agent, e.Projection().Base)
		fmt.Println(string(e.Document.Bytes()))
	}

	// Output: maps https://agents.alpha.test/maps
	// {"base":"https://agents.alpha.test/maps","capabilities":[{"name":"route","type":"tool","tags":["travel"]}],"x-seats":4}
}

// What a registrant gets to read when a document is wrong.
func ExampleProject_refused() {
	doc, _ := directory.ParseDocument(directory.KindAD,
		[]byte(`{"base":"https://a.test","capabilities":[{"name":"purge*","type":"tool"}]}`))
	_, err := kinds.Project("cdn", doc)
	fmt.Println(err)
	// Output: the name "purge*" has a *, which lookups use for prefixes (at /capabilities/0/name)
}

// One signature, two audiences: what is withheld is visibly withheld.
func ExampleOpenRecord() {
	doc, _ := directory.ParseDocument(directory.KindAD, []byte(`{"base":"https://a.test","price":"secret"}`))
	change := &signed.Change{
		Issuer: spiffeid.RequireTrustDomainFromString("alpha.test"), RID: directory.NewRID(1780315200000, [10]byte{}),
		Op:    signed.OpPut,
		Epoch: 1780315200, Revision: 7, Agent: "cdn", Document: doc, Salt: signed.Salt{1, 2, 3},
	}
	disclosures := change.Disclosures()
	payload, _ := signed.Statement(signed.StatementFormat, change, disclosures)
	shown, _ := signed.Disclosed(disclosures, directory.Grant{Reg: []string{"agent", "kind"}, Doc: []string{"base"}})
	contents, err := signed.OpenRecord(payload, shown)
	fmt.Println(contents.Agent, string(contents.Document.Bytes()), contents.Redacted, err)
	// Output: cdn {"base":"https://a.test"} true <nil>
}
