package publish

import (
	"crypto/ed25519"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// signatures are this node's signatures of statements, by the hash of the statement. Every
// node of every peer requests each record, one signature serves them all, and making it takes
// longer than everything else that is done for an answer. A lost one is made again.
type signatures struct {
	kid    string // of the key that made them
	header string // of their JWSs
	byHash map[directory.Hash][ed25519.SignatureSize]byte
	limit  int // of byHash, at least spareSignatures
}

// spareSignatures bounds the signatures beside one for each record of the streams and one for
// each that has changed since the last sweep. A signature takes about 150 bytes.
const spareSignatures = 32 << 10

// of returns the signature of a statement, and the header that goes before its payload. Both
// are empty if the signature isn't known.
func (s *signatures) of(hash directory.Hash) (header, signature string) {
	raw, ok := s.byHash[hash]
	if !ok {
		return "", ""
	}

	return s.header, directory.B64.EncodeToString(raw[:])
}

// keepBy removes the signatures unless the key kid made them.
func (s *signatures) keepBy(kid string) {
	if kid != s.kid {
		*s = signatures{kid: kid}
	}
}

// add stores the signature of a JWS unless the limit is reached. A signature by another key
// than before removes the others first.
func (s *signatures) add(hash directory.Hash, jws string) {
	if header := jws[:strings.IndexByte(jws, '.')]; header != s.header {
		if parts, err := protocol.SplitJWS(jws); err == nil {
			s.keepBy(protocol.KeyIDOf(parts.Header))
		}

		s.header = strings.Clone(header) // a part of jws would hold the whole of it
	}

	if len(s.byHash) >= max(s.limit, spareSignatures) {
		return
	}

	var raw [ed25519.SignatureSize]byte
	if _, err := directory.B64.Decode(raw[:], []byte(jws[strings.LastIndexByte(jws, '.')+1:])); err != nil {
		return
	}

	if s.byHash == nil {
		s.byHash = map[directory.Hash][ed25519.SignatureSize]byte{}
	}

	s.byHash[hash] = raw
}

// isFull reports whether a sweep is due, because add stores nothing any more.
func (s *signatures) isFull() bool { return len(s.byHash) >= max(s.limit, spareSignatures) }

// replace keeps nothing but the signatures that a sweep found to be of present records. live is the
// number of the records that the streams have, signed or not.
func (s *signatures) replace(present map[directory.Hash][ed25519.SignatureSize]byte, live int) {
	s.byHash = present
	s.limit = 2*live + spareSignatures
}
