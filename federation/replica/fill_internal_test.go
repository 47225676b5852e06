package replica

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/federation/store"
)

// At a start, an entry that panics in the index costs that entry alone.
//
// Requirement: FORM-006
func TestFillLeavesOutAnEntryThatPanics(t *testing.T) {
	origin := spiffeid.RequireTrustDomainFromString("alpha.test")

	doc, err := directory.ParseDocument(directory.KindAD, []byte(`{"base":"https://agent.test"}`))
	if err != nil {
		t.Fatal(err)
	}

	const n, bad = 100, 41

	var entries []*directory.Entry
	for i := range n {
		entry := &directory.Entry{Origin: origin, RID: directory.NewRID(int64(i), [10]byte{}),
			Agent: fmt.Sprint("agent-", i), Document: doc, Received: &directory.Received{},
			Packed: directory.Pack(doc, &directory.Projection{Status: directory.StatusActive})}
		if i == bad {
			entry.Packed = directory.LoadPacked([]byte{0xff})
		}

		entries = append(entries, entry)
	}

	for name, given := range map[string][]*directory.Entry{
		"all are good": append(append([]*directory.Entry{}, entries[:bad]...), entries[bad+1:]...),
		"one is bad":   entries,
	} {
		t.Run(name, func(t *testing.T) {
			shown := &shownIndex{
				cfg:     &Config{Panics: contain.New(slog.New(slog.DiscardHandler))},
				Index:   index.NewView(spiffeid.RequireTrustDomainFromString("beta.test")).Origin(origin),
				peering: &atomic.Pointer[directory.Peering]{},
			}
			shown.peering.Store(&directory.Peering{})
			shown.fill(given)

			if got := shown.Index.Len(); got != n-1 {
				t.Errorf("%d of %d are shown", got, n)
			}

			if found := shown.Index.Named("agent-7"); len(found) != 1 {
				t.Errorf("a name finds %d entries", len(found))
			}
		})
	}
}

// Entries of one stream share the texts that they have in common, and keep their own.
func TestEntriesShareTexts(t *testing.T) {
	shown := &shownIndex{peering: &atomic.Pointer[directory.Peering]{}}
	shown.peering.Store(&directory.Peering{})

	for i := range 6 {
		held := &store.Entry{Key: directory.HashOf([]byte{byte(i / 2)}), From: fmt.Sprintf("d%d.test", i/2)}
		got := shown.describe(&directory.Entry{}, directory.Mesh, held).Received

		if got.Key != held.Key.String() || got.From.Name() != held.From {
			t.Errorf("entry %d: from %s by %s", i, got.From, got.Key)
		}
	}
}
