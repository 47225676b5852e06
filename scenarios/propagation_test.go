package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/scenarios/mesh"
	"github.com/roster-mesh/roster/trust"
)

// A registration at one domain is visible at every node of every domain within a second,
// with and without gossip, and with all of its provenance (the harness checks that on
// every item of every answer).
//
// Requirement: MESH-001
func TestARegistrationReachesEveryDomain(t *testing.T) {
	for _, noGossip := range []bool{false, true} {
		t.Run(fmt.Sprintf("gossip %v", !noGossip), func(t *testing.T) {
			runStory(t, 2, func(t *testing.T, seed uint64) {
				m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed, Link: wan, NoGossip: noGossip})
				for i := range 5 {
					for _, d := range m.Domains {
						a := m.Register(d.Name, fmt.Sprintf("agent-%d", i), 3600)
						took := m.Eventually(time.Second, a.Name+" of "+d.Name+" is seen everywhere", func() error {
							return m.Seen(a)
						})
						t.Logf("%s of %s was everywhere after %v", a.Name, d.Name, took)
					}
				}

				if err := m.Equal(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A write to a follower is one to the domain: it forwards, and the writer reads
// its write there.
func TestAnyNodeTakesAWrite(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Nodes: 3, Seed: seed, Link: wan})
		for i, n := range m.Domains[0].Nodes {
			a := m.RegisterAt(n, fmt.Sprintf("agent-%d", i), 3600)

			all, err := m.Lookup(n)
			if err != nil {
				t.Fatal(err)
			}

			if _, shown := all[a.RID]; !shown {
				t.Errorf("%s took %s and does not show it", n.Name, a.Name)
			}

			m.Eventually(time.Second, a.Name+" is seen at every node", func() error { return m.Seen(a) })
		}
	})
}

// Each node of an agent's domain makes a staple of it, which is small however many members
// the domain has and holds for half an hour. A node of another domain refuses to.
//
// Requirement: LOG-025
func TestAStapleTravelsWithItsAgent(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan})
		a := m.Register("alpha.test", "ada", 7200)
		m.Eventually(time.Second, "it is seen everywhere", func() error { return m.Seen(a) })

		time.Sleep(5 * time.Minute) // a staple is dated when it is asked for, not by the last page

		for _, n := range m.Domain("alpha.test").Nodes {
			staple, err := m.Staple(n, a)
			if err != nil || len(staple) > trust.MaxStaple {
				t.Fatalf("%s: %d bytes, %v", n.Name, len(staple), err)
			}

			for after, code := range map[time.Duration]int{0: 0, trust.StapleLifetime - time.Minute: 0,
				trust.StapleLifetime: 14} {
				report, err := trust.Verify(staple, trust.VerifyOptions{Staple: true, At: time.Now().Add(after),
					Bundle: m.Domain("alpha.test").Bundle()})
				if trust.ExitCode(err) != code || report.Subject.RID != a.RID || len(report.Unchecked) > 0 {
					t.Errorf("%s, after %s: exit code %d, want %d: %v\n%v", n.Name, after, trust.ExitCode(err), code,
						err, report)
				}
			}

			_, err = trust.Verify(staple, trust.VerifyOptions{Staple: true, Bundle: m.Domain("beta.test").Bundle()})
			if trust.ExitCode(err) != 12 {
				t.Errorf("by another domain's bundle: %v", err)
			}
		}

		staple, err := m.Staple(m.Domain("beta.test").Nodes[0], a)

		var refused *apiclient.Error
		if !errors.As(err, &refused) || refused.Code != string(directory.ForeignRegistration) {
			t.Errorf("beta.test made a staple for alpha.test: %s, %v", staple, err)
		}
	})
}

// A proof outlives its origin: while alpha is unreachable, the proof that gamma serves
// for alpha's agent verifies offline against alpha's bundle, against no other bundle,
// and until the agent's deadline.
func TestAProofHoldsWithoutItsOrigin(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed, Link: wan})
		a := m.Register("alpha.test", "ada", 600)
		m.Eventually(time.Second, "it is seen everywhere", func() error { return m.Seen(a) })
		gamma := m.Domain("gamma.test").Nodes[0]

		var proof []byte
		m.Eventually(time.Minute, "gamma.test has the whole record", func() (err error) {
			proof, err = m.Proof(gamma, a)
			return err
		})
		m.Domain("alpha.test").Kill()
		check := func(d *mesh.Domain, at time.Time, code int) {
			t.Helper()

			report, err := trust.Verify(proof, trust.VerifyOptions{Bundle: d.Bundle(), At: at})
			if trust.ExitCode(err) != code {
				t.Errorf("exit code %d, want %d: %v\n%v", trust.ExitCode(err), code, err, report)
			}

			if err == nil && (report.Subject.Domain != a.Domain || report.Subject.Agent != a.Name ||
				report.Subject.RID != a.RID) {
				t.Errorf("the proof is of %+v", report.Subject)
			}
		}
		check(m.Domain("alpha.test"), time.Now(), 0)
		check(m.Domain("beta.test"), time.Now(), 12)
		check(m.Domain("alpha.test"), a.Until.Add(time.Second), 14)

		tampered := []byte(strings.Replace(string(proof), `"record":"`, `"record":"e`, 1))
		if _, err := trust.Verify(tampered,
			trust.VerifyOptions{Bundle: m.Domain("alpha.test").Bundle()}); trust.ExitCode(err) != 10 {
			t.Errorf("a tampered proof: exit code %d: %v", trust.ExitCode(err), err)
		}
	})
}
