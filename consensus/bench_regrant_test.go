package consensus

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// How long it takes until all grants of so many registrations are as a new policy
// wants them, each of which changes, and how long a refresh takes meanwhile at most.
// The policy's own answers are not in it: package trust measures those.
//
// Requirement: TRUST-013
func BenchmarkPolicyChange(b *testing.B) {
	var narrow atomic.Bool
	d := newDomain(b, 1, func(c *Config) {
		c.Grants = func(Subject) []directory.Grant {
			if narrow.Load() {
				return []directory.Grant{{Audience: directory.Mesh, Reg: []string{"agent", "kind"},
					Doc: []string{"base", "protocols"}}}
			}

			return []directory.Grant{{Audience: directory.Mesh, All: true}}
		}
	})
	d.ready()
	s := d.nodes[0]

	var last directory.RID

	var mu sync.Mutex // guards last

	var writers sync.WaitGroup
	for w := range 64 {
		writers.Go(func() {
			for i := w; i < *benchSize; i += 64 {
				r := put(b, ada, fmt.Sprintf("agent-%08d", i), 86400)
				r.Document = directory.LoadDocument(directory.KindAD, weighty(i))

				out, err := s.Register(b.Context(), r)
				if err != nil {
					b.Error(err)
					return
				}

				mu.Lock()
				if last.Compare(out.RID) < 0 {
					last = out.RID
				}

				mu.Unlock()
			}
		})
	}

	writers.Wait()

	if b.Failed() {
		return
	}

	done := func(all bool) bool {
		s.Replica.mu.RLock()
		defer s.Replica.mu.RUnlock()

		return s.Replica.state.Registrations().Get(last).Grants()[0].All == all
	}

	var slowest time.Duration
	began := used(syscall.RUSAGE_SELF)

	for i := 0; b.Loop(); i++ {
		narrow.Store(i%2 == 0)

		if _, err := s.SetPolicy(b.Context(), fmt.Appendf(nil, "// %d", i), nil); err != nil {
			b.Fatal(err)
		}

		for !done(i%2 != 0) {
			asked := time.Now()

			if _, err := s.Refresh(b.Context(), directory.RefreshRequest{Caller: directory.Caller{Identity: ada},
				RID: last}); err != nil {
				b.Fatal(err)
			}

			slowest = max(slowest, time.Since(asked))
			time.Sleep(2 * time.Millisecond)
		}
	}

	b.ReportMetric((used(syscall.RUSAGE_SELF)-began).Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(slowest.Milliseconds()), "slowest-refresh-ms")
}
