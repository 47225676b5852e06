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
	"github.com/roster-mesh/roster/federation/evidence"
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
			c.Verifier = court
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})
		dir := filepath.Join(b.beta.cfg.Dir, "evidence")

		write := func(id, suffix string) {
			must(t, os.WriteFile(filepath.Join(dir, alpha.Name()+"."+id+suffix), []byte(id), 0o600))
		}
		for i := range evidence.MaxFiles {
			write(fmt.Sprint("E1-", i), evidence.KeptSuffix)
		}

		write("E1-last", evidence.PendingSuffix)
		b.beta.reopen(t)

		open := b.beta.evidence.cases.Pending()
		if len(open) != 1 || court.news != 0 {
			t.Fatalf("%d cases are open, %d were judged as news", len(open), court.news)
		}

		for _, c := range open {
			must(t, b.beta.evidence.freeze(t.Context(), c))
		}

		if n := len(b.beta.evidence.cases.Files(alpha)); n != evidence.MaxFiles {
			t.Errorf("%d files are kept", n)
		}

		p.State = directory.PeeringActive
		b.beta.reopen(t)

		if b.beta.reconcile(); !b.beta.origins.Get(alpha).Accepts() {
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
			c.Verifier = court
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})
		file := filepath.Join(b.beta.cfg.Dir, "evidence", alpha.Name()+".E1-0"+evidence.KeptSuffix)
		must(t, os.WriteFile(file, []byte("E1-0"), 0o600))
		b.beta.reopen(t)
		b.beta.reconcile()
		p.State = directory.PeeringActive
		b.beta.reconcile()
		o := b.beta.origins.Get(alpha)
		must(t, b.beta.receiver.refreshKeys(t.Context(), o, b.giver()))

		open := b.beta.evidence.cases.Pending()
		if o.Accepts() || len(open) != 1 || court.news != 0 {
			t.Fatalf("it is believed again: %v; %d cases are open, %d were judged as news", o.Accepts(), len(open),
				court.news)
		}

		// A stop before the domain has acted doesn't lose the case.
		b.beta.reopen(t)

		o = b.beta.origins.Get(alpha)
		if open = b.beta.evidence.cases.Pending(); o.Accepts() || len(open) != 1 || court.news != 0 {
			t.Fatalf("after a start it is believed: %v; %d cases are open", o.Accepts(), len(open))
		}

		must(t, b.beta.evidence.freeze(t.Context(), open[0]))

		if files := b.beta.evidence.cases.Files(alpha); len(files) != 1 || files[0].ID != "E1-0" {
			t.Errorf("kept: %v", files)
		}

		b.beta.reconcile()
		must(t, b.beta.receiver.refreshKeys(t.Context(), o, b.giver()))

		if !o.Accepts() || len(b.beta.evidence.cases.Pending()) != 0 {
			t.Error("a release doesn't last")
		}
	})
}

// A memory counts what it is to judge as news.
type memory struct {
	believer
	news int
}

func (c *memory) Judge(evidence []byte, news bool) (evidence.Conviction, error) {
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
			c.Verifier = court
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})
		if _, err := b.beta.evidence.convict([]byte("E1-0"), true); !errors.Is(err, errNoCase) {
			t.Errorf("a stranger: %v", err)
		}

		court.against = alpha
		for _, state := range []directory.PeeringState{directory.PeeringPending, directory.PeeringTerminated} {
			o := b.beta.origins.Get(alpha)
			p.State = state
			b.beta.reconcile()

			if _, err := b.beta.evidence.convict([]byte("E1-0"), true); !errors.Is(err, errNoCase) {
				t.Errorf("a peering that is %s: %v", state, err)
			}

			p.State = directory.PeeringActive
			b.beta.reconcile()

			if o == nil || !b.beta.origins.Get(alpha).Accepts() {
				t.Errorf("it is frozen once it is a peer")
			}
		}

		if fresh, err := b.beta.evidence.convict([]byte("E1-0"), true); err != nil || !fresh {
			t.Fatal(fresh, err)
		}

		if frozen := b.beta.Frozen(); !slices.Equal(frozen, []spiffeid.TrustDomain{alpha}) ||
			b.beta.refusals.ByOrigin.Of(alpha)[protocol.CodeEquivocation] != 1 {
			t.Errorf("frozen: %v", frozen)
		}

		must(t, b.beta.evidence.freeze(t.Context(), b.beta.evidence.cases.Pending()[0]))
		b.beta.reconcile() // and it was released

		if fresh, err := b.beta.evidence.convict([]byte("E1-0"), true); err != nil || fresh ||
			!b.beta.origins.Get(alpha).Accepts() {
			t.Errorf("what was judged freezes it again: %v %v", fresh, err)
		}
	})
}

// An accuser is a Court that finds one domain guilty.
type accuser struct {
	believer
	against spiffeid.TrustDomain
}

func (c *accuser) Judge(file []byte, _ bool) (evidence.Conviction, error) {
	return evidence.Conviction{Origin: c.against, ID: string(file)}, nil
}

func (c *accuser) Freeze(context.Context, spiffeid.TrustDomain) error { return nil }

// The domain acts on what is found while it runs, at once.
func TestTheDomainActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acted []spiffeid.TrustDomain
		b := newBench(t, func(c *Config) {
			c.Verifier = &believer{func(td spiffeid.TrustDomain) {
				acted = append(acted, td)
			}}
		})
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
		b := newBench(t, func(c *Config) { c.Verifier = &accuser{against: alpha} })

		dir := filepath.Join(b.beta.cfg.Dir, "evidence")
		for i, file := range []string{"alpha.test.E1-2.json", "alpha.test.E1-1.json", "new-1", "nothing.json",
			"alpha.test.e1", "../secret.json"} {
			file = filepath.Join(dir, file)
			must(t, os.WriteFile(file, []byte(filepath.Base(file)), 0o600))
			must(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Duration(i)*time.Minute)))
		}

		b.beta.reopen(t)

		listed := func() (ids []string) {
			for _, f := range b.beta.evidence.cases.Files(alpha) {
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

		for id, want := range map[string]string{"": "alpha.test.E1-2.json", "E1-1": "alpha.test.E1-1.json",
			"E1-0": "E1-0"} {
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
