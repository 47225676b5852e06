package disk

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A follower that replaces a tail as long as the memory begins it anew with the first
// entry of the other one.
func TestATailAsLongAsTheMemoryIsReplaced(t *testing.T) {
	log := newRecentLog(raft.NewInmemStore())
	for index := uint64(1); index <= recentEntries; index++ {
		directorytest.Must(t, log.StoreLog(&raft.Log{Index: index, Term: 1}))
	}

	directorytest.Must(t, log.DeleteRange(1, recentEntries))

	directorytest.Must(t, log.StoreLog(&raft.Log{Index: 1, Term: 2}))

	var entry raft.Log
	if err := log.GetLog(1, &entry); err != nil || entry.Term != 2 || log.last != 1 {
		t.Errorf("entry 1 is of term %d, and %d is the last: %v", entry.Term, log.last, err)
	}
}

// Whatever is stored, deleted and stored anew, the log reads as one without a memory of
// its own, and its memory is bounded.
//
// Requirement: FORM-005
func TestTheNewestEntriesAreKeptWithinBounds(t *testing.T) {
	large := make([]byte, recentBytes/3)
	rapid.Check(t, func(rt *rapid.T) {
		store := raft.NewInmemStore()
		log := newRecentLog(store)
		want := map[uint64][]byte{}

		next := uint64(1)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0: // a leader's other tail, or a snapshot from elsewhere
				from := rapid.Uint64Range(1, next).Draw(rt, "from")
				if err := log.DeleteRange(from, next); err != nil {
					rt.Fatal(err)
				}

				for i := from; i <= next; i++ {
					delete(want, i)
				}

				next = from + rapid.SampledFrom([]uint64{0, 0, 500}).Draw(rt, "gap")
			default:
				var entries []*raft.Log
				for range rapid.IntRange(1, 150).Draw(rt, "entries") {
					data := []byte{byte(next), byte(next >> 8)}
					if rapid.IntRange(0, 20).Draw(rt, "large") == 0 {
						data = large
					}

					entries = append(entries, &raft.Log{Index: next, Data: data})
					want[next] = data
					next++
				}

				if err := log.StoreLogs(entries); err != nil {
					rt.Fatal(err)
				}
			}

			kept, weight := 0, 0
			for _, entry := range log.ring {
				if entry != nil {
					kept++
					weight += len(entry.Data)
				}
			}

			if weight > recentBytes || weight != log.weight || uint64(kept) != log.last+1-log.first {
				rt.Fatalf("%d entries of %d bytes are kept, from %d to %d, said to have %d", kept, weight, log.first,
					log.last, log.weight)
			}

			for index, data := range want {
				var entry raft.Log
				if err := log.GetLog(index, &entry); err != nil || entry.Index != index ||
					!bytes.Equal(entry.Data, data) {
					rt.Fatalf("entry %d reads as %d with %d bytes: %v", index, entry.Index, len(entry.Data), err)
				}
			}

			var none raft.Log
			if log.GetLog(next, &none) == nil {
				rt.Fatalf("entry %d was never stored, and reads", next)
			}
		}
	})
}
