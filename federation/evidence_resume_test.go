package federation

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A node that stops between its writing new evidence and its removing the oldest takes
// the case up when it starts, although it has as many files as it keeps and the domain
// has frozen the origin meanwhile: what isn't settled freezes it again after a release.
//
// Requirement: MESH-022
func TestACaseIsTakenUpThoughThereIsMuchEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)
		p.State = directory.PeeringFrozen
		court := &memory{believer: believer{func(spiffeid.TrustDomain) {}}}
		b := newBench(t, func(c *Config) {
			c.Court = court
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})
		dir := filepath.Join(b.beta.cfg.Dir, "evidence")
		write := func(id, suffix string) {
			if err := os.WriteFile(filepath.Join(dir, alpha.Name()+"."+id+suffix), []byte(id), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for i := range maxFiles {
			write(fmt.Sprint("E1-", i), keptSuffix)
		}
		write("E1-last", pendingSuffix)
		b.beta.reopen(t)
		open := b.beta.cases.open()
		if len(open) != 1 || court.news != 0 {
			t.Fatalf("%d cases are open, %d were judged as news", len(open), court.news)
		}
		for _, c := range open {
			if err := b.beta.freeze(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(b.beta.Evidence(alpha)); n != maxFiles {
			t.Errorf("%d files are kept", n)
		}
		p.State = directory.PeeringActive
		b.beta.reopen(t)
		if b.beta.reconcile(); !b.beta.origin(alpha).accepts() {
			t.Error("a start has undone the release")
		}
	})
}

// A domain that ends a peering in which it was frozen, and is a peer again, is frozen again
// as soon as its keys are known, while the evidence holds; another release lasts.
//
// Requirement: MESH-022
func TestAnotherPeeringIsNoWayOutOfEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)
		p.State = directory.PeeringTerminated
		court := &memory{believer: believer{func(spiffeid.TrustDomain) {}}}
		b := newBench(t, func(c *Config) {
			c.Court = court
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})
		file := filepath.Join(b.beta.cfg.Dir, "evidence", alpha.Name()+".E1-0"+keptSuffix)
		must(t, os.WriteFile(file, []byte("E1-0"), 0o600))
		b.beta.reopen(t)
		b.beta.reconcile()
		p.State = directory.PeeringActive
		b.beta.reconcile()
		o := b.beta.origin(alpha)
		must(t, b.beta.refreshKeys(t.Context(), o, b.giver()))
		open := b.beta.cases.open()
		if o.accepts() || len(open) != 1 || court.news != 0 {
			t.Fatalf("it is believed again: %v; %d cases are open, %d were judged as news", o.accepts(), len(open), court.news)
		}
		must(t, b.beta.freeze(t.Context(), open[0]))
		if files := b.beta.Evidence(alpha); len(files) != 1 || files[0].ID != "E1-0" {
			t.Errorf("kept: %v", files)
		}
		b.beta.reconcile()
		must(t, b.beta.refreshKeys(t.Context(), o, b.giver()))
		if !o.accepts() || len(b.beta.cases.open()) != 0 {
			t.Error("a release doesn't last")
		}
	})
}

// A memory counts what it is to judge as news.
type memory struct {
	believer
	news int
}

func (c *memory) Judge(evidence []byte, news bool) (Conviction, error) {
	if news {
		c.news++
	}
	return c.believer.Judge(evidence, news)
}

// New evidence stays where all that is kept is from a time to come, as after a clock
// was set back.
func TestNewEvidenceIsNotTheOldest(t *testing.T) {
	c, _, err := openCases(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxFiles {
		c.kept[alpha] = append(c.kept[alpha], EvidenceFile{fmt.Sprint("E1-", i), time.Now().Add(time.Hour)})
	}
	v := Conviction{Origin: alpha, ID: "E1-new"}
	for i, want := range []bool{true, false} {
		if fresh, err := c.take(v, []byte("{}"), false); err != nil || fresh != want {
			t.Errorf("taken %d times: new %v, %v", i+1, fresh, err)
		}
	}
}
