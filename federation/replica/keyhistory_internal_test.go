package replica

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// pastKeys are the key documents of an origin, each of which drops the key of the one before.
type pastKeys struct {
	keyHistory
	issued  uint64
	dropped map[spiffeid.ID]bool // nodes that only a dropped authority certified
}

// issue has the next document of a node taken, which revokes keys.
func (p *pastKeys) issue(node spiffeid.ID, revoked ...string) error {
	p.issued++
	key := make(ed25519.PublicKey, ed25519.PublicKeySize)
	binary.BigEndian.PutUint64(key, p.issued)

	doc := &signed.KeyDocument{Issuer: directorytest.Alpha, Seq: p.issued,
		Keys: []signed.SigningKey{{Public: key, Node: node}}, Revoked: revoked}

	past, err := p.superseded(doc, func(key signed.SigningKey) bool { return !p.dropped[key.Node] })
	if err == nil {
		p.newest, p.past = keyDocument{doc: doc}, past
	}

	return err
}

// fill has documents of a node taken until the next has to wait, and returns their number.
func (p *pastKeys) fill(t *testing.T, node spiffeid.ID) (n int) {
	t.Helper()

	for ; n <= maxPast+1; n++ {
		if err := p.issue(node); errors.Is(err, errKeysPace) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}

	t.Fatalf("no document waits after %d", n)

	return n
}

// A domain that drops keys faster than it can be compared has to wait, and so can't sign itself out of what it said.
// A revocation never waits, and a revoked key's document isn't kept.
//
// Requirement: MESH-022
func TestKeysAreNotDroppedToEscape(t *testing.T) {
	node := directorytest.Alpha.ID()

	synctest.Test(t, func(t *testing.T) {
		p := &pastKeys{dropped: map[spiffeid.ID]bool{}}
		p.fill(t, node)

		all := p.documents()
		first, newest := all[len(all)-1], all[0]
		revoked := []string{first.doc.Keys[0].KeyID(), newest.doc.Keys[0].KeyID()}

		for range maxPast {
			if err := p.issue(node, revoked...); err != nil {
				t.Fatalf("a revocation waits: %v", err)
			}

			revoked = append(revoked, p.newest.doc.Keys[0].KeyID())
		}

		if kept := len(p.documents()); kept != len(all)-1 {
			t.Errorf("%d documents are kept of %d, of which two list revoked keys alone", kept, len(all)+1)
		}

		time.Sleep(pastFor)

		if err := p.issue(node, revoked...); err != nil {
			t.Errorf("an hour later: %v", err)
		}
	})
}

// No document of the last hour is dropped, also if the origin's authority changed since. A thief of an authority
// doesn't make the true document wait once the authority is dropped.
//
// Requirement: MESH-022
func TestNoKeyDocumentOfTheLastHourIsDropped(t *testing.T) {
	former, present := directorytest.Alpha.ID(), spiffeid.RequireFromPath(directorytest.Alpha, "/roster/node/2")

	synctest.Test(t, func(t *testing.T) {
		p := &pastKeys{dropped: map[spiffeid.ID]bool{}}
		all := p.fill(t, former)

		p.dropped[former] = true

		if err := p.issue(present); err != nil {
			t.Fatalf("the first document after the authority was dropped: %v", err)
		}

		all += 1 + p.fill(t, present)

		if kept := len(p.documents()); kept != all {
			t.Errorf("%d of %d documents are kept", kept, all)
		}

		time.Sleep(pastFor)

		if err := p.issue(present); err != nil {
			t.Errorf("an hour later: %v", err)
		}
	})
}
