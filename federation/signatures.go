package federation

import (
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// madeSignatures are those of the records that were asked for last. Every node of every
// peer asks for each record, one signature serves them all, and to make it takes
// longer than all else that is done for an answer. One that is lost is made again.
type madeSignatures struct {
	header      string // of the JWSs, with its dot: it names the key
	young, aged map[directory.Hash]string
}

// maxSignatures bounds each of the two generations; a signature takes some 200 bytes.
const maxSignatures = 16 << 10

// of returns the record with that payload, "" where its signature isn't known.
func (s *madeSignatures) of(h directory.Hash, payload []byte) string {
	signature, ok := s.young[h]
	if !ok {
		if signature, ok = s.aged[h]; !ok {
			return ""
		}
		s.keep(h, signature)
	}
	b := make([]byte, 0, len(s.header)+directory.B64.EncodedLen(len(payload))+1+len(signature))
	b = directory.B64.AppendEncode(append(b, s.header...), payload)
	return string(append(append(b, '.'), signature...))
}

// add notes what was signed. What another key signed than the one before begins anew.
func (s *madeSignatures) add(h directory.Hash, jws string) {
	header, signature := jws[:strings.IndexByte(jws, '.')+1], jws[strings.LastIndexByte(jws, '.')+1:]
	if header != s.header {
		*s = madeSignatures{header: strings.Clone(header)}
	}
	s.keep(h, strings.Clone(signature)) // a part of jws would hold the whole of it
}

func (s *madeSignatures) keep(h directory.Hash, signature string) {
	if s.young == nil || len(s.young) >= maxSignatures {
		s.young, s.aged = map[directory.Hash]string{}, s.young
	}
	s.young[h] = signature
}
