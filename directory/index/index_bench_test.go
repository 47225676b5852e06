package index_test

import (
	"fmt"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// population returns n entries of several kinds of commonness: 4 protocols, 50
// capability names, 1,000 tags, unique agent names.
func population(n int) []*directory.Entry {
	es := make([]*directory.Entry, n)
	for i := range es {
		p := &directory.Projection{Protocols: []string{[]string{"a2a", "mcp", "grpc", "https"}[i%4]}, Status: "active"}
		for c := range 2 {
			p.Capabilities = append(p.Capabilities, directory.Capability{
				Name: fmt.Sprintf("capability-%d", (i+c*7)%50), Type: "tool",
				Tags: []string{fmt.Sprintf("tag-%d", (i*31+c)%1000)},
			})
		}

		es[i] = entry(alpha, i, fmt.Sprintf("agent-%07d", i), p)
	}

	return es
}

const benchSize = 100_000

func BenchmarkLookup(b *testing.B) {
	v := index.NewView(alpha)
	for _, e := range population(benchSize) {
		v.Own().Put(e)
	}

	prefix := func(s string) []index.Pattern { return []index.Pattern{{Text: s, Prefix: true}} }
	for _, c := range []struct {
		name string
		q    index.Query
	}{
		{"name", index.Query{Agent: []index.Pattern{{Text: "agent-0050000"}}}},
		{"two-filters", index.Query{CapType: []string{"tool"}, Tag: []string{"tag-500"}}},
		{"all-first-page", index.Query{}},
		{"prefix-rare", index.Query{Agent: prefix("agent-009999")}},
		{"prefix-common", index.Query{CapName: prefix("capability-1")}},
		{"nothing", index.Query{Tag: []string{"none"}, Protocol: []string{"a2a"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()

			for b.Loop() {
				v.Lookup(c.q, nil)
			}
		})
	}
}
