package discovery

import (
	"context"
	"fmt"
	"hash/maphash"
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
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
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
	must(b, err)

	b.Cleanup(f.Close)

	must(b, f.CatchUp(b.Context()))

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

// reportQuantiles reports what the middle and the hundredth slowest has taken.
func reportQuantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "cpu-ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "cpu-ms-p99")
}

// termOf returns the hash of a made-up term.
func termOf(i int) uint64 { return (uint64(i)*0x9e3779b97f4a7c15 ^ uint64(i)<<17) | 1 }

var must = directorytest.Must
