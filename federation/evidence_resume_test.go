package federation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
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
		open := b.beta.evidence.cases.open()
		if len(open) != 1 || court.news != 0 {
			t.Fatalf("%d cases are open, %d were judged as news", len(open), court.news)
		}
		for _, c := range open {
			if err := b.beta.evidence.freeze(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(b.beta.evidence.evidenceOf(alpha)); n != maxFiles {
			t.Errorf("%d files are kept", n)
		}
		p.State = directory.PeeringActive
		b.beta.reopen(t)
		if b.beta.reconcile(); !b.beta.origins.get(alpha).accepts() {
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
		o := b.beta.origins.get(alpha)
		must(t, b.beta.receiver.refreshKeys(t.Context(), o, b.giver()))
		open := b.beta.evidence.cases.open()
		if o.accepts() || len(open) != 1 || court.news != 0 {
			t.Fatalf("it is believed again: %v; %d cases are open, %d were judged as news", o.accepts(), len(open), court.news)
		}
		must(t, b.beta.evidence.freeze(t.Context(), open[0]))
		if files := b.beta.evidence.evidenceOf(alpha); len(files) != 1 || files[0].ID != "E1-0" {
			t.Errorf("kept: %v", files)
		}
		b.beta.reconcile()
		must(t, b.beta.receiver.refreshKeys(t.Context(), o, b.giver()))
		if !o.accepts() || len(b.beta.evidence.cases.open()) != 0 {
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

// Evidence is for active peers and frozen ones, once: what convicts a stranger, a domain
// that is no peer yet or no more, or was judged before, freezes nobody.
//
// Requirement: MESH-022
func TestEvidenceAgainstNobodysPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)
		court := &accuser{against: delta}
		b := newBench(t, func(c *Config) {
			c.Court = court
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})
		if _, err := b.beta.evidence.convict([]byte("E1-0"), true); !errors.Is(err, errNoCase) {
			t.Errorf("a stranger: %v", err)
		}
		court.against = alpha
		for _, state := range []directory.PeeringState{directory.PeeringPending, directory.PeeringTerminated} {
			o := b.beta.origins.get(alpha)
			p.State = state
			b.beta.reconcile()
			if _, err := b.beta.evidence.convict([]byte("E1-0"), true); !errors.Is(err, errNoCase) {
				t.Errorf("a peering that is %s: %v", state, err)
			}
			p.State = directory.PeeringActive
			b.beta.reconcile()
			if o == nil || !b.beta.origins.get(alpha).accepts() {
				t.Errorf("it is frozen once it is a peer")
			}
		}
		if fresh, err := b.beta.evidence.convict([]byte("E1-0"), true); err != nil || !fresh {
			t.Fatal(fresh, err)
		}
		if frozen := b.beta.Frozen(); !slices.Equal(frozen, []spiffeid.TrustDomain{alpha}) || b.beta.refusals.byOrigin.of(alpha)[protocol.CodeEquivocation] != 1 {
			t.Errorf("frozen: %v", frozen)
		}
		must(t, b.beta.evidence.freeze(t.Context(), b.beta.evidence.cases.open()[0]))
		b.beta.reconcile() // and it was released
		if fresh, err := b.beta.evidence.convict([]byte("E1-0"), true); err != nil || fresh || !b.beta.origins.get(alpha).accepts() {
			t.Errorf("what was judged freezes it again: %v %v", fresh, err)
		}
	})
}

// An accuser is a Court that finds one domain guilty.
type accuser struct {
	believer
	against spiffeid.TrustDomain
}

func (c *accuser) Judge(evidence []byte, _ bool) (Conviction, error) {
	return Conviction{Origin: c.against, ID: string(evidence)}, nil
}

func (c *accuser) Freeze(context.Context, spiffeid.TrustDomain) error { return nil }

// The domain acts on what is found while it runs, at once.
func TestTheDomainActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acted []spiffeid.TrustDomain
		b := newBench(t, func(c *Config) { c.Court = &believer{func(td spiffeid.TrustDomain) { acted = append(acted, td) }} })
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go b.beta.evidence.enforce(ctx)
		synctest.Wait()
		if fresh, err := b.beta.evidence.convict([]byte("E1-0"), true); err != nil || !fresh {
			t.Fatal(fresh, err)
		}
		if synctest.Wait(); !slices.Equal(acted, []spiffeid.TrustDomain{alpha}) {
			t.Errorf("it acted against %v", acted)
		}
	})
}

// What is listed is there to be read, the oldest first, and nothing else is, whatever
// name it is asked for by. What a crash left is no evidence.
func TestEvidenceThatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.Court = &accuser{against: alpha} })
		dir := filepath.Join(b.beta.cfg.Dir, "evidence")
		for i, file := range []string{"alpha.test.E1-2.json", "alpha.test.E1-1.json", "new-1", "nothing.json", "alpha.test.e1", "../secret.json"} {
			file = filepath.Join(dir, file)
			must(t, os.WriteFile(file, []byte(filepath.Base(file)), 0o600))
			must(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Duration(i)*time.Minute)))
		}
		b.beta.reopen(t)
		listed := func() (ids []string) {
			for _, f := range b.beta.evidence.evidenceOf(alpha) {
				ids = append(ids, f.ID)
			}
			return ids
		}
		if ids := listed(); !slices.Equal(ids, []string{"E1-2", "E1-1"}) {
			t.Errorf("after a start it lists %v", ids)
		}
		time.Sleep(time.Hour)
		if fresh, err := b.beta.evidence.convict([]byte("E1-0"), true); err != nil || !fresh {
			t.Fatal(fresh, err)
		}
		if ids := listed(); !slices.Equal(ids, []string{"E1-2", "E1-1", "E1-0"}) {
			t.Errorf("it lists %v", ids)
		}
		for id, want := range map[string]string{"": "alpha.test.E1-2.json", "E1-1": "alpha.test.E1-1.json", "E1-0": "E1-0"} {
			if got, err := b.beta.evidence.file(alpha, id); err != nil || string(got) != want {
				t.Errorf("%q is %q, %v", id, got, err)
			}
		}
		for _, id := range []string{"e1", "/../../secret"} {
			if got, err := b.beta.evidence.file(alpha, id); directory.ProblemOf(err) != directory.NotFound {
				t.Errorf("%q is %q, %v", id, got, err)
			}
		}
		if _, err := b.beta.evidence.file(gamma, ""); directory.ProblemOf(err) != directory.NotFound {
			t.Errorf("against gamma: %v", err)
		}
	})
}

// The oldest gives way, whatever its name.
func TestTheOldestEvidenceGivesWay(t *testing.T) {
	c, _, err := openCases(t.TempDir())
	must(t, err)
	for i := range maxFiles {
		c.kept[alpha] = append(c.kept[alpha], EvidenceFile{fmt.Sprint("E1-", i), time.Now().Add(-time.Duration(i) * time.Minute)})
	}
	fresh, err := c.take(Conviction{Origin: alpha, ID: "E1-new"}, []byte("{}"), false)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	for _, f := range c.against(alpha) {
		if f.ID == fmt.Sprint("E1-", maxFiles-1) {
			t.Error("the oldest is kept")
		}
	}
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
