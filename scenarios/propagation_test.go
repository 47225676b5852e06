package scenarios

import (
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/scenarios/mesh"
	"github.com/roster-mesh/roster/trust"
)

// Each node of an agent's domain makes a staple of it, which is small however many members
// the domain has and holds for half an hour. A node of another domain refuses to.
//
// Requirement: LOG-025
func TestAStapleTravelsWithItsAgent(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan})
		a := m.Register("alpha.test", "ada", 7200)
		m.Eventually(10*time.Second, "it is seen everywhere", func() error { return m.Seen(a) })

		time.Sleep(2 * time.Minute) // a staple is dated when it is asked for, not by the last page

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

		// What no verifier would take, no node makes.
		node := m.Domain("alpha.test").Nodes[0]
		long := exchangeOf(t, node.HTTP("/agent/ada"), node.URL(), "POST", "/ad/r?agent=long&lt=7200",
			`{"base":"https://agents.example/long","capabilities":[{"name":"work","type":"tool","input_schema":{`+
				`"description":"`+strings.Repeat("x", trust.MaxStaple)+`"}}]}`)
		long.want(t, 201)

		staple, err = m.Staple(node, &mesh.Agent{RID: path.Base(long.header.Get("Location"))})
		if !errors.As(err, &refused) || !strings.Contains(refused.Detail, "at most 6144 are allowed") {
			t.Errorf("a staple of %d bytes: %v", len(staple), err)
		}
	})
}
