package replica

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// digestOf returns a digest of the registration i, whose record differs by version.
func digestOf(i, version, revision uint64, deadline int64) signed.Digest {
	var entropy [10]byte

	binary.BigEndian.PutUint64(entropy[:], i)
	digest := signed.Digest{RID: directory.NewRID(1, entropy), Revision: revision, Deadline: deadline}
	binary.BigEndian.PutUint64(digest.H[:], i)
	binary.BigEndian.PutUint64(digest.M[:], version)

	return digest
}

// A plainMissing is a record as a backlog without queues keeps it.
type plainMissing struct {
	digest signed.Digest
	tries  int
	next   time.Time
}

// plainBacklog finds missing records by looking at all of them.
type plainBacklog map[directory.RID]*plainMissing

func (p plainBacklog) complete() uint64 {
	upTo := uint64(math.MaxUint64)

	for _, record := range p {
		if record.tries == 0 {
			upTo = min(upTo, record.digest.Revision-1)
		}
	}

	return upTo
}

func (p plainBacklog) dueBy(now time.Time, clock int64, limit int) (digests []signed.Digest) {
	for _, record := range p {
		if clock >= record.digest.Deadline {
			record.tries = max(record.tries, 1)
		} else if !record.next.After(now) && len(digests) < limit {
			digests = append(digests, record.digest)
		}
	}

	return digests
}

// The queues of a backlog find the records that looking at all of them finds.
//
// Requirement: MESH-026
func TestMissingRecordsAgainstAModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			missing, plain := newMissingRecords(), plainBacklog{}
			now, revision := time.Unix(1000, 0), uint64(0)

			for range 3000 {
				now = now.Add(time.Duration(rng.IntN(400)) * time.Millisecond)
				revision++

				digest := digestOf(rng.Uint64N(40), rng.Uint64N(2), revision, now.Unix()+rng.Int64N(60))

				switch rng.IntN(4) {
				case 0, 1:
					old := plain[digest.RID]
					missing.add(digest)

					plain[digest.RID] = &plainMissing{digest: digest}
					if old != nil && old.digest.M == digest.M {
						plain[digest.RID].tries = old.tries
						plain[digest.RID].next = old.next
					}
				case 2:
					missing.remove(digest.RID)
					delete(plain, digest.RID)
				default:
					got, _ := missing.dueBy(now, now.Unix(), 100)
					want := plain.dueBy(now, now.Unix(), 100)

					if len(got) != len(want) {
						t.Fatalf("%d records are due, want %d", len(got), len(want))
					}

					for _, asked := range got[:rng.IntN(len(got)+1)] {
						missing.postpone(asked, now)

						record := plain[asked.RID]
						record.next = now.Add(min(MissingPause<<min(record.tries, 6), MissingPauseMost))
						record.tries++
					}
				}

				if got, want := missing.complete(), plain.complete(); got != want {
					t.Fatalf("complete up to %d, want %d", got, want)
				}

				if missing.Len() != len(plain) {
					t.Fatalf("%d are missing, want %d", missing.Len(), len(plain))
				}

				for rid := range maps.Keys(plain) {
					if !missing.Has(rid) {
						t.Fatalf("%s isn't missing", rid)
					}
				}
			}
		})
	}
}

// BenchmarkMissingRecords is the work under the lock that readers wait for: one round of requests
// for a batch of records that nobody has, and the position that a reader asks for afterwards. The
// yardstick looks at all records.
func BenchmarkMissingRecords(b *testing.B) {
	const batch = 500

	for _, count := range []uint64{1_000, 62_500, 1_000_000} {
		missing, plain := newMissingRecords(), plainBacklog{}
		now := time.Now()

		for i := range count {
			digest := digestOf(i, 0, i+1, now.Unix()+1e6)
			missing.add(digest)

			plain[digest.RID] = &plainMissing{digest: digest}
		}

		b.Run(fmt.Sprintf("queues/%d", count), func(b *testing.B) {
			for b.Loop() {
				digests, _ := missing.dueBy(now, now.Unix(), batch)
				for _, digest := range digests {
					missing.postpone(digest, now)
				}

				_ = missing.complete()
				now = now.Add(MissingPause)
			}
		})

		b.Run(fmt.Sprintf("scan/%d", count), func(b *testing.B) {
			for b.Loop() {
				for _, digest := range plain.dueBy(now, now.Unix(), batch) {
					plain[digest.RID].next = now.Add(MissingPauseMost)
					plain[digest.RID].tries++
				}

				_ = plain.complete()
				now = now.Add(MissingPause)
			}
		})
	}
}
