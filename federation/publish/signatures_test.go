package publish

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// Whatever is signed, the signatures that are kept are bounded by twice the records of the streams
// and some to spare, and a sweep keeps those of the records that are still there.
func TestSignaturesAreBounded(t *testing.T) {
	var known signatures

	hash := func(i int) (h directory.Hash) {
		binary.BigEndian.PutUint64(h[:], uint64(i))
		return h
	}
	jws := func(kid string, i int) string {
		signature := make([]byte, 64)
		binary.BigEndian.PutUint64(signature, uint64(i))
		header := fmt.Sprintf(`{"alg":"EdDSA","kid":"%s","typ":"adrec+sd-jwt"}`, kid)

		return directory.B64.EncodeToString([]byte(header)) + ".e30." + directory.B64.EncodeToString(signature)
	}

	for i := range 2 * spareSignatures {
		known.add(hash(i), jws("a", i))
	}

	if n := len(known.byHash); n != spareSignatures || !known.isFull() {
		t.Fatalf("%d are kept", n)
	}

	_, want := partsOf(jws("a", 7))
	if _, signature := known.of(hash(7)); signature != want {
		t.Errorf("the signature of 7 is %q, not %q", signature, want)
	}

	present := map[directory.Hash][64]byte{hash(7): known.byHash[hash(7)]}
	known.replace(present, 1)

	if _, signature := known.of(hash(7)); signature != want || known.isFull() {
		t.Errorf("the signature of a present record is %q after the sweep", signature)
	}

	if _, signature := known.of(hash(8)); signature != "" {
		t.Error("the signature of a record that is gone outlives the sweep")
	}

	for i := range 2 * spareSignatures {
		known.add(hash(100+i), jws("a", i))
	}

	if n := len(known.byHash); n != spareSignatures+2 {
		t.Errorf("%d are kept beside one that is present", n)
	}

	known.keepBy("a")

	if _, signature := known.of(hash(7)); signature != want {
		t.Error("another issue that lists the same key removes its signatures")
	}

	known.add(hash(1), jws("b", 1))

	if _, signature := known.of(hash(7)); signature != "" || len(known.byHash) != 1 {
		t.Error("signatures by the key before are kept beside those by another")
	}
}
