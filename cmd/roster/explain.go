package main

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

func (a *app) explainCommand() *cobra.Command {
	var o apiclient.DiscoverOptions
	c := &cobra.Command{
		Use:   "explain QUERY",
		Short: "Tell why agents are found by a query, or why one is not",
		Long: `Tell what the scores of the agents that a query finds are made of. With --candidate,
tell of one agent why it is found, or why it is not:

found      it is in the answer
behind     others are better, and the limit is reached
no_match   nothing that is asked for is in it
flagged    its texts are written for rankers
duplicate  it says nearly what a better one of its owner says
per_owner  it is behind worse ones of other owners: its own has its share

or the name of the filter that leaves it out, such as status or required_tags.

  score = (tag x weight + context x weight + example x weight + protocol x weight) x freshness x policy`,
		Example: "  roster explain 'translate a contract'\n  roster explain 'translate a contract' --protocol mcp --candidate translator",
		Args:    needs("QUERY"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Query, o.Evidence = args[0], true
			return a.explain(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Explain, "candidate", "", "the agent to tell of: a rid, a name, or ORIGIN/RID")
	requestFlags(c, &o)
	readFlags(c, &o.ReadOptions)
	return c
}

func (a *app) explain(ctx context.Context, o apiclient.DiscoverOptions) error {
	if err := check(o); err != nil {
		return err
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	found, err := client.Discover(ctx, o)
	if err != nil {
		return err
	}
	a.warn(found.Warnings)
	if o.Explain == "" {
		return a.print(answer{found.Body, "candidates", scores(found.Candidates)})
	}
	return a.printOwn(found.Explanation, "", explained(&found.Explanation))
}

// components are those of a score, in the order of its formula.
var components = []string{"tag", "context", "example", "protocol", "freshness", "policy"}

func scores(all []apiclient.Candidate) table {
	t := table{head: []string{"SCORE", "ID", "ORIGIN"}}
	for _, name := range components {
		t.head = append(t.head, strings.ToUpper(name))
	}
	t.head = append(t.head, "WORDS")
	for i := range all {
		c := &all[i]
		row := []string{score(c.Score), c.ID, c.Provenance.Authority}
		for _, name := range components {
			row = append(row, score(c.Components[name]))
		}
		t.rows = append(t.rows, append(row, strings.Join(wordsOf(&c.Evidence), ", ")))
	}
	return t
}

// wordsOf tells what each word of the query adds to context, and where it stands.
func wordsOf(ev *apiclient.Evidence) []string {
	var all []string
	for _, w := range ev.Terms {
		all = append(all, w.Text+" +"+score(w.Adds)+" in "+strings.Join(slices.Sorted(maps.Keys(w.Fields)), " and "))
	}
	return all
}

func explained(x *apiclient.Explanation) table {
	t := table{head: []string{"OF " + x.ID, ""}}
	add := func(name, value string) { t.rows = append(t.rows, []string{name, value}) }
	add("why", x.Why)
	if x.Rank > 0 {
		add("rank", strconv.Itoa(x.Rank))
	}
	add("score", score(x.Score))
	if x.Needed > x.Score {
		add("needed", score(x.Needed))
	}
	k, w := x.Components, x.Evidence.Weights
	for _, c := range []struct {
		name          string
		value, weight float64
	}{{"tag", k.Tag, w.Tag}, {"context", k.Context, w.Context}, {"example", k.Example, w.Example}, {"protocol", k.Protocol, w.Protocol}} {
		add(c.name, score(c.value)+" x "+score(c.weight))
	}
	add("freshness", "x "+score(k.Freshness))
	add("policy", "x "+score(k.Policy))
	for _, word := range wordsOf(&x.Evidence) {
		add("word", word)
	}
	for _, tag := range x.MatchedTags {
		add("matched tag", tag)
	}
	for _, e := range x.Evidence.ExpandedTags {
		add("matched tag", e.Tag+", a kind of "+e.Asked+" by "+e.Taxonomy)
	}
	for _, e := range x.MatchedExamples {
		add("matched example", score(e.Score)+" "+shorten(e.Text, 60))
	}
	for _, f := range x.Evidence.Flags {
		add("flag", f)
	}
	return t
}
