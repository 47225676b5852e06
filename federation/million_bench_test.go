package federation

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// benchSize is the number of a peer's registrations in the benchmarks of this package.
// scenarios/load measures 10^6 between real nodes.
var benchSize = flag.Int("registrations", 20_000, "registrations of the benchmarks")

// A stock is an origin with many registrations that never change. It finds a page in no time,
// so that the benchmarks measure the receiver.
type stock struct {
	*model
	digests []signed.Digest
	records map[protocol.RecordName]stocked
}

type stocked struct {
	payload []byte
	texts   []string
}

func newStock(origin *model, n int) *stock {
	s := &stock{model: origin, records: make(map[protocol.RecordName]stocked, n)}
	now := time.Now().Unix()
	owner := directory.IdentityOf(spiffeid.RequireFromPath(origin.domain, "/agent/ada"))

	for i := range uint64(n) {
		change := &signed.Change{Issuer: origin.domain, RID: ridOf(origin.domain, i), Op: signed.OpPut,
			Epoch: origin.epoch, Revision: i + 1, IssuedAt: now, Since: now, Leaf: i, Agent: fmt.Sprintf("s-%08d", i),
			Owner: owner, Document: weighty(i), Salt: sha256.Sum256(fmt.Append(nil, i))}
		all := change.Disclosures()

		payload, err := signed.Statement(signed.StatementFormat, change, all)
		if err != nil {
			panic(err)
		}

		texts, m := signed.Disclosed(all, directory.Grant{Audience: directory.Mesh, All: true})
		digest := signed.Digest{RID: change.RID, Revision: i + 1, Op: signed.OpPut, H: directory.HashOf(payload), M: m,
			Deadline: now + 604800, Lifetime: 604800}
		s.digests = append(s.digests, digest)
		s.records[protocol.NameOf(digest)] = stocked{payload, texts}
	}

	return s
}

// weighty is a document of 1.4 KB, as scenarios/load registers it.
func weighty(i uint64) directory.Document {
	text := fmt.Sprintf(`{"base":"https://agent-%08d.load.example/api","protocols":["%s","https"],"capabilities":[`+
		`{"name":"summarize-%03d","type":"tool","description":"Summarizes a given document.",`+
		`"tags":["tag-%02d","text"],"input_schema":{"type":"object","properties":{"text":{"type":"string"},`+
		`"sentences":{"type":"integer","minimum":1,"maximum":20}},"required":["text"]}},`+
		`{"name":"translate","type":"tool","tags":["language"]}],"description":"`,
		i, []string{"a2a", "mcp", "grpc", "https"}[i/20%4], i%500, i%20)
	text += strings.Repeat("A sample agent that is registered to see how much a directory carries. ",
		20)[:1398-len(text)] + `"}`

	doc, err := directory.ParseDocument(directory.KindAD, []byte(text))
	if err != nil {
		panic(err)
	}

	return doc
}

func (s *stock) Position() directory.Position {
	return directory.Position{Epoch: s.epoch, Revision: uint64(len(s.digests))}
}

func (s *stock) Digests(aud directory.Audience, since uint64, limit int) (ds []signed.Digest, to, at uint64) {
	at = uint64(len(s.digests))
	if aud != directory.Mesh {
		return nil, at, at
	}

	to = min(at, since+uint64(limit))

	return s.digests[min(since, at):to], to, at
}

func (s *stock) Tip(aud directory.Audience) uint64 {
	if aud != directory.Mesh {
		return 0
	}

	return uint64(len(s.digests))
}

func (s *stock) Record(_ directory.Audience, h, m directory.Hash) ([]byte, []string, bool) {
	r, ok := s.records[protocol.RecordName{H: h, M: m}]
	return r.payload, r.texts, ok
}

// newStockBench returns nodes of two domains, of which alpha has the stock and beta nothing.
func newStockBench(b *testing.B, n int) (alphas, betas *site) {
	b.Helper()

	w := newWorld()
	origin := newModel(alpha, beta)
	alphas = w.open(b, b.TempDir(), 1, origin, active(beta, 1))
	betas = w.open(b, b.TempDir(), 1, newModel(beta, alpha), active(alpha, 1))
	origin.listKeys(nil, alphas.keys)
	alphas.cfg.Source = newStock(origin, n)
	alphas.reopen(b)

	return alphas, betas
}

// syncAll brings beta to alpha's tip.
func syncAll(b *testing.B, betas, alphas *site) {
	b.Helper()

	of := betas.origins.Get(alpha)
	must(b, betas.pulls(of, &of.Mesh, protocol.Node{Domain: alpha, Base: alphas.base}))

	// On a busy machine some records come too late for their page, and are left for the backlog.
	if n := betas.view.Origin(alpha).Len(); n < *benchSize*9/10 {
		b.Fatalf("it shows %d of %d", n, *benchSize)
	}
}

// reportCPU reports the processor time and the wall time for each registration.
func reportCPU(b *testing.B, spent time.Duration) {
	each := float64(b.N) * float64(*benchSize) / 1e6
	b.ReportMetric(b.Elapsed().Seconds()/each, "s/10^6")
	b.ReportMetric(spent.Seconds()/each, "cpu-s/10^6")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A restart of a node that holds a peer's registrations (OPS-032).
func BenchmarkReopen(b *testing.B) {
	alphas, betas := newStockBench(b, *benchSize)
	syncAll(b, betas, alphas)

	alphas.cfg.Source.(*stock).records = nil
	spent := time.Duration(0)

	for b.Loop() {
		b.StopTimer()

		must(b, betas.Close())

		betas.Mesh = nil
		runtime.GC()
		b.StartTimer()
		began := processorTime()
		betas.reopen(b)
		spent += processorTime() - began

		if n := betas.view.Origin(alpha).Len(); n < *benchSize*9/10 {
			b.Fatalf("it shows %d of %d", n, *benchSize)
		}
	}

	reportCPU(b, spent)
}

// A first sync, both ends included but for the network between them.
func BenchmarkFirstSync(b *testing.B) {
	alphas, betas := newStockBench(b, *benchSize)
	spent := time.Duration(0)

	for b.Loop() {
		b.StopTimer()
		betas.cfg.Dir = b.TempDir()
		betas.reopen(b)
		runtime.GC()
		b.StartTimer()
		began := processorTime()
		syncAll(b, betas, alphas)
		spent += processorTime() - began
	}

	reportCPU(b, spent)
}
