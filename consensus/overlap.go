package consensus

import (
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

// rotate notes that a node has put a key in the place of old. One that it had before
// and takes again signs once more.
func (s *state) rotate(old, now directory.SigningKey) {
	s.unlist(func(k rotatedKey) bool { return k.Public.Equal(now.Public) })
	s.rotated = append(slices.Clip(s.rotated), rotatedKey{old, s.now + keyOverlap})
	s.rotated = s.rotated[max(0, len(s.rotated)-maxRotated):]
}

// unlist forgets rotated keys before their time. The list is never modified in place:
// snapshots share it.
func (s *state) unlist(which func(rotatedKey) bool) {
	s.rotated = slices.DeleteFunc(slices.Clone(s.rotated), which)
}

// overlapEnded reports whether the key document lists a key that it should no longer.
func (s *state) overlapEnded(ms int64) bool {
	return len(s.rotated) > 0 && s.rotated[0].until <= ms
}
