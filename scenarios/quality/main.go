// Command quality measures the ranking of discovery: it scores the retrieval sets of
// a directory (-data), and prints one table.
//
//	go run ./scenarios/quality [-data DIR] [-half dev|dev-strict] [set …]
//	. env.sh; go run ./scenarios/quality -node "$ROSTER_ADDRESS" toolalpaca
//
// With -node a running node is scored over HTTP, as its users see it: the records of a
// set are registered there, queried, and removed again.
//
// Beside the engine stands plain BM25F over the same fields, written down once
// more and without anything else. The figures that were reached with at most
// sampled queries of each set are in baseline.tsv, which the package's tests
// compare with; -write replaces it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
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

	var c connection
	flag.StringVar(&c.node, "node", "", "score the node at https://HOST:PORT instead of the engine alone")
	flag.BoolVar(&c.remote, "remote", false, "-node may be another machine's")
	flag.StringVar(&c.ca, "ca", os.Getenv("ROSTER_BUNDLE"),
		"PEM file of the authorities that certify it (ROSTER_BUNDLE)")
	flag.StringVar(&c.cert, "cert", os.Getenv("ROSTER_CERT"),
		"PEM file of an X.509-SVID that may register there (ROSTER_CERT)")
	flag.StringVar(&c.key, "key", os.Getenv("ROSTER_KEY"), "PEM file of its private key (ROSTER_KEY)")
	flag.StringVar(&c.token, "token", os.Getenv("ROSTER_TOKEN_FILE"),
		"file of a token that may register there (ROSTER_TOKEN_FILE)")
	flag.Parse()

	names := setNames
	if flag.NArg() > 0 {
		names = flag.Args()
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := score(ctx, &c, *data, *half, *write, names); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

// score scores the engine, or a node if one is given.
func score(ctx context.Context, connection *connection, data, half, write string, names []string) error {
	if connection.node == "" {
		return run(os.Stdout, data, half, write, names, (*set).scoreEngine)
	}

	client, err := connection.client()
	if err != nil {
		return err
	}

	return run(os.Stdout, data, half, write, names, func(s *set) (figures, error) { return s.scoreAt(ctx, client) })
}

// run scores sets by rank and prints the table.
func run(w io.Writer, data, half, write string, names []string, rank func(*set) (figures, error)) error {
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

		figures, err := rank(set)
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
