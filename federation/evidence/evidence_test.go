package evidence

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var must = directorytest.Must

var alpha = spiffeid.RequireTrustDomainFromString("alpha.test")

// The oldest gives way, whatever its name.
func TestTheOldestEvidenceGivesWay(t *testing.T) {
	c, _, err := Open(t.TempDir())
	must(t, err)

	for i := range MaxFiles {
		c.kept[alpha] = append(c.kept[alpha], File{ID: fmt.Sprint("E1-", i),
			Found: time.Now().Add(-time.Duration(i) * time.Minute)})
	}

	fresh, err := c.Add(Conviction{Origin: alpha, ID: "E1-new"}, []byte("{}"), false)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}

	for _, f := range c.Files(alpha) {
		if f.ID == fmt.Sprint("E1-", MaxFiles-1) {
			t.Error("the oldest is kept")
		}
	}
}

// A file is read while the domain's act on its case changes the file's name.
func TestEvidenceIsReadWhileItsCaseIsSettled(t *testing.T) {
	c, _, err := Open(t.TempDir())
	must(t, err)

	conviction := Conviction{Origin: alpha, ID: "E1"}
	if _, err := c.Add(conviction, []byte("{}"), false); err != nil {
		t.Fatal(err)
	}

	var changes sync.WaitGroup

	changes.Go(func() {
		for range 2000 {
			if err := errors.Join(c.Settle(&Pending{Conviction: conviction}), c.Reopen(alpha, "E1")); err != nil {
				t.Error(err)
				return
			}
		}
	})

	for range 2000 {
		if _, err := c.Read(alpha, "E1"); err != nil {
			t.Error(err)
			break
		}
	}

	changes.Wait()
}

// New evidence stays where all that is kept is from a time to come, as after a clock
// was set back.
func TestNewEvidenceIsNotTheOldest(t *testing.T) {
	c, _, err := Open(t.TempDir())
	must(t, err)

	for i := range MaxFiles {
		c.kept[alpha] = append(c.kept[alpha], File{ID: fmt.Sprint("E1-", i), Found: time.Now().Add(time.Hour)})
	}

	v := Conviction{Origin: alpha, ID: "E1-new"}
	for i, want := range []bool{true, false} {
		if fresh, err := c.Add(v, []byte("{}"), false); err != nil || fresh != want {
			t.Errorf("taken %d times: new %v, %v", i+1, fresh, err)
		}
	}
}
