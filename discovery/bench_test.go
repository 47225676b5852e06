package discovery

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
	"github.com/roster-mesh/roster/discovery/postings"
)

// benchSize is how many registrations the benchmarks have: ROSTER_BENCH_SIZE, or
// what is quick.
func benchSize() int {
	if n, err := strconv.Atoi(os.Getenv("ROSTER_BENCH_SIZE")); err == nil {
		return n
	}

	return 20_000
}

// A writer makes up texts: words of a language with Zipf's law, in which the
// commonest content word is in about every tenth text.
type writer struct {
	rand *rand.Rand
	zipf *rand.Zipf
}

func newWriter(seed uint64) *writer {
	r := rand.New(rand.NewPCG(seed, 1))
	return &writer{r, rand.NewZipf(r, 1.05, 30, 60_000)}
}

// vocabulary are words that look like words: of two to four syllables.
var vocabulary = sync.OnceValue(func() []string {
	syllables := strings.Fields("ba ce di fo gu ka le mi no pu ra se ti vo zu bran cles dron flis gran krel mond " +
		"plin stor tram vend xan yor")

	words := make([]string, 60_001)
	for i := range words {
		w := ""
		for n := i; ; n /= len(syllables) {
			w += syllables[n%len(syllables)]
			if n < len(syllables) {
				break
			}
		}

		words[i] = w + "n"
	}

	return words
})

func (w *writer) words(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = vocabulary()[w.zipf.Uint64()]
	}

	return strings.Join(out, " ")
}

// entry makes up the registration number i: about 75 words in a name, a
// description, five tags, three capabilities and two examples.
func (w *writer) entry(i int) *directory.Entry {
	p := &directory.Projection{
		Name: fmt.Sprintf("agent-%07d", i), Description: w.words(24), Status: "active",
		Protocols: []string{[]string{"a2a", "mcp", "https"}[i%3]},
	}
	for range 5 {
		p.Tags = append(p.Tags, w.words(1))
	}

	for range 3 {
		p.Capabilities = append(p.Capabilities, directory.Capability{Name: w.words(2), Type: "tool",
			Description: w.words(8)})
	}

	for range 2 {
		p.Examples = append(p.Examples, directory.Example{Text: w.words(7)})
	}

	now := time.Now().UnixMilli()

	return &directory.Entry{
		Origin: alpha, RID: directory.NewRID(int64(i), [10]byte{byte(i), byte(i >> 8), byte(i >> 16)}), Agent: p.Name,
		Owner: owners[i%len(owners)], Packed: directory.Pack(directory.Document{}, p),
		Lifetime: 86400, RegisteredAt: now, UpdatedAt: now, ExpiresAt: now + 86400_000, Created: uint64(i) + 1,
	}
}

var (
	alpha  = spiffeid.RequireTrustDomainFromString("alpha.test")
	owners = func() []directory.Identity {
		ids := make([]directory.Identity, 1000)
		for i := range ids {
			ids[i] = directory.IdentityOf(spiffeid.RequireFromPathf(alpha, "/agent/%d", i))
		}

		return ids
	}()
)

// byVisibility is a class function as the built-in policies allow it.
func byVisibility(e *directory.Entry) string { return e.Origin.Name() + " " + e.Visibility.String() }

// heapInUse returns how many bytes are in use.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

// What one registration costs the index, and how long it takes to read it in.
func BenchmarkMemory(b *testing.B) {
	n := benchSize()
	for b.Loop() {
		w := newWriter(1)
		a := content.NewReader(analysis.NewIndexing(maphash.MakeSeed()))
		before := heapInUse()
		x := newIndex(&Config{Class: byVisibility, Generation: func() uint64 { return 0 }}, a.Seed, nil)

		var c contents
		start := cpu()

		for i := range n {
			e := w.entry(i)
			c.read(a, e, e.Projection())
			x.put(e, &c)
		}

		took := cpu() - start
		after := heapInUse()
		b.ReportMetric(float64(after-before)/float64(n), "B/registration")
		b.ReportMetric(float64(took.Microseconds())/float64(n), "cpu-µs/registration")
		b.ReportMetric(float64(x.terms.Len()), "terms")
		runtime.KeepAlive(x)
	}
}

// What it takes to index a registration in the place of another: with a text of
// which nothing is as it was, with a word more, or with another endpoint alone.
func BenchmarkUpdate(b *testing.B) {
	n := benchSize()
	_, f := population(b, n)
	w := newWriter(1)

	old := make([]*directory.Entry, min(n, 4096))
	for i := range old {
		old[i] = w.entry(i)
	}

	for _, c := range []struct {
		name   string
		change func(p *directory.Projection, i int)
	}{
		{"text", func(p *directory.Projection, i int) { *p = *w.entry(i).Projection() }},
		{"word", func(p *directory.Projection, i int) { p.Description += " " + w.words(1) }},
		{"endpoint", func(p *directory.Projection, i int) { p.Base = fmt.Sprintf("https://moved-%d.example", i) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			next := make([]*directory.Entry, len(old))
			for i := range old {
				e, p := *old[i], old[i].Projection()
				c.change(p, i)
				e.Packed = directory.Pack(e.Document, p)
				next[i] = &e
			}

			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ReportAllocs()

			start, i := cpu(), 0
			for ; b.Loop(); i++ {
				j := i % len(next)
				f.apply([]index.Event{{Kind: index.EventUpdated, Old: old[j], Entry: next[j]}})
				old[j], next[j] = next[j], old[j]
			}

			b.ReportMetric(float64((cpu()-start).Nanoseconds())/1000/float64(i), "cpu-µs/update")
		})
	}
}

