package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Strangers by the hundred thousand take no more room than the table has, and
// those who left take none.
func TestTheTableOfCallersIsBounded(t *testing.T) {
	l, now := NewLimiter(Limits{Reads: 0.1, Writes: 1}, nil), time.Now()

	reads, _ := l.quota(Reads, Caller{})
	for i := range maxBuckets + 1000 {
		l.take(reads, fmt.Sprint(i), now, 1)
	}

	if len(l.all) != maxBuckets || l.order.Len() != maxBuckets {
		t.Errorf("%d callers are known", len(l.all))
	}

	if _, _, ok := l.take(reads, fmt.Sprint(maxBuckets+999), now, 1); ok {
		t.Error("the last one has a new quota")
	}

	now = now.Add(11 * time.Second)
	for i := range maxBuckets/2 + 1 {
		l.take(reads, fmt.Sprint("later ", i%3), now, 1)
	}

	if len(l.all) != 3 {
		t.Errorf("%d callers are known, of which 3 were seen lately", len(l.all))
	}
}

// Those that read nothing leave room for who comes after them.
func TestNobodyHoldsAllThatIsUnread(t *testing.T) {
	u := NewAnswerMemory(spiffeid.TrustDomain{}, 0)
	for i := range 15 {
		for err := error(nil); err == nil; {
			_, err = u.Hold(Caller{Remote: fmt.Sprint("greedy ", i)}, 64<<10)
		}
	}

	release, err := u.Hold(Caller{Remote: "honest"}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}

	release()

	if len(u.by) != 15 || u.held > u.total {
		t.Errorf("%d are held by %d", u.held, len(u.by))
	}
}
