package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/directory"
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
		if err != nil {
			t.Fatal(err)
		}

		if n := lists(t, store.File()); n > 0 {
			t.Errorf("%d lists of free pages are in the file while it is in use", n)
		}

		for range 3 { // which frees pages
			if _, err := store.Change(id, func(*Tx) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}

		if err := store.Close(); err != nil {
			t.Fatal(err)
		}

		file, err := bbolt.Open(filepath.Join(dir, "federation.db"), 0o600, &bbolt.Options{ReadOnly: true,
			PreLoadFreelist: true})
		if err != nil {
			t.Fatal(err)
		}

		if n := lists(t, file); n != 1 {
			t.Errorf("%d lists of free pages are in the file after a stop", n)
		}

		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// lists returns how many lists of free pages are in use in a file.
func lists(t *testing.T, db *bbolt.DB) (n int) {
	t.Helper()

	tx, err := db.Begin(!db.IsReadOnly())
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = tx.Rollback() }()

	for id := 0; ; id++ {
		page, err := tx.Page(id)
		if err != nil {
			t.Fatal(err)
		}

		if page == nil {
			return n
		}

		if page.Type == "freelist" {
			n++
		}
	}
}