// What it takes the index that a registration expires: all do, one after the other.
func BenchmarkExpiry(b *testing.B) {
	n, w := benchSize(), newWriter(1)
	for b.Loop() {
		b.StopTimer()
		_, f := population(b, n)

		all := make([]index.Event, n)
		for i := range all {
			all[i] = index.Event{Kind: index.EventRemoved, Entry: w.entry(i)}
		}

		runtime.LockOSThread()
		b.StartTimer()
		start := cpu()

		for events := range slices.Chunk(all, feedBatch) {
			f.apply(events)
		}

		b.ReportMetric(float64((cpu()-start).Nanoseconds())/1000/float64(n), "cpu-µs/expiry")
		runtime.UnlockOSThread()
	}
}

// cpu returns the processor time that this thread has used.
func cpu() time.Duration {
	const threadTime = 3 // CLOCK_THREAD_CPUTIME_ID

	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadTime, uintptr(unsafe.Pointer(&t)), 0)

	return time.Duration(t.Nano())
}

// population fills a view and waits until a finder has read it.
func population(b *testing.B, n int) (*index.View, *Finder) {
	b.Helper()
	w := newWriter(1)

	v := index.NewView(alpha)
	for i := range n {
		v.Own().Put(w.entry(i))
	}

	f, err := New(Config{View: v, Class: byVisibility})
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(f.Close)

	if err := f.CatchUp(b.Context()); err != nil {
		b.Fatal(err)
	}

	return v, f
}

// question is made up of 4 to 14 words, as people's are without function words.
func (w *writer) question() *Request {
	return &Request{Query: w.words(4 + w.rand.IntN(11)), Limit: DefaultLimit, Constraints: Constraints{MaxAge: -1}}
}

// The processor time of a query, in the middle and at the 99th percentile.
func BenchmarkFind(b *testing.B) {
	_, f := population(b, benchSize())

	hide := func(e *directory.Entry) (s directory.Redaction, ok bool) { return s, e.Visibility.Mesh }
	for _, c := range []struct {
		name   string
		reader Reader
		change func(*Request)
	}{
		{"plain", Reader{}, func(*Request) {}},
		{"policy", Reader{Key: "everything", Sees: func(*directory.Entry) (s directory.Redaction, ok bool) {
			return s, true
		}}, func(*Request) {}},
		{"nothing-seen", Reader{Key: "nothing", Sees: hide}, func(*Request) {}},
		{"filters", Reader{}, func(r *Request) {
			r.Protocols, r.RequiredTags = []string{"mcp"}, []string{vocabulary()[40]}
		}},
		{"evidence", Reader{}, func(r *Request) { r.IncludeEvidence = true }},
	} {
		b.Run(c.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			w := newWriter(2)

			var took []time.Duration
			b.ReportAllocs()

			for b.Loop() {
				r := w.question()
				c.change(r)
				start := cpu()

				if _, err := f.Find(context.Background(), Query{Request: r, Reader: c.reader}); err != nil {
					b.Fatal(err)
				}

				took = append(took, cpu()-start)
			}

			reportQuantiles(b, took)
		})
	}
}

// The part of a query that grows with the number of registrations: to find the best
// of them by the index. There are no texts, and each term's postings are made up at
// once, so that a million registrations are there in seconds.
func BenchmarkGather(b *testing.B) {
	n := uint32(benchSize())

	x := newIndex(&Config{}, maphash.MakeSeed(), nil)
	for i := range n {
		x.alive.Set(x.slots.Take())
		x.slots.At(i).rid = directory.NewRID(int64(i), [10]byte{})
	}

	x.origins = append(x.origins, alpha)
	w := newWriter(1)

	var (
		ranks [60_001]float64
		sum   float64
	)
	for i := range ranks {
		ranks[i] = math.Pow(30+float64(i), -1.05) // as writer's
		sum += ranks[i]
	}

	const words = 75
	for i := range ranks {
		often := words * ranks[i] / sum

		step := 1 / math.Log1p(-(1 - math.Exp(-often)))
		for at := w.skip(step); at < float64(n); at += 1 + w.skip(step) {
			count := .5 + .5*w.rand.Float64()
			for w.rand.Float64() < often/2 && count < 4 {
				count++
			}

			x.terms.Set(termOf(i), postings.NewPosting(uint32(at), quantum(count/(content.Saturation+count))))
		}
	}

	x.terms.Scatter()

	for _, words := range []int{2, 4, 9, 14} {
		b.Run(fmt.Sprint(words, " words"), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			w := newWriter(2)

			var took []time.Duration
			for b.Loop() {
				start := cpu()
				x.gather(w.leads(x, words, int(n)), x.alive, ratedFirst+2*DefaultLimit)
				took = append(took, cpu()-start)
			}

			reportQuantiles(b, took)
		})
	}
}

