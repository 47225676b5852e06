package federation

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// The documents that listed keys which the newest doesn't are on disk beside it, the
// last few of them; one that was issued again with the same keys pushes none out.
//
// Requirement: MESH-022
func TestPastKeyDocumentsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.origin.register("agent", 600)
		b.pull()
		rotated := func(seq uint64, key ed25519.PublicKey) string {
			doc := &directory.KeyDocument{Issuer: alpha, Epoch: 1, Seq: seq, Expires: time.Now().Unix() + 60,
				Keys: []directory.SigningKey{{Public: key, Node: pondNode(alpha.Name(), "1")}}}
			text := directory.B64.EncodeToString([]byte(`{}`)) + "." + directory.B64.EncodeToString(doc.Payload()) + "." + directory.B64.EncodeToString(make([]byte, 64))
			o := b.beta.origin(alpha)
			o.mu.Lock()
			defer o.mu.Unlock()
			must(t, b.beta.replaceKeys(o, doc, text))
			return text
		}
		var last []string
		for seq := uint64(100); seq < 112; seq++ {
			key, _, err := ed25519.GenerateKey(rand.Reader)
			must(t, err)
			rotated(2*seq, key)
			last = append([]string{rotated(2*seq+1, key)}, last...)
		}
		b.beta.reopen(t)
		issued := b.beta.origin(alpha).issued()
		if len(issued) != maxPast+1 {
			t.Fatalf("%d are kept", len(issued))
		}
		for i, text := range issued {
			if text != last[i] {
				t.Errorf("the one %d before the newest is another", i)
			}
		}
	})
}
