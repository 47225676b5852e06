package federation

import (
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// mutated changes a text in one to four places: a byte is another, is missing, is
// twice there, or all that follows is.
func mutated(rng *rand.Rand, good string) string {
	b := []byte(good)
	for range 1 + rng.IntN(4) {
		switch i := rng.IntN(len(b)); rng.IntN(6) {
		case 0:
			b = append(b[:i], b[i+1:]...)
		case 1:
			b = append(b[:i:i], b[max(0, i-1):]...)
		case 2:
			b[i] ^= 1 << rng.IntN(8)
		default:
			b[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"[rng.IntN(66)]
		}
	}

	return string(b)
}

// No mutant of a page, a head or a record is taken, none makes a node panic, and none
// changes anything of what it has. A record's own signature vouches for nothing here:
// its bytes are what the page named, or it is another record.
//
// Requirement: MESH-004
func TestMutantsChangeNothing(t *testing.T) {
	most := 20_000
	if os.Getenv("STORY_LONG") != "" {
		most = 1_000_000
	}

	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 86400)
		b.pull()
		b.origin.register("another", 86400) // so that the page is one to apply
		page, err := b.alpha.publisher.Page(directory.Mesh, 0, 10, false)
		must(t, err)
		head, err := b.alpha.publisher.Head()
		must(t, err)
		n := protocol.NameOf(page.Digests[0])

		record, ok, err := b.alpha.recordOf(alpha, beta, n)
		if err != nil || !ok {
			t.Fatal(err)
		}

		good, err := readRecord(n, record, "")
		must(t, err)

		before, rng := b.beta.bytes(t), rand.New(rand.NewPCG(1, 4))
		for i := range most {
			switch text := ""; i % 3 {
			case 0:
				if text = mutated(rng, page.Text); text == page.Text {
					continue
				}

				if _, code, err := b.beta.receiver.take(t.Context(), replica.Sender{Domain: alpha}, b.giver(),
					text); err == nil {
					t.Fatalf("mutant %d is %s: %s", i, code, text)
				}
			case 1:
				if text = mutated(rng, head); text == head {
					continue
				}

				if err := b.beta.receiver.takeHead(t.Context(), replica.Sender{Domain: alpha}, b.giver(),
					text); err == nil {
					t.Fatalf("mutant %d of a head is taken: %s", i, text)
				}
			default:
				got, err := readRecord(n, mutated(rng, record), "")
				if err == nil && (string(got.Payload) != string(good.Payload) ||
					!reflect.DeepEqual(got.Disclosures, good.Disclosures)) {
					t.Fatalf("mutant %d of a record is taken: %+v", i, got)
				}
			}
		}

		if b.beta.bytes(t) != before {
			t.Error("a mutant has changed what is on disk")
		}

		t.Logf("%d mutants, none taken", most)
		b.pull()

		if len(b.beta.shown(alpha)) != 2 {
			t.Error("the good page is not taken after them")
		}
	})
}
