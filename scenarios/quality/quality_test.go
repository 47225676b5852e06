package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/discovery/content"
)

// data is the directory of the sets, relative to this package.
const data = "../../../shared/data/retrieval"

// quick are the sets that a short run scores as well.
var quick = []string{"toolalpaca", "livemcp-server", "livemcp-tool"}

// setsToScore returns the sets of this run; a test without the data is skipped.
func setsToScore(t *testing.T) []*set {
	t.Helper()

	names := setNames
	if !directorytest.Full() {
		names = quick
		t.Logf("%d of %d sets are left out", len(setNames)-len(names), len(setNames))
	}

	var all []*set
	for _, name := range names {
		s, err := loadSet(data, name, "dev")
		if absent(err) {
			t.Skipf("%d sets are not beside the project: %v", len(names), err)
		}

		if err != nil {
			t.Fatal(err)
		}

		s.sample(sampled)
		all = append(all, s)
	}

	return all
}

// tolerance is how far a set may fall.
const tolerance = .01

// No set falls by more than a hundredth below its baseline, or below plain BM25F. A
// larger improvement must be recorded: go run ./scenarios/quality -write
// scenarios/quality/baseline.tsv.
func TestQualityHolds(t *testing.T) {
	base := readBaseline(t)

	var reached []float64
	for _, s := range setsToScore(t) {
		got, err := s.scoreEngine()
		if err != nil {
			t.Fatal(err)
		}

		was, known := base[s.name]
		if !known {
			t.Errorf("%s is not in %s", s.name, baselineFile)
		}

		for _, c := range []struct {
			name     string
			got, was float64
		}{{"nDCG@5", got.nDCG5, was.nDCG5}, {"Recall@1", got.recall1, was.recall1},
			{"Recall@5", got.recall5, was.recall5}, {"MRR", got.mrr, was.mrr}} {
			switch {
			case c.got < c.was-tolerance:
				t.Errorf("%s: %s has fallen from %.4f to %.4f", s.name, c.name, c.was, c.got)
			case c.got > c.was+tolerance:
				t.Errorf("%s: %s has risen from %.4f to %.4f: write the baseline again", s.name, c.name, c.was, c.got)
			}
		}

		if plain := s.score(newPlain(s.records)).nDCG5; got.nDCG5 < plain-tolerance {
			t.Errorf("%s: nDCG@5 is %.4f, under plain BM25F's %.4f", s.name, got.nDCG5, plain)
		}

		reached = append(reached, got.nDCG5)
	}

	if m := mean(reached); len(reached) == len(setNames) && m < .49 {
		t.Errorf("the mean nDCG@5 is %.4f; the bar is .49", m)
	}
}

func readBaseline(t *testing.T) map[string]figures {
	t.Helper()

	b, err := os.ReadFile(baselineFile)
	if err != nil {
		t.Fatal(err)
	}

	base := map[string]figures{}
	for line := range strings.Lines(string(b)) {
		var vs [4]float64

		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != len(vs)+1 {
			t.Fatalf("%s: %q is not a set with four figures", baselineFile, line)
		}

		for i := range vs {
			if vs[i], err = strconv.ParseFloat(f[i+1], 64); err != nil {
				t.Fatal(err)
			}
		}

		base[f[0]] = figures{vs[0], vs[1], vs[2], vs[3]}
	}

	return base
}

// attacked bounds the queries of a set that are asked of an attacked engine.
const attacked = 200

// Requirement: XU-030
func TestStuffingDoesNotPay(t *testing.T) {
	for _, s := range setsToScore(t) {
		attacks := attacks(s.queries)
		s.sample(attacked)

		e, err := newEngine(s.records)
		if err != nil {
			t.Fatal(err)
		}

		for _, a := range attacks {
			if got := s.success(e, a); got > .02 {
				t.Errorf("%s: %s is among the first five of %.1f %% of the queries", s.name, a.name, 100*got)
			}
		}

		e.close()
	}
}

// No honest registration of the sets is flagged.
//
// Requirement: XU-030
func TestHonestAgentsAreNotFlagged(t *testing.T) {
	for _, s := range setsToScore(t) {
		e, err := newEngine(s.records)
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range e.finder.Flagged(len(s.records)) {
			if f.Flags&^content.FlagDuplicate != 0 {
				t.Errorf("%s: %s is flagged: %s", s.name, e.ids[f.RID], f.Flags)
			}
		}

		e.close()
	}
}

// The yardstick computes BM25F correctly, and the measures match their definitions.
func TestFiguresAreRight(t *testing.T) {
	p := newPlain([]record{{ID: "a", Name: "Maps", Description: "Plans a route."},
		{ID: "b", Name: "Bread", Description: "Bakes while you route."}, {ID: "c", Name: "Violin"}})
	if got := strings.Join(p.rank("plan a route", 5), " "); got != "a b" {
		t.Errorf("the yardstick ranks %s", got)
	}

	q := query{right: map[string]bool{"x": true, "y": true}}

	f := q.score([]string{"n", "x", "n2", "n3", "n4", "y"})
	if f.recall1 != 0 || f.recall5 != .5 || f.mrr != .5 || f.nDCG5 < .386 || f.nDCG5 > .387 {
		t.Errorf("the figures are %+v", f)
	}
}

// The table can be printed and written of a set that is made up.
func TestTheTablePrints(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()

		file := filepath.Join(dir, "tiny", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("corpus.jsonl", `{"id":"a","name":"maps","description":"Plans a route."}`+"\n"+
		`{"id":"b","name":"bread","description":"Bakes."}`+"\n")
	write("queries.dev.jsonl", `{"id":"q","text":"plan a route"}`+"\n")
	write("qrels.dev.tsv", "q\ta\t1\n")

	var out bytes.Buffer

	base := filepath.Join(dir, "base.tsv")
	if err := run(&out, dir, "dev", base, []string{"tiny"}); err != nil {
		t.Fatal(err)
	}

	if written, err := os.ReadFile(base); err != nil || string(written) != "tiny\t1.0000\t1.0000\t1.0000\t1.0000\n" {
		t.Errorf("wrote %q, %v", written, err)
	}

	if !strings.Contains(out.String(), "tiny") || !strings.Contains(out.String(), "mean") {
		t.Errorf("printed %s", out.String())
	}
}

// absent reports whether an error says that the sets are not there.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
