package replica

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
)

// Ends of all registrations of an origin leave room for one more that a thief of a node's key adds: it is compared.
//
// Requirement: SEC-019
func TestManyEndsHideNone(t *testing.T) {
	const all = 3 * minEnded

	now := time.Now()
	stream := newStream(store.StreamID{})

	for i := range int64(all) {
		rid := directory.NewRID(i, [10]byte{})
		end := signed.Digest{RID: rid, Revision: uint64(all + i), Op: signed.OpEnd}
		stream.State.Live = uint64(all - 1 - i)

		stream.noteEnds([]store.Effect{{Digest: end, Ended: now.Add(time.Hour).Unix()}}, all, now)

		if _, noted := stream.ended[rid]; !noted {
			t.Fatalf("end %d of %d is not compared", i+1, all)
		}
	}
}

// A stream has entries for twice its origin's quota of records, so that a higher quota finds what a lower one left out.
//
// Requirement: MESH-026
func TestEntriesAreBoundedByTheQuotaOfRecords(t *testing.T) {
	origin := &Origin{Deps: Deps{Cfg: &Config{Entries: 100}}}

	for _, c := range []struct{ records, repullSince, most uint64 }{
		{records: 0, most: 0},
		{records: 3, most: 100},
		{records: 3, repullSince: 1, most: 200},
		{records: 80, most: 160},
		{records: 80, repullSince: 1, most: 320},
	} {
		if most := origin.mostEntries(&Stream{RepullSince: c.repullSince}, c.records); most != c.most {
			t.Errorf("%d records and a pull since %d: %d entries, want %d", c.records, c.repullSince, most, c.most)
		}
	}
}
