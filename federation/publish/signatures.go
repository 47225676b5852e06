package publish

import (
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// signatureCache are those of the records that were asked for last. Every node of every
// peer asks for each record, one signature serves them all, and to make it takes
// longer than all else that is done for an answer. One that is lost is made again.
type signatureCache struct {
	header      string // of the JWSs: it names the key
	young, aged map[directory.Hash]string
}

// maxSignatures bounds each of the two generations; a signature takes some 200 bytes.
const maxSignatures = 16 << 10

// of returns the signature of a record, and the header that goes before its payload;
// "" if it isn't known.
func (s *signatureCache) of(hash directory.Hash) (header, signature string) {
	signature, ok := s.young[hash]
	if !ok {
		if signature, ok = s.aged[hash]; !ok {
			return "", ""
		}

		s.keep(hash, signature)
	}

	return s.header, signature
}

// add stores a signature. A signature by another key than before clears the cache first.
func (s *signatureCache) add(hash directory.Hash, jws string) {
	header := jws[:strings.IndexByte(jws, '.')]
	signature := jws[strings.LastIndexByte(jws, '.')+1:]

	if header != s.header {
		*s = signatureCache{header: strings.Clone(header)}
	}

	s.keep(hash, strings.Clone(signature)) // a part of jws would hold the whole of it
}

func (s *signatureCache) keep(hash directory.Hash, signature string) {
	if s.young == nil || len(s.young) >= maxSignatures {
		s.young, s.aged = map[directory.Hash]string{}, s.young
	}

	s.young[hash] = signature
}
