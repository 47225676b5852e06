package state

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

// benchSize is how many registrations the benchmarks of this package have: by itself a
// tenth of what the bars speak of.
var benchSize = flag.Int("registrations", 100_000, "how many the benchmarks have")

// weighty is a document of 1.4 KB as scenarios/load registers it.
func weighty(i int) []byte {
	doc := fmt.Sprintf(`{"base":"https://agent-%08d.load.example/api","protocols":["%s","https"],"capabilities":[`+
		`{"name":"summarize-%03d","type":"tool","description":"Summarizes what it is given.",`+
		`"tags":["tag-%02d","text"],`+
		`"input_schema":{"type":"object","properties":{"text":{"type":"string"},`+
		`"sentences":{"type":"integer","minimum":1,"maximum":20}},"required":["text"]}},`+
		`{"name":"translate","type":"tool","tags":["language"]}],"description":"`,
		i, []string{"a2a", "mcp", "grpc", "https"}[i/20%4], i%500, i%20)

	return []byte(doc + strings.Repeat("A sample agent that is registered to see how much a directory carries. ",
		20)[:1398-len(doc)] + `"}`)
}

// populated is a state with so many registrations, and their rids.
func populated(b testing.TB, n int) (*drive, []directory.RID) {
	b.Helper()

	d, rids := newDrive(b), make([]directory.RID, n)
	for at := 0; at < n; {
		var cs []Command
		for ; at < n && len(cs) < 256; at++ {
			var entropy [10]byte
			binary.BigEndian.PutUint64(entropy[:], uint64(at)*0x9E3779B97F4A7C15)
			g := meshGrant(ada)
			g.Policy = d.state.policy.basis
			rids[at] = directory.NewRID(genesis, entropy)
			cs = append(cs, Command{Register: &Register{
				Format: signed.StatementFormat, RID: rids[at], Salt: signed.Salt(bytes.Repeat(entropy[:], 4)),
				Caller: ada, Agent: fmt.Sprintf("agent-%08d", at), Kind: directory.KindAD, Document: weighty(at),
				Lifetime:   86400,
				Visibility: directory.Visibility{Mesh: true}, Granted: g,
			}})
		}

		rs, err := d.state.Apply(&Batch{FirstVersion, genesis, cs})
		if err != nil || rs[0].Err != nil {
			b.Fatal(err, rs[0].Err)
		}
	}

	return d, rids
}

// What a restart does with a snapshot.
func BenchmarkRestore(b *testing.B) {
	d, _ := populated(b, *benchSize)

	var file bytes.Buffer
	if err := d.state.Snapshot().Write(&file); err != nil {
		b.Fatal(err)
	}

	d.state = nil
	began := used(syscall.RUSAGE_SELF)

	for b.Loop() {
		var h Header

		s, err := readSnapshot(bytes.NewReader(file.Bytes()), alpha, index.New(), &h)
		if err != nil {
			b.Fatal(err)
		}

		s.registrations.FillIndex()
	}

	b.ReportMetric(float64(file.Len())/float64(*benchSize), "B/registration")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*1e6/float64(*benchSize), "s/10^6")
	b.ReportMetric((used(syscall.RUSAGE_SELF)-began).Seconds()/float64(b.N)*1e6/float64(*benchSize), "cpu-s/10^6")
}

// What the collector has to do each time that it looks at so many registrations.
func BenchmarkCollection(b *testing.B) {
	d, _ := populated(b, *benchSize)
	runtime.GC()
	began := used(syscall.RUSAGE_SELF)

	for b.Loop() {
		runtime.GC()
	}

	b.ReportMetric((used(syscall.RUSAGE_SELF)-began).Seconds()/float64(b.N)*1e6/float64(*benchSize), "cpu-s/10^6")

	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/float64(*benchSize), "B/registration")
	b.ReportMetric(float64(m.HeapObjects)/float64(*benchSize), "objects/registration")
	runtime.KeepAlive(d)
}

// used is how much of the processors this process, or this thread, has had: on a
// busy machine it tells more than the time does.
func used(who int) time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(who, &u) // fails for other arguments only

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How long the state is held at most, which others' writes wait for, while all
// are refreshed three times, while a snapshot is taken, and while all expire.
func BenchmarkHolds(b *testing.B) {
	const thisThread = 1 // RUSAGE_THREAD
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	longest := map[string]time.Duration{}

	hold := func(what string, f func()) {
		began := used(thisThread)
		f()
		longest[what] = max(longest[what], used(thisThread)-began)
	}
	for b.Loop() {
		d, rids := populated(b, *benchSize)

		apply := func(what string, seconds int64, c Command) {
			batch := &Batch{FirstVersion, genesis + seconds*1000, []Command{c}}
			hold(what, func() {
				if _, err := d.state.Apply(batch); err != nil {
					b.Fatal(err)
				}
			})
		}
		for n := range 3 {
			for part := range slices.Chunk(rids, directory.MaxRenewals) {
				items := make([]directory.Renewal, len(part))
				for i, rid := range part {
					// lower: announced at once
					items[i] = directory.Renewal{RID: rid, Lifetime: uint32(86400 - 10000*n)}
				}

				apply("refreshes", 1, Command{Renew: &Renew{ada, false, PackRenewals(items)}})
			}
		}

		hold("snapshot", func() { d.state.Snapshot() })

		for left := len(rids); left > 0; {
			var expired []directory.RID
			hold("look", func() { expired, _ = d.state.registrations.Due(genesis/1000 + 86400) })

			left -= len(expired)
			for part := range slices.Chunk(expired, MaxSwept) {
				apply("expiries", 86400, Command{Expire: &Sweep{signed.StatementFormat, part}})
			}
		}
	}

	for what, took := range longest {
		b.ReportMetric(float64(took.Microseconds())/1000, what+"-ms")
	}
}
