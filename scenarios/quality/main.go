// Command quality measures the ranking of discovery: it scores the retrieval sets of
// a directory (-data), and prints one table.
//
//	go run ./scenarios/quality [-data DIR] [-half dev|dev-strict] [set …]
//
// Beside the engine stands plain BM25F over the same fields, written down once
// more and without anything else. The figures that were reached with at most
// sampled queries of each set are in baseline.tsv, which the package's tests
// compare with; -write replaces it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	defaultData  = "../shared/data/retrieval"
	baselineFile = "baseline.tsv"

	// sampled is how many queries of a set are asked for baselineFile, at most.
	sampled = 1000
)

func main() {
	data := flag.String("data", defaultData, "where the sets are")
	half := flag.String("half", "dev", "which queries are asked: dev or dev-strict")
	write := flag.String("write", "", "write the figures to this file, of at most 1000 queries of each set")
	flag.Parse()

	names := setNames
	if flag.NArg() > 0 {
		names = flag.Args()
	}

	if err := run(os.Stdout, *data, *half, *write, names); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

// run scores sets and prints the table.
func run(w io.Writer, data, half, write string, names []string) error {
	var (
		base          strings.Builder
		plain, engine []float64
	)
	fmt.Fprintf(w, "%-16s %7s %8s   %6s %8s %8s %6s   %s\n", "set", "queries", "plain", "nDCG@5", "Recall@1",
		"Recall@5", "MRR", "against plain")

	for _, name := range names {
		set, err := loadSet(data, name, half)
		if err != nil {
			return err
		}

		if write != "" {
			set.sample(sampled)
		}

		p := set.score(newPlain(set.records)).nDCG5

		figures, err := set.scoreEngine()
		if err != nil {
			return err
		}

		fmt.Fprintf(w, "%-16s %7d %8.4f   %6.4f %8.4f %8.4f %6.4f   %+.4f\n", name, len(set.queries), p, figures.nDCG5,
			figures.recall1, figures.recall5, figures.mrr, figures.nDCG5-p)
		fmt.Fprintf(&base, "%s\t%.4f\t%.4f\t%.4f\t%.4f\n", name, figures.nDCG5, figures.recall1, figures.recall5,
			figures.mrr)
		plain, engine = append(plain, p), append(engine, figures.nDCG5)
	}

	fmt.Fprintf(w, "%-16s %7s %8.4f   %6.4f %35s %+.4f\n", "mean", "", mean(plain), mean(engine), "",
		mean(engine)-mean(plain))

	if write != "" {
		return os.WriteFile(write, []byte(base.String()), 0o644)
	}

	return nil
}

func (s *set) scoreEngine() (figures, error) {
	engine, err := newEngine(s.records)
	if err != nil {
		return figures{}, err
	}
	defer engine.close()

	return s.score(engine), nil
}

func mean(xs []float64) float64 {
	var sum float64
	for _, x := range xs {
		sum += x
	}

	return sum / float64(len(xs))
}
