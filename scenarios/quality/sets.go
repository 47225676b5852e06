package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// A record is one of a set's corpus.
type record struct {
	ID, Name, Description string
	Tags, Examples        []string
}

// A query is one of a set's, with the records that answer it.
type query struct {
	ID, Text string
	right    map[string]bool
}

// A set is a corpus with queries and judgements.
type set struct {
	name    string
	records []record
	queries []query
}

// setNames are the sets in the order of discovery.md's table, as far as they are
// kept beside the project.
var setNames = []string{"metatool", "metatool-multi", "sealtools", "gorilla", "toolalpaca", "livemcp-server",
	"livemcp-tool"}

// loadSet reads a set of a directory, with the queries of that file: dev or
// dev-strict.
func loadSet(dir, name, half string) (*set, error) {
	s := &set{name: name}

	dir = filepath.Join(dir, name)
	if err := readLines(filepath.Join(dir, "corpus.jsonl"), &s.records); err != nil {
		return nil, err
	}

	if err := readLines(filepath.Join(dir, "queries."+half+".jsonl"), &s.queries); err != nil {
		return nil, err
	}

	right, err := readJudgements(filepath.Join(dir, "qrels.dev.tsv"))
	if err != nil {
		return nil, err
	}

	for i := range s.queries {
		q := &s.queries[i]
		if q.right = right[q.ID]; len(q.right) == 0 {
			return nil, fmt.Errorf("%s: query %s has no judgement", name, q.ID)
		}
	}

	return s, nil
}

// sample leaves at most so many queries, evenly taken.
func (s *set) sample(most int) {
	n := len(s.queries)
	if n <= most {
		return
	}

	for i := range most {
		s.queries[i] = s.queries[i*n/most]
	}

	s.queries = s.queries[:most]
}

func readLines[T any](file string, to *[]T) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)

	for lines.Scan() {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		*to = append(*to, v)
	}

	return lines.Err()
}

func readJudgements(file string) (map[string]map[string]bool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	right := map[string]map[string]bool{}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) < 2 {
			return nil, fmt.Errorf("%s: %q is no judgement", file, line)
		}

		if right[f[0]] == nil {
			right[f[0]] = map[string]bool{}
		}

		right[f[0]][f[1]] = true
	}

	return right, nil
}

// figures say how good the answers to a set's queries are, on average.
type figures struct{ nDCG5, recall1, recall5, mrr float64 }

// depth is how many answers are looked at.
const depth = 10

// A ranker answers a query with the ids of records, the best first.
type ranker interface {
	rank(text string, limit int) []string
}

// score asks a ranker all queries of a set.
func (s *set) score(r ranker) figures {
	var sum figures
	for _, q := range s.queries {
		f := q.score(r.rank(q.Text, depth))
		sum.nDCG5 += f.nDCG5
		sum.recall1 += f.recall1
		sum.recall5 += f.recall5
		sum.mrr += f.mrr
	}

	n := float64(len(s.queries))

	return figures{sum.nDCG5 / n, sum.recall1 / n, sum.recall5 / n, sum.mrr / n}
}

func (q *query) score(answer []string) figures {
	var (
		f          figures
		gain, best float64
	)

	n := float64(len(q.right))
	for i := range 5 {
		worth := 1 / math.Log2(float64(i)+2)
		if i < len(q.right) {
			best += worth
		}

		if i < len(answer) && q.right[answer[i]] {
			gain += worth

			f.recall5 += 1 / n
			if i == 0 {
				f.recall1 = 1 / n
			}
		}
	}

	f.nDCG5 = gain / best
	for i, id := range answer {
		if q.right[id] {
			f.mrr = 1 / float64(i+1)
			break
		}
	}

	return f
}
