package wipe

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// Deleted values are nowhere in the file once it is scanned, whether their pages lie between used ones or at its end,
// and whether the scan is one step or many. What is stored stays.
func TestFreePagesAreOverwritten(t *testing.T) {
	for _, pages := range []int{1, 7, 1 << 20} {
		path := filepath.Join(t.TempDir(), "store.db")
		db, err := bbolt.Open(path, 0o600, nil)
		directorytest.Must(t, err)

		change := func(change func(*bbolt.Bucket, []byte) error, from, to uint64) {
			directorytest.Must(t, db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				for i := from; err == nil && i < to; i++ {
					err = change(b, binary.BigEndian.AppendUint64(nil, i))
				}

				return err
			}))
		}
		put := func(b *bbolt.Bucket, key []byte) error { return b.Put(key, bytes.Repeat([]byte("secret"), 2000)) }

		change(put, 0, 200)
		change((*bbolt.Bucket).Delete, 20, 40)
		change((*bbolt.Bucket).Delete, 60, 200)
		change(put, 0, 1) // frees the pages that the deletions left

		idled := 0
		f, err := Open(db, func() { idled++ })
		directorytest.Must(t, err)

		for next := FirstPage; next > 0; {
			next, err = f.Pages(next, pages)
			directorytest.Must(t, err)
		}

		directorytest.Must(t, f.Sync())
		directorytest.Must(t, f.Close())

		kept := 0
		directorytest.Must(t, db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Error(err)
			}

			kept = tx.Bucket([]byte("b")).Stats().KeyN

			return nil
		}))
		directorytest.Must(t, db.Close())

		file, err := os.ReadFile(path)
		directorytest.Must(t, err)

		if n := bytes.Count(file, []byte("secret")); kept != 40 || n != 40*2000 || idled == 0 {
			t.Errorf("%d pages at once: %d values, the file has %d texts, waited %d times for readers", pages, kept, n, idled)
		}
	}
}
