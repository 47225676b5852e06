package publish

import (
	"encoding/binary"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// Whatever is asked for, the signatures that are kept are bounded, and those that were
// asked for last are among them.
func TestSignaturesAreBounded(t *testing.T) {
	var s signatureCache
	hash := func(i int) (h directory.Hash) {
		binary.BigEndian.PutUint64(h[:], uint64(i))
		return h
	}
	s.add(hash(0), "header.payload.signature0")

	for i := 1; i < 5*maxSignatures; i++ {
		s.add(hash(i), "header.payload.signature")

		if header, signature := s.of(hash(0)); header != "header" || signature != "signature0" {
			t.Fatalf("what is asked for all the time is lost after %d", i)
		}

		if n := len(s.young) + len(s.aged); n > 2*maxSignatures {
			t.Fatalf("%d are kept", n)
		}
	}

	if _, signature := s.of(hash(1)); signature != "" {
		t.Error("what nobody asked for is kept for ever")
	}
}
