package consensus

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// genesis is a committed time: 2026-11-01, in Unix milliseconds.
const genesis = int64(1793491200000)

// nextReads are the versions that a later release may read.
var nextReads = Versions{Log: 2, Snapshot: 3, Wire: 4, Formats: signed.Formats{signed.StructurePage: {1, 2}}}

var updateGolden = flag.Bool("update", false, "write the golden files anew")

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}

	return v
}

// golden compares got with a golden file. A changed line is a new version.
func golden(t *testing.T, name, got string) {
	t.Helper()

	file := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if got != string(want) {
		t.Errorf("%s differs: got\n%s", file, got)
	}
}

func describe(data []byte) string {
	return hex.EncodeToString(data) + "\n" + must(cbor.Diagnose(data)) + "\n\n"
}

// freeze returns a snapshot of s. The caller keeps others from changing it.
func freeze(t testing.TB, s *state.State) []byte {
	t.Helper()

	var file bytes.Buffer
	if err := s.Snapshot().Write(&file); err != nil {
		t.Fatal(err)
	}

	return file.Bytes()
}

func readSnapshot(r io.Reader, domain spiffeid.TrustDomain, index *index.Index) (*state.State, error) {
	s, _, err := state.Read(r, domain, index, backup.Processors())

	return s, err
}

func documentOf(t testing.TB, size int) directory.Document {
	t.Helper()

	const base = `{"base":"https://ada.alpha.test","description":"`

	doc, err := directory.ParseDocument(directory.KindAD, []byte(base+strings.Repeat("a", size-len(base)-2)+`"}`))
	if err != nil || doc.Size() != size {
		t.Fatalf("a document of %d bytes has %d: %v", size, doc.Size(), err)
	}

	return doc
}

// quotaExceeded asserts a refusal that begins with the key of the limit and has all of
// the numbers.
func quotaExceeded(t *testing.T, err error, limit string, numbers ...int) {
	t.Helper()
	problem(t, err, directory.QuotaExceeded)

	if err == nil || !strings.HasPrefix(err.Error(), limit+": ") {
		t.Errorf("the detail is %v; it begins with %s", err, limit)
		return
	}

	for _, n := range numbers {
		if !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("the detail is %v; it has not %d", err, n)
		}
	}
}

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

// used is how much of the processors this process, or this thread, has had: on a
// busy machine it tells more than the time does.
func used(who int) time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(who, &u) // fails for other arguments only

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var benchSize = flag.Int("registrations", 100_000, "how many the benchmarks have")

func claimOf(key, body, holder byte) *state.Claim {
	return &state.Claim{
		Key: directory.Hash{key}, Caller: directory.Hash{99}, Body: directory.Hash{body},
		Holder: directory.Hash{holder},
		Lease:  60, Window: 600,
	}
}
