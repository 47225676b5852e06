package kinds_test

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

func BenchmarkProject(b *testing.B) {
	d := mustDocument(b, directory.KindAD, jimenez41)
	for name, project := range map[string]func(string, directory.Document) (*directory.Projection,
		error){"project": kinds.Project, "reproject": kinds.Reproject} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()

			for b.Loop() {
				if _, err := project("a", d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
