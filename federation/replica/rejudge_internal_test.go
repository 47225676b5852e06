package replica

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
)

// What a changed import policy has yet to hide is hidden even if another round begins when one
// batch of it is done.
//
// Requirement: XU-066
func TestTheNextRoundHidesTheRest(t *testing.T) {
	origin := spiffeid.RequireTrustDomainFromString("alpha.test")

	doc, err := directory.ParseDocument(directory.KindAD, []byte(`{"base":"https://agent.test"}`))
	if err != nil {
		t.Fatal(err)
	}

	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	streams := New(origin, index.NewView(beta).Origin(origin), Deps{
		Cfg:   &Config{Domain: beta, Panics: contain.New(slog.New(slog.DiscardHandler))},
		Judge: make(chan struct{}, 1),
	})

	var entries []*directory.Entry
	for i := range 2 * JudgeBatch {
		entries = append(entries, &directory.Entry{Origin: origin, RID: directory.NewRID(int64(i), [10]byte{}),
			Agent: fmt.Sprint("agent-", i), Document: doc, Received: &directory.Received{},
			Packed: directory.Pack(doc, &directory.Projection{Status: directory.StatusActive})})
	}

	streams.Shown.fill(entries)
	streams.SetPeering(&directory.Peering{Import: directory.PeerRules{Names: []string{"none"}}})

	if !streams.HideSome() || streams.Shown.Index.Len() != JudgeBatch {
		t.Fatalf("%d are shown after one batch", streams.Shown.Index.Len())
	}

	streams.showLater()

	for streams.HideSome() {
	}

	if n := streams.Shown.Index.Len(); n != 0 {
		t.Errorf("%d are shown that the policy refuses", n)
	}
}
