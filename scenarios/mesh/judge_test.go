package mesh

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// noted collects the failures of a judgement.
type noted struct {
	testing.TB
	errors []string
}

func (n *noted) Helper()                      {}
func (n *noted) Errorf(f string, args ...any) { n.errors = append(n.errors, fmt.Sprintf(f, args...)) }

// The judge lets an honest answer pass, and names each broken promise.
func TestJudge(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	beta := &Node{Name: "beta.test/1", Domain: &Domain{Name: "beta.test"}}

	honest := func() apiclient.Item {
		r := apiclient.Item{Agent: "ada", Href: "/ad/r/alpha.test/rid"}
		r.Provenance.Authority = "alpha.test"
		r.Provenance.Href = "https://ad.alpha.test/ad/r/rid"
		r.Provenance.Revision = 7
		r.Provenance.ExpiresAt = now.Add(time.Minute)
		r.Provenance.Verification.State = "verified"

		return r
	}
	for _, tc := range []struct {
		name, want string
		change     func(*apiclient.Item, *Agent, *model)
	}{
		{"honest", "", func(*apiclient.Item, *Agent, *model) {}},
		{"unknown to the story", "", func(_ *apiclient.Item, _ *Agent, m *model) { clear(m.agents) }},
		{"at its deadline", "past its deadline", func(r *apiclient.Item, _ *Agent, _ *model) {
			r.Provenance.ExpiresAt = now
		}},
		{"extended", "granted no more than", func(_ *apiclient.Item, a *Agent, _ *model) {
			a.Until = now.Add(59 * time.Second)
		}},
		{"of another domain", "it is from alpha.test", func(r *apiclient.Item, _ *Agent, _ *model) {
			r.Provenance.Authority = "gamma.test"
		}},
		{"back from the dead", "after its end", func(_ *apiclient.Item, a *Agent, m *model) {
			a.Ended = true
			m.judge(t, beta, now, Listing{})
		}},
		{"without a revision", "without its provenance", func(r *apiclient.Item, _ *Agent, _ *model) {
			r.Provenance.Revision = 0
		}},
		{"without a href", "without its provenance", func(r *apiclient.Item, _ *Agent, _ *model) {
			r.Provenance.Href = ""
		}},
		{"without a deadline", "without its provenance", func(r *apiclient.Item, _ *Agent, _ *model) {
			r.Provenance.ExpiresAt = time.Time{}
		}},
		{"unverified", "without its provenance", func(r *apiclient.Item, _ *Agent, _ *model) {
			r.Provenance.Verification.State = "pending"
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			notes := &noted{TB: t}
			r := honest()
			a := &Agent{Domain: "alpha.test", Name: "ada", RID: "rid", Until: now.Add(time.Minute)}
			m := newModel()
			m.agents["rid"] = a
			tc.change(&r, a, m)
			m.judge(notes, beta, now, Listing{"rid": r})

			switch {
			case tc.want == "" && len(notes.errors) > 0:
				t.Errorf("complaints: %q", notes.errors)
			case tc.want != "" && (len(notes.errors) != 1 || !strings.Contains(notes.errors[0], tc.want)):
				t.Errorf("complaints: %q, want one with %q", notes.errors, tc.want)
			}
		})
	}
}
