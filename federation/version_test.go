package federation

import (
	"testing"
	"testing/synctest"

	"go.etcd.io/bbolt"
)

// What the version before wrote is pulled again, and what is known of its origin stays.
func TestAnEarlierFileIsPulledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		rid := b.origin.register("one", 600)
		b.pull()
		keys := b.beta.origin(alpha).keysText
		err := b.beta.store.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyVersion, firstVersion) })
		if err != nil {
			t.Fatal(err)
		}
		b.beta.reopen(t)
		if is := b.beta.shown(alpha); len(is) != 0 {
			t.Fatalf("it shows %v", is)
		}
		if b.beta.origin(alpha).keysText != keys || keys == "" {
			t.Error("the origin's key document is not what it was")
		}
		b.pull()
		if is := b.beta.shown(alpha); len(is) != 1 || is[rid] == nil {
			t.Errorf("it shows %v", is)
		}
	})
}
