package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/durable"
)

// A damaged certificate, one of another identity, or a file that can't be written stops the renewal of no
// other SVID, and stays in the list until it is repaired.
func TestAnSVIDThatCannotBeRenewedStopsNoOther(t *testing.T) {
	dir := t.TempDir()

	store, err := Create(filepath.Join(dir, "ca"), spiffeid.RequireTrustDomainFromString("alpha.test"))
	must(t, err)
	defer store.Close()

	issued := map[string]Identity{}

	for _, name := range []string{"damaged", "replaced", "unwritable", "removed", "good"} {
		issued[name], err = store.Issue(Request{Path: "/" + name, Cert: filepath.Join(dir, name+".pem"),
			Key: filepath.Join(dir, name+".key"), Lifetime: time.Hour})
		must(t, err)
	}

	good, err := os.ReadFile(issued["good"].Cert)
	must(t, err)

	// A directory in place of the key refuses the rename, also to root.
	for _, err := range []error{
		durable.WriteFile(issued["damaged"].Cert, []byte("damaged"), 0o644),
		durable.WriteFile(issued["replaced"].Cert, good, 0o644),
		os.Remove(issued["unwritable"].Key), os.Mkdir(issued["unwritable"].Key, 0o700),
		os.Remove(issued["removed"].Cert),
	} {
		must(t, err)
	}

	renewed, failed, err := store.Renew(true)
	if err != nil || len(renewed) != 1 || renewed[0].SPIFFEID != "spiffe://alpha.test/good" {
		t.Errorf("renewed %v (%v), want the good SVID", renewed, err)
	}

	text := renewalFailure(failed).Error()
	for _, name := range []string{"damaged", "replaced", "unwritable"} {
		if !strings.Contains(text, "spiffe://alpha.test/"+name+": ") {
			t.Errorf("the failure %q does not name %s", text, name)
		}
	}

	if len(failed) != 3 || len(store.issued) != 4 {
		t.Errorf("%d failed, %d are in the list, want 3 and 4", len(failed), len(store.issued))
	}

	if now, err := os.ReadFile(issued["good"].Cert); err != nil || string(now) == string(good) {
		t.Errorf("the good certificate was not renewed (%v)", err)
	}
}

var must = directorytest.Must
