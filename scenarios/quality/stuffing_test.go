package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// An attack is a set of records that one owner registers to be found for things that
// they can't do.
type attack struct {
	name    string
	records []record
}

// attacks are those of discovery.md's bar, made of the very queries that are
// asked: the attacker knows them.
func attacks(queries []query) []attack {
	words := commonest(queries, 150)

	var all []attack
	stuffed := strings.TrimSpace(strings.Repeat(strings.Join(words, " ")+" ", 8))
	all = append(all, attack{"150 terms eight times over",
		[]record{{ID: "attack-0", Name: "Universal Agent", Description: stuffed}}})
	all = append(all, attack{"150 terms eight times over, as tags too",
		[]record{{ID: "attack-0", Name: "Universal Agent", Description: stuffed, Tags: words}}})
	lists := attack{name: "six records of 25 terms"}
	tags := attack{name: "six records of 25 terms, as tags"}

	names := attack{name: "six records of 25 terms, as names"}
	for i := range 6 {
		ws := words[min(i*25, len(words)):min(i*25+25, len(words))]
		id := fmt.Sprintf("attack-%d", i)
		lists.records = append(lists.records, record{ID: id, Name: fmt.Sprintf("Agent %d", i),
			Description: strings.Join(ws, " ")})
		tags.records = append(tags.records, record{ID: id, Name: fmt.Sprintf("Agent %d", i), Description: "An agent.",
			Tags: ws})
		names.records = append(names.records, record{ID: id, Name: strings.Join(ws, " "), Description: "An agent."})
	}

	all = append(all, lists, tags, names)

	copied := record{ID: "attack-0", Name: "Universal Agent", Description: "Does everything."}
	for i := range 15 {
		copied.Examples = append(copied.Examples, queries[i*len(queries)/15].Text)
	}

	return append(all, attack{"fifteen copied example queries", []record{copied}})
}

// commonest returns the words of most queries, without function words.
func commonest(queries []query, n int) []string {
	in := map[string]int{}
	for _, q := range queries {
		words := strings.FieldsFunc(strings.ToLower(q.Text), func(r rune) bool { return r < 'a' || r > 'z' })
		slices.Sort(words)

		for _, w := range slices.Compact(words) {
			if len(w) > 2 && !slices.Contains(plainStops, w) {
				in[w]++
			}
		}
	}

	var words []string
	for w := range in {
		words = append(words, w)
	}

	slices.SortFunc(words, func(a, b string) int { return cmp.Or(in[b]-in[a], cmp.Compare(a, b)) })

	return words[:min(n, len(words))]
}

// success returns the share of the set's queries that have the attacker among
// their first five answers of an engine that has the set's records.
func (s *set) success(e *engine, a attack) float64 {
	for i := range a.records {
		defer e.remove(e.add(&a.records[i], "attacker"))
	}

	hit := 0
	for i := range s.queries {
		if slices.ContainsFunc(e.rank(s.queries[i].Text, 5), func(id string) bool {
			return strings.HasPrefix(id, "attack-")
		}) {
			hit++
		}
	}

	return float64(hit) / float64(len(s.queries))
}

func (e *engine) remove(rid directory.RID) { e.view.Own().Delete(rid) }
