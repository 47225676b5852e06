package federation

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A counter signs as a keyring does, and counts.
type counter struct {
	*keyring
	signed map[string]int // by type
}

func (c *counter) Sign(typ string, payload []byte) (string, error) {
	c.signed[typ]++
	return c.keyring.Sign(typ, payload)
}

// However many ask for a record, it is signed once, and again once the domain's key
// document has another key: what the key before signed is given to nobody.
//
// Requirement: MESH-014, TRUST-010
func TestARecordIsSignedOnceForAll(t *testing.T) {
	b := newBench(t, nil)
	c := &counter{b.alpha.keys, map[string]int{}}
	b.alpha.Mesh.cfg.Keys = c

	var names []protocol.RecordName
	for _, agent := range []string{"first", "second"} {
		names = append(names, protocol.NameOf(b.origin.regs[b.origin.register(agent, 600)].announced))
	}

	ask := func() (texts []string) {
		for _, n := range names {
			text, ok, err := b.alpha.holdings.recordsOf(alpha, beta)(n)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}

			if _, _, err := b.alpha.keys.Verify(alpha, signed.TypeRecord, strings.SplitN(text, "~", 2)[0]); err != nil {
				t.Errorf("a record's signature: %v", err)
			}

			texts = append(texts, text)
		}

		return texts
	}
	for _, change := range []func(){
		func() {},
		func() {
			_, b.alpha.keys.private, _ = ed25519.GenerateKey(nil)
			b.origin.listKeys(nil, b.alpha.keys)
		},
	} {
		change()
		ask() // and the first of them shows that this node's key is listed
		ask()
		before := c.signed[signed.TypeRecord]

		texts := ask()
		for i, again := range ask() {
			if again != texts[i] {
				t.Error("the same record is another")
			}
		}

		if n := c.signed[signed.TypeRecord]; n != before {
			t.Errorf("what was signed was signed %d times more", n-before)
		}
	}
}

// A behind is a keyring that is told of the own domain's key document after the state
// has it, as a node's is.
type behind struct {
	*keyring
	doc *signed.KeyDocument
}

func (k *behind) Verify(_ spiffeid.TrustDomain, typ, text string) ([]byte, string, error) {
	return k.scheme.verifyBy(k.doc, typ, text)
}

// What a node signs by a key that the domain's key document has no more is given to
// nobody, though the keyring was not told yet, and is not kept for those who ask later.
//
// Requirement: TRUST-010
func TestNothingIsSignedByTheKeyBefore(t *testing.T) {
	b := newBench(t, nil)
	n := protocol.NameOf(b.origin.regs[b.origin.register("agent", 600)].announced)
	b.alpha.Mesh.cfg.Keys = &behind{b.alpha.keys, b.origin.KeyDocument()}
	before := b.alpha.keys.private
	_, next, err := ed25519.GenerateKey(nil)
	must(t, err)
	b.alpha.keys.private = next
	b.origin.listKeys(nil, b.alpha.keys)

	b.alpha.keys.private = before
	for range 2 {
		if text, _, err := b.alpha.holdings.recordsOf(alpha, beta)(n); !errors.Is(err, publish.ErrNotReady) {
			t.Errorf("by a key that is listed no more: %.40q, %v", text, err)
		}
	}

	b.alpha.keys.private = next
	text, _, err := b.alpha.holdings.recordsOf(alpha, beta)(n)
	must(t, err)

	if _, _, err := b.alpha.keys.Verify(alpha, signed.TypeRecord, strings.SplitN(text, "~", 2)[0]); err != nil {
		t.Errorf("by the key that is listed: %v", err)
	}
}
