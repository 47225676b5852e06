package federation

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A counter signs as a keyring does, and counts.
type counter struct {
	*keyring
	mu     sync.Mutex
	signed map[string]int // by type
}

// count has alpha sign by a counter from now on.
func (b *bench) count() *counter {
	c := &counter{keyring: b.alpha.keys, signed: map[string]int{}}
	b.alpha.publisher = publish.New(alpha, b.alpha.cfg.Source, c, b.alpha.cfg.Dialect, nil)
	b.alpha.holdings.publisher = b.alpha.publisher

	return c
}

func (c *counter) Sign(typ string, payload []byte) (string, error) {
	c.mu.Lock()
	c.signed[typ]++
	c.mu.Unlock()

	return c.keyring.Sign(typ, payload)
}

func (c *counter) records() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.signed[signed.TypeRecord]
}

// However many ask for a record, it is signed once, and again once the domain's key
// document has another key: what the key before signed is given to nobody.
//
// Requirement: MESH-014, TRUST-010
func TestARecordIsSignedOnceForAll(t *testing.T) {
	b := newBench(t, nil)
	c := b.count()

	var names []protocol.RecordName
	for _, agent := range []string{"first", "second"} {
		names = append(names, protocol.NameOf(b.origin.regs[b.origin.register(agent, 600)].announced))
	}

	ask := func() (texts []string) {
		for _, n := range names {
			text, ok, err := b.alpha.recordOf(alpha, beta, n)
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
		before := c.records()

		texts := ask()
		for i, again := range ask() {
			if again != texts[i] {
				t.Error("the same record is another")
			}
		}

		if n := c.records(); before == 0 || n != before {
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
		if text, _, err := b.alpha.recordOf(alpha, beta, n); !errors.Is(err, publish.ErrNotReady) {
			t.Errorf("by a key that is listed no more: %.40q, %v", text, err)
		}
	}

	b.alpha.keys.private = next
	text, _, err := b.alpha.recordOf(alpha, beta, n)
	must(t, err)

	if _, _, err := b.alpha.keys.Verify(alpha, signed.TypeRecord, strings.SplitN(text, "~", 2)[0]); err != nil {
		t.Errorf("by the key that is listed: %v", err)
	}
}

// A domain's records are signed before a peer requests them. A change or another issue of the key
// document leaves the others signed; another key signs all of them again.
//
// Requirement: MESH-014
func TestRecordsAreSignedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 300

		b := newBench(t, nil)
		c := b.count()

		rids := b.origin.registers(many, 86400)

		before := c.records()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.alpha.publisher.SignAhead(ctx, b.alpha.peers.audiences)
		}()
		defer func() { cancel(); <-done }()

		// signs returns how many signatures are made in a minute, and that a request makes none.
		signs := func() int {
			t.Helper()

			time.Sleep(time.Minute)
			synctest.Wait()
			ahead := c.records()

			for _, rid := range rids {
				name := protocol.NameOf(b.origin.regs[rid].announced)
				text, ok, err := b.alpha.recordOf(alpha, beta, name)

				if !ok || err != nil {
					t.Fatal(ok, err)
				}

				if _, _, err := b.alpha.keys.Verify(alpha, signed.TypeRecord,
					strings.SplitN(text, "~", 2)[0]); err != nil {
					t.Errorf("a record's signature: %v", err)
				}
			}

			if n := c.records(); n != ahead {
				t.Errorf("requests made %d signatures", n-ahead)
			}

			made := ahead - before
			before = ahead

			return made
		}

		if n := signs(); n != many {
			t.Errorf("%d signatures of %d records", n, many)
		}

		rids = append(rids, b.origin.register("another", 86400))

		if n := signs(); n != 1 {
			t.Errorf("%d signatures after one change", n)
		}

		b.origin.listKeys(nil, b.alpha.keys) // another issue of the key document, with the same keys

		rids = append(rids, b.origin.register("yet another", 86400))

		if n := signs(); n != 1 {
			t.Errorf("%d signatures after a change and an issue that lists the same key", n)
		}

		_, b.alpha.keys.private, _ = ed25519.GenerateKey(nil)
		b.origin.listKeys(nil, b.alpha.keys)
		rids = append(rids, b.origin.register("the last", 86400))

		if n := signs(); n != len(rids) {
			t.Errorf("%d signatures of %d records after another key", n, len(rids))
		}
	})
}
