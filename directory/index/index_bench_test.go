package index_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
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

// A new registration, in rising order as the own domain's and in no order as a
// first sync's.
func BenchmarkPut(b *testing.B) {
	es := population(benchSize)
	for _, name := range []string{"in-order", "shuffled"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()

			v := index.NewView(alpha)
			for i := 0; b.Loop(); i++ {
				if i%benchSize == 0 {
					v = index.NewView(alpha)
				}

				v.Own().Put(es[i%benchSize])
			}
		})
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
	}
}

// A refresh changes no order.
func BenchmarkRefresh(b *testing.B) {
	v := index.NewView(alpha)

	es := population(benchSize)
	for _, e := range es {
		v.Own().Put(e)
	}

	b.ReportAllocs()

	for i := 0; b.Loop(); i++ {
		e := *es[i%benchSize]
		e.ExpiresAt++
		v.Own().Put(&e)
	}
}

// What an entry costs the index, beside itself.
func BenchmarkIndexMemory(b *testing.B) {
	es := population(benchSize)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)

		v := index.NewView(alpha)
		for _, e := range es {
			v.Own().Put(e)
		}

		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/benchSize, "B/entry")
		runtime.KeepAlive(v)
	}

	runtime.KeepAlive(es)
}

// What the log of changes costs a writer: nothing while nobody watches, little
// however many wait.
func BenchmarkPutWatched(b *testing.B) {
	for _, c := range []struct {
		name     string
		watchers int
	}{{"nobody", 0}, {"1", 1}, {"100", 100}} {
		b.Run(c.name, func(b *testing.B) {
			v := index.NewView(alpha)

			es := population(10_000)
			for _, e := range es {
				v.Own().Put(e)
			}

			var readers sync.WaitGroup

			ctx, cancel := context.WithCancel(b.Context())
			for range c.watchers {
				// Somebody whom nothing concerns: it is woken, looks, and waits again.
				w := v.Watch(index.Query{Agent: []index.Pattern{{Text: "nobody"}}}, nil, index.ResumeToken{})
				readers.Go(func() {
					defer w.Close()

					for err := error(nil); err == nil; {
						_, err = w.Next(ctx)
					}
				})
			}

			b.ReportAllocs()

			for i := 0; b.Loop(); i++ {
				e := *es[i%len(es)]
				e.Statement = uint64(i)
				v.Own().Put(&e)
			}

			cancel()
			readers.Wait()
		})
	}
}

// The state behind a reset, of everything there is.
func BenchmarkWatchBegins(b *testing.B) {
	v := index.NewView(alpha)
	for _, e := range population(benchSize) {
		v.Own().Put(e)
	}

	b.ReportAllocs()

	for b.Loop() {
		w, told := v.Watch(index.Query{}, nil, index.ResumeToken{}), 0
		for w.ResumeToken().IsZero() {
			events, err := w.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}

			told += len(events)
		}

		if w.Close(); told != benchSize+2 {
			b.Fatal(told)
		}
	}

	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchSize, "ns/entry")
}
