package agents

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func explainCommand(session *connect.Session) *cobra.Command {
	var options apiclient.DiscoverOptions
	cmd := &cobra.Command{
		Use:   "explain QUERY",
		Short: "Explain the ranking of a discovery query",
		Long: `Explain the ranking of a discovery query: the components of each agent's score.

  score = (tag x weight + context x weight + example x weight + protocol x weight) x freshness x policy

With --candidate, explain why one agent is or isn't in the result. WHY is the name of the
filter that excludes the agent, such as status or required_tags, or one of:

  found      in the result
  behind     other agents score higher, and the limit is reached
  no_match   nothing in the registration matches the query
  flagged    flagged as search spam, and no good match
  duplicate  nearly the same as a better agent of its owner
  per_owner  behind agents of other owners, because its owner has its share of the result`,
		Example: "  roster explain 'translate a contract'\n" +
			"  roster explain 'translate a contract' --protocol mcp --candidate translator",
		Args: cli.Args("QUERY"),
		RunE: func(c *cobra.Command, args []string) error {
			options.Query = args[0]

			// The weights and words of an explanation are parts of the evidence.
			options.Evidence = true
			if err := checkQuery(c, options); err != nil {
				return err
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			return explain(c.Context(), session.Console, client, options)
		},
	}
	cmd.Flags().StringVar(&options.Explain, "candidate", "", "`AGENT` to explain: name, rid or DOMAIN/RID")
	addQueryFlags(cmd, &options)
	addReadFlags(cmd, &options.ReadOptions)

	return cmd
}

func explain(
	ctx context.Context, console *cli.Console, client *apiclient.Client, options apiclient.DiscoverOptions,
) error {
	found, err := client.Discover(ctx, options)
	if err != nil {
		return err
	}

	noteWarnings(console, found.Warnings)

	if options.Explain == "" {
		return console.Print(cli.Answer{Body: found.Body, Items: "candidates", Table: scoreTable(found.Candidates)})
	}

	// An explanation is printed alone, without the candidates that the query found.
	return console.PrintValue(found.Explanation, "", explanationTable(&found.Explanation))
}

// scoreComponents are the components of a score, in the order of its formula.
var scoreComponents = []string{"tag", "context", "example", "protocol", "freshness", "policy"}

func scoreTable(all []apiclient.Candidate) cli.Table {
	t := cli.Table{Head: []string{"SCORE", "AGENT", "ORIGIN", "-ID"}}
	for _, name := range scoreComponents {
		t.Head = append(t.Head, strings.ToUpper(name))
	}

	t.Head = append(t.Head, "WORDS")

	for i := range all {
		candidate := &all[i]

		row := []string{formatScore(candidate.Score), candidate.Agent, candidate.Provenance.Authority,
			candidate.ID}
		for _, name := range scoreComponents {
			row = append(row, formatScore(candidate.Components[name]))
		}

		t.Add(append(row, strings.Join(wordScores(&candidate.Evidence), ", "))...)
	}

	return t
}

// wordScores returns how much each word of the query adds to the component context, and the
// members that contain it.
func wordScores(evidence *apiclient.Evidence) []string {
	var all []string
	for _, word := range evidence.Terms {
		fields := strings.Join(slices.Sorted(maps.Keys(word.Fields)), " and ")
		all = append(all, word.Text+" +"+formatScore(word.Adds)+" in "+fields)
	}

	return all
}

func explanationTable(explanation *apiclient.Explanation) cli.Table {
	t := cli.Table{Head: []string{"CANDIDATE", explanation.ID}}
	t.Add("why", explanation.Why)

	if explanation.Rank > 0 {
		t.Add("rank", strconv.Itoa(explanation.Rank))
	}

	t.Add("score", formatScore(explanation.Score))

	if explanation.Needed > explanation.Score {
		t.Add("score needed", formatScore(explanation.Needed))
	}

	components := explanation.Components
	weights := explanation.Evidence.Weights
	t.Add("tag", formatScore(components.Tag)+" x "+formatScore(weights.Tag))
	t.Add("context", formatScore(components.Context)+" x "+formatScore(weights.Context))
	t.Add("example", formatScore(components.Example)+" x "+formatScore(weights.Example))
	t.Add("protocol", formatScore(components.Protocol)+" x "+formatScore(weights.Protocol))
	t.Add("freshness", "x "+formatScore(components.Freshness))
	t.Add("policy", "x "+formatScore(components.Policy))

	for _, word := range wordScores(&explanation.Evidence) {
		t.Add("word", word)
	}

	for _, tag := range explanation.MatchedTags {
		t.Add("matched tag", tag)
	}

	for _, expanded := range explanation.Evidence.ExpandedTags {
		t.Add("matched tag", expanded.Tag+", narrower than "+expanded.Asked+" in "+expanded.Taxonomy)
	}

	for _, example := range explanation.MatchedExamples {
		t.Add("matched example", formatScore(example.Score)+" "+cli.Shorten(example.Text, 60))
	}

	for _, flag := range explanation.Evidence.Flags {
		t.Add("flag", flag)
	}

	return t
}