// skip returns how many registrations lie before the next that has a word.
func (w *writer) skip(step float64) float64 { return math.Floor(math.Log(1-w.rand.Float64()) * step) }

func (w *writer) leads(x *termIndex, words, n int) []postings.Lead {
	var leads []postings.Lead

	asked := map[uint64]bool{}
	for range words {
		h := termOf(int(w.zipf.Uint64()))
		if l, ok := x.lead(h, x.alive, true, n); ok && !asked[h] {
			asked[h] = true
			leads = append(leads, l)
		}
	}

	return leads
}

// termOf returns the hash of a made-up term.
func termOf(i int) uint64 { return (uint64(i)*0x9e3779b97f4a7c15 ^ uint64(i)<<17) | 1 }

// reportQuantiles reports what the middle and the hundredth slowest has taken.
func reportQuantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "cpu-ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "cpu-ms-p99")
}

// Queries while registrations change, ten changes for each query: the processor
// time of both together, all threads', for 1,000 queries and 10,000 changes. Where
// that is less than a second for each core there is, so many a second can be served.
func BenchmarkFindWhileChanging(b *testing.B) {
	n := benchSize()
	v, f := population(b, n)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()

	var tasks, changes sync.WaitGroup
	tasks.Go(func() { _ = f.Run(ctx) })
	w := newWriter(3)

	next := make([]*directory.Entry, 1<<14)
	for i := range next {
		next[i] = w.entry(w.rand.IntN(n))
	}

	const each = 10
	asked := make(chan struct{}, 64)
	changes.Go(func() {
		i := 0
		for range asked {
			for range each {
				e := *next[i%len(next)]
				v.Own().Put(&e)
				i += 1 + i/len(next)%3 // another order, and so other changes, in the next round
			}
		}
	})
	questions := newWriter(2)

	start, longest := processCPU(), time.Duration(0)
	for b.Loop() {
		r, began := questions.question(), time.Now()
		if _, err := f.Find(ctx, Query{Request: r}); err != nil {
			b.Fatal(err)
		}

		longest = max(longest, time.Since(began))
		asked <- struct{}{}
	}

	close(asked)
	changes.Wait()

	if err := f.CatchUp(ctx); err != nil {
		b.Fatal(err)
	}

	b.ReportMetric((processCPU()-start).Seconds()*1000/float64(b.N), "cpu-s/1000-queries-and-10000-changes")
	b.ReportMetric(longest.Seconds()*1000, "longest-ms")
	cancel()
	tasks.Wait()
}

// What the directory itself does for a lookup and for a change, with an index that
// follows it and without.
func BenchmarkLookupBeside(b *testing.B) {
	for _, followed := range []bool{false, true} {
		b.Run(fmt.Sprint("followed ", followed), func(b *testing.B) {
			n := min(benchSize(), 20_000)
			w := newWriter(1)

			v := index.NewView(alpha)
			for i := range n {
				v.Own().Put(w.entry(i))
			}

			if followed {
				defer follow(b, v)()
			}

			next := make([]*directory.Entry, 1<<12)
			for i := range next {
				next[i] = w.entry(w.rand.IntN(n))
			}

			runtime.LockOSThread()
			defer runtime.UnlockOSThread()

			var looked, put time.Duration

			i := 0
			for ; b.Loop(); i++ {
				e := *next[i%len(next)]
				start := cpu()
				v.Own().Put(&e)
				between := cpu()
				page := v.Lookup(index.Query{Agent: []index.Pattern{{Text: e.Agent}}, Count: 10}, nil)
				looked, put = looked+cpu()-between, put+between-start

				if len(page.Entries) != 1 {
					b.Fatalf("%d have the name %s", len(page.Entries), e.Agent)
				}
			}

			b.ReportMetric(float64(looked.Nanoseconds())/1000/float64(i), "cpu-µs/lookup")
			b.ReportMetric(float64(put.Nanoseconds())/1000/float64(i), "cpu-µs/change")
		})
	}
}

// follow has a finder follow a view until what it returns is called.
func follow(b *testing.B, v *index.View) (stop func()) {
	f, err := New(Config{View: v, Class: byVisibility})
	if err != nil {
		b.Fatal(err)
	}

	ctx, cancel := context.WithCancel(b.Context())
	if err := f.CatchUp(ctx); err != nil {
		b.Fatal(err)
	}

	var task sync.WaitGroup
	task.Go(func() { _ = f.Run(ctx) })

	return func() { cancel(); task.Wait(); f.Close() }
}

// processCPU returns the processor time that this process has used.
func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
