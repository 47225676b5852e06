package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

// A stop leaves the list of free pages in the file, so that the next start need not search all
// pages for them. A start removes the list again: changes don't write it.
//
// Requirement: OPS-032
func TestAStopKeepsTheListOfFreePages(t *testing.T) {
	dir := t.TempDir()
	id := StreamID{Origin: spiffeid.RequireTrustDomainFromString("alpha.test"), Audience: directory.Mesh, Epoch: 1}

	for range 2 {
		store, err := Open(dir, true, NewDisk(func() {}, func(time.Duration) {}))
		must(t, err)

		if n := lists(t, store.File()); n > 0 {
			t.Errorf("%d lists of free pages are in the file while it is in use", n)
		}

		for range 3 { // which frees pages
			if _, err := store.Change(id, func(*Tx) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}

		must(t, store.Close())

		file, err := bbolt.Open(filepath.Join(dir, "federation.db"), 0o600, &bbolt.Options{ReadOnly: true,
			PreLoadFreelist: true})
		must(t, err)

		if n := lists(t, file); n != 1 {
			t.Errorf("%d lists of free pages are in the file after a stop", n)
		}

		must(t, file.Close())
	}
}

// A record that is here, or that was refused or had no room, isn't requested with a page again. A full stream
// requests only records that replace held ones.
func TestLackingNamesTheRecordsToFetchWithAPage(t *testing.T) {
	store, err := Open(t.TempDir(), true, NewDisk(func() {}, func(time.Duration) {}))
	must(t, err)

	defer func() { _ = store.Close() }()

	id := StreamID{Origin: spiffeid.RequireTrustDomainFromString("alpha.test"), Audience: directory.Mesh, Epoch: 1}
	rid := directory.NewRID(1, [10]byte{})

	for name, c := range map[string]struct {
		held                 *Entry // of the name {1}; nil for none
		digest               directory.Hash
		lacking, whileIsFull bool
	}{
		"new":                    {nil, directory.Hash{1}, true, false},
		"missing":                {&Entry{Record: RecordMissing}, directory.Hash{1}, true, false},
		"held":                   {&Entry{Record: RecordHeld}, directory.Hash{1}, false, false},
		"refused":                {&Entry{Record: RecordRefused}, directory.Hash{1}, false, false},
		"over quota":             {&Entry{Record: RecordOverQuota}, directory.Hash{1}, false, false},
		"another of one held":    {&Entry{Record: RecordHeld}, directory.Hash{2}, true, true},
		"another of one refused": {&Entry{Record: RecordRefused}, directory.Hash{2}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := store.Change(id, func(tx *Tx) error {
				old, err := tx.Get(rid)
				if err != nil {
					return err
				}

				if err := tx.Remove(rid, old); err != nil || c.held == nil {
					return err
				}

				c.held.H = directory.Hash{1}

				return tx.Put(rid, nil, c.held)
			})
			must(t, err)

			for full, want := range map[bool]bool{false: c.lacking, true: c.whileIsFull} {
				digest := signed.Digest{RID: rid, Op: signed.OpPut, H: c.digest, Deadline: 1}

				lacking, err := store.Lacking(id, []signed.Digest{digest}, full, time.Unix(0, 0))
				if got := len(lacking) == 1; got != want || err != nil {
					t.Errorf("requested: %v, full: %v (%v)", got, full, err)
				}
			}
		})
	}
}

// An entry is kept for Skew after its deadline, so that a page which is announced late can't
// bring it back (rule T4).
//
// Requirement: MESH-009
func TestEntriesAreFreedAfterTheSkew(t *testing.T) {
	const deadline = 1_780_000_000

	end := time.Unix(deadline, 0).Add(directory.Skew)
	for now, want := range map[time.Time]bool{
		time.Unix(deadline, 0):    false,
		end.Add(-time.Nanosecond): false,
		end:                       true,
		end.Add(time.Hour):        true,
	} {
		if Freed(deadline, now) != want {
			t.Errorf("%s after the deadline it is freed: %t", now.Sub(time.Unix(deadline, 0)), !want)
		}
	}
}

// lists returns how many lists of free pages are in use in a file.
func lists(t *testing.T, db *bbolt.DB) (n int) {
	t.Helper()

	tx, err := db.Begin(!db.IsReadOnly())
	must(t, err)

	defer func() { _ = tx.Rollback() }()

	for id := 0; ; id++ {
		page, err := tx.Page(id)
		must(t, err)

		if page == nil {
			return n
		}

		if page.Type == "freelist" {
			n++
		}
	}
}

var must = directorytest.Must
