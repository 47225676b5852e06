package consensus

import (
	"fmt"
	"testing"
)

// BenchmarkForwarded is the latency of one writer at a follower.
func BenchmarkForwarded(b *testing.B) {
	d := newDomain(b, 3, nil)
	d.ready()

	_, follower := d.leader()
	for i := 0; b.Loop(); i++ {
		if _, err := d.nodes[follower].Register(b.Context(), put(b, ada, fmt.Sprint("agent-", i), 600)); err != nil {
			b.Fatal(err)
		}
	}
}
func BenchmarkRegister(b *testing.B) {
	d := newDomain(b, 1, nil)
	d.ready()
	b.SetParallelism(64)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := d.nodes[0].Register(b.Context(), put(b, ada, fmt.Sprintf("a%p-%d", pb, i), 600)); err != nil {
				b.Error(err)
			}
		}
	})
}
