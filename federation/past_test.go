package federation

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A successor is an origin's key document with one key of its own, or with one that
// was there before.
type successor struct {
	*bench
	seq uint64
}

func (s *successor) key() ed25519.PublicKey {
	key, _, err := ed25519.GenerateKey(rand.Reader)
	must(s.T, err)

	return key
}

// issue has beta take the next key document.
func (s *successor) issue(key ed25519.PublicKey, revoked ...ed25519.PublicKey) (text string, err error) {
	s.seq++

	doc := &signed.KeyDocument{Issuer: alpha, Epoch: 1, Seq: s.seq, Expires: time.Now().Unix() + 60,
		Keys: []signed.SigningKey{{Public: key, Node: nodeID(alpha, 1)}}}
	for _, k := range revoked {
		doc.Revoked = append(doc.Revoked, signed.KeyID(k))
	}

	text = directory.B64.EncodeToString([]byte(`{}`)) + "." + directory.B64.EncodeToString(doc.Payload()) + "." +
		directory.B64.EncodeToString(make([]byte, 64))

	o := s.beta.origins.Get(alpha)

	return text, o.Change(func() error { return o.ReplaceKeys(doc, text) })
}

func newSuccessor(t *testing.T) *successor {
	b := newBench(t, nil)
	b.origin.register("agent", 600)
	b.pull()

	return &successor{bench: b, seq: 100}
}

// The documents that listed keys which the newest doesn't are on disk beside it, the
// newest that listed each; one that was issued again with the same keys pushes none
// out.
//
// Requirement: MESH-022
func TestPastKeyDocumentsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSuccessor(t)

		var last []string
		for range 12 {
			key := s.key()
			_, err := s.issue(key)
			must(t, err)
			text, err := s.issue(key)
			must(t, err)
			last = append([]string{text}, last...)
		}

		s.beta.reopen(t)

		issued := s.beta.origins.Get(alpha).Keys.Issued()
		if len(issued) != 12+1 { // and the one that it began with
			t.Fatalf("%d are kept", len(issued))
		}

		for i, text := range last {
			if text != issued[i] {
				t.Errorf("the one %d before the newest is another", i)
			}
		}
	})
}

// A domain that drops keys too fast and gives two key documents of one issue is
// accused of the second: that one is no key document to make room for.
//
// Requirement: MESH-022
func TestAForkBeyondThePaceIsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		court := new(bailiff)
		s := &successor{seq: 100, bench: newBench(t, func(c *Config) { c.Verifier = court })}
		s.origin.register("agent", 600)
		s.pull()

		var err error
		for err == nil {
			_, err = s.issue(s.key())
		}

		public, private, err := ed25519.GenerateKey(rand.Reader)
		must(t, err)
		forked := *s.origin.KeyDocument()
		forked.Keys = []signed.SigningKey{{Public: public, Node: nodeID(alpha, 1)}}
		text := sign(private, headerOf(signed.TypeKeys, signed.KeyID(public)), forked.Payload())

		s.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathKeys {
				return []byte(text)
			}

			return body
		}
		if err := s.beta.receiver.refreshKeys(t.Context(), s.beta.origins.Get(alpha), s.giver()); !errors.As(err,
			new(fork)) {
			t.Errorf("a fork is refused with %v", err)
		}

		if len(court.accused) != 1 || !slices.Contains(court.accused[0], text) {
			t.Errorf("%d accusations", len(court.accused))
		}
	})
}
