package consensus

import (
	"bytes"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// What a key has signed is under way, and with others who pass it on, when its node puts
// another in its place. So the key documents of the next minutes list both (trust.md,
// "Signing keys"). A key that is revoked, or whose node leaves, is listed no longer.
const (
	keyOverlap = 5 * 60 * 1000 // milliseconds; pages and heads are made anew within three minutes
	maxRotated = 16            // of a domain: nobody who rotates all the time makes the document long
)

// A rotatedKey is one in whose place its node has put another.
type rotatedKey struct {
	directory.SigningKey
	until int64 // until when it is listed, by committed time; Unix milliseconds
}

// A keySnapshot is a signing key as a snapshot has it.
type keySnapshot struct {
	Node         spiffeid.ID `cbor:"1,keyasint"`
	Public       []byte      `cbor:"2,keyasint"`
	Attestations []string    `cbor:"3,keyasint"`
	Until        int64       `cbor:"4,keyasint,omitempty"` // as in rotatedKey; 0 for one that signs
}

func (k keySnapshot) key() directory.SigningKey {
	return directory.SigningKey{Public: k.Public, Node: k.Node, Attestations: k.Attestations}
}

// rotate notes that a node puts a key in the place of the one that it has, if that is
// another. One that was rotated and is attested again signs once more, whosever it was.
func (s *state) rotate(c *attest) {
	s.unlist(func(k rotatedKey) bool { return bytes.Equal(k.Public, c.Public) })
	if old, ok := s.keys[c.Node]; ok && !bytes.Equal(old.Public, c.Public) {
		s.rotated = append(slices.Clip(s.rotated), rotatedKey{old, s.now + keyOverlap})
		s.rotated = s.rotated[max(0, len(s.rotated)-maxRotated):]
	}
}

// listRotated adds the rotated keys whose time is not over to a key document, and
// forgets those for which there is no room.
func (s *state) listRotated(doc *directory.KeyDocument) {
	s.unlist(func(k rotatedKey) bool { return k.until <= s.now })
	room := max(0, directory.MaxSigningKeys-len(doc.Keys))
	s.rotated = s.rotated[max(0, len(s.rotated)-room):]
	for _, k := range s.rotated {
		doc.Keys = append(doc.Keys, k.SigningKey)
	}
}

// unlist forgets rotated keys before their time. The list is never modified in place:
// snapshots share it.
func (s *state) unlist(which func(rotatedKey) bool) {
	s.rotated = slices.DeleteFunc(slices.Clone(s.rotated), which)
}

// overlapEnded reports whether the key document lists a key that it should no longer.
func (s *state) overlapEnded(ms int64) bool {
	return slices.ContainsFunc(s.rotated, func(k rotatedKey) bool { return k.until <= ms })
}

// prepareKey refuses a key that is another node's, as with a copy of its disk: a key
// document that lists one twice is taken by nobody.
func (s *Store) prepareKey(k *attest) (*command, error) {
	bad := len(k.Public) != 32 || len(k.Attestations) == 0 || len(k.Attestations) > maxAttestations
	for _, a := range k.Attestations {
		bad = bad || len(a) > maxAttestation
	}
	if bad {
		return nil, directory.Refuse(directory.BadRequest, "a signing key has 32 bytes and 1 to %d attestations of at most %d bytes", maxAttestations, maxAttestation)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if slices.Contains(s.state.revoked, directory.KeyID(k.Public)) {
		return nil, directory.Refuse(directory.Conflict, "the signing key is revoked; the node makes itself another: %w", directory.ErrKeyRevoked)
	}
	if node, is := s.state.keyOf(k.Public); is && node != k.Node {
		return nil, directory.Refuse(directory.Conflict, "the signing key is that of %s: each node has one of its own", node)
	}
	return &command{Attest: k}, nil
}

// keyOf returns the node that a listed key is of.
func (s *state) keyOf(public []byte) (spiffeid.ID, bool) {
	for node, k := range s.keys {
		if bytes.Equal(k.Public, public) {
			return node, true
		}
	}
	i := slices.IndexFunc(s.rotated, func(k rotatedKey) bool { return bytes.Equal(k.Public, public) })
	if i < 0 {
		return spiffeid.ID{}, false
	}
	return s.rotated[i].Node, true
}
