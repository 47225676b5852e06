package content

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/analysis"
)

// What it costs to read a registration that describes itself as many others do.
func BenchmarkReadFleet(b *testing.B) {
	description := strings.Repeat("A sample agent that is registered to see how much a directory carries. ", 13)
	a := NewReader(analysis.New(maphash.MakeSeed()))

	var r Content
	for i := 0; b.Loop(); i++ {
		r.Read(a, &directory.Projection{Name: fmt.Sprintf("agent-%08d", i), Description: description[i%4:],
			Capabilities: []directory.Capability{
				{Name: fmt.Sprintf("summarize-%03d", i%500), Description: "Summarizes what it is given.",
					Tags: []string{fmt.Sprintf("tag-%02d", i%20), "text"}},
				{Name: "translate", Tags: []string{"language"}},
			}})
	}
}
