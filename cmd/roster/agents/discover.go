package agents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// warningDiversified is the server's warning that candidates are not in the order of their
// scores (discovery.WarnDiversified).
const warningDiversified = "diversified"

// maxCandidates is the largest value of --limit.
const maxCandidates = 100

func discoverCommand(session *connect.Session) *cobra.Command {
	var (
		options apiclient.DiscoverOptions
		resolve bool
	)
	cmd := &cobra.Command{
		Use:   "discover QUERY",
		Short: "Find agents by a description in words, ranked",
		Long: `Find agents by a description in words and rank them. Scores of different directories
can't be compared. After three agents of one owner, agents of other owners with similar scores
come first; --by-score orders by score alone.

--evidence shows why each agent matches. --resolve shows how to invoke each agent; with it,
--tag prefers a tag, as --prefer does, and does not require it.

--min-verification is about the provenance of a registration: pending (not checked yet),
verified (signatures checked), logged (in its domain's ledger) or witnessed (the ledger is
cosigned). Columns marked CLAIMED come from the registrant and are not checked.`,
		Example: "  roster discover 'translate a contract into French' --protocol a2a\n" +
			"  roster discover 'check an invoice' --resolve -o json",
		Args: cli.Args("QUERY"),
		RunE: func(c *cobra.Command, args []string) error {
			options.Query = args[0]
			if err := checkQuery(c, options); err != nil {
				return err
			}

			if resolve && options.Detail != "" {
				return cli.Usage("--detail and --resolve exclude each other")
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			if resolve {
				return resolveQuery(c.Context(), session.Console, client, options)
			}

			return discover(c.Context(), session.Console, client, options)
		},
	}
	addQueryFlags(cmd, &options)
	flags := cmd.Flags()
	cli.ChoiceFlag(cmd, &options.Detail, "detail",
		"`LEVEL` of detail of each agent: minimal, summary or full (default: summary)", "minimal", "summary", "full")
	flags.BoolVar(&options.Evidence, "evidence", false, "show why each agent matches")
	flags.BoolVar(&resolve, "resolve", false, "show how to invoke each agent")
	addReadFlags(cmd, &options.ReadOptions)

	return cmd
}

// addQueryFlags adds the parts of a discovery query that discover and explain share.
func addQueryFlags(c *cobra.Command, options *apiclient.DiscoverOptions) {
	flags := c.Flags()
	flags.StringArrayVar(&options.Tags, "tag", nil, "require this `TAG`; may be repeated")
	flags.StringArrayVar(&options.Preferred, "prefer", nil, "rank agents with this `TAG` higher; may be repeated")
	flags.StringArrayVar(&options.Excluded, "exclude", nil, "leave out agents with this `TAG`; may be repeated")
	flags.StringArrayVar(&options.Protocols, "protocol", nil,
		"accept this `PROTOCOL`, exactly as registered; may be repeated")
	flags.StringArrayVar(&options.Origins, "origin", nil,
		"accept agents that this `DOMAIN` registered; may be repeated")
	flags.StringArrayVar(&options.Owners, "owner", nil, "accept agents of this owner, an `IDENTITY`; may be repeated")
	flags.BoolVar(&options.Plain, "by-score", false, "order by score alone, without regard to owners")
	flags.StringArrayVar(&options.Regions, "region", nil,
		"accept agents whose constraints name this `REGION`; may be repeated")
	cli.ChoiceFlag(c, &options.Verification, "min-verification",
		"minimum `LEVEL` of verification: pending, verified, logged or witnessed",
		"pending", "verified", "logged", "witnessed")
	flags.Var(&cli.Seconds{Value: &options.MaxAge}, "max-age",
		"maximum age of the registration or its last refresh in `SECONDS`")
	flags.IntVar(&options.Limit, "limit", 0, "maximum `NUMBER` of agents, 1 to 100 (default 10)")
}

// checkQuery refuses a query that every directory would refuse.
func checkQuery(c *cobra.Command, options apiclient.DiscoverOptions) error {
	switch {
	case strings.TrimSpace(options.Query) == "":
		return cli.Usage("QUERY must not be empty; describe the task in words")
	case c.Flags().Changed("limit") && (options.Limit < 1 || options.Limit > maxCandidates):
		return cli.Usage("--limit must be 1 to %d, got %d", maxCandidates, options.Limit)
	}

	return nil
}

func discover(
	ctx context.Context, console *cli.Console, client *apiclient.Client, options apiclient.DiscoverOptions,
) error {
	found, err := client.Discover(ctx, options)
	if err != nil {
		return err
	}

	noteWithout(console, &found.Reply)

	if len(found.Candidates) == 0 {
		console.Note(noteNoMatch)
	}

	if len(found.Unsupported) > 0 {
		console.Note("The directory does not support these filters and ignored them: %s",
			strings.Join(found.Unsupported, ", "))
	}

	noteWarnings(console, found.Warnings)

	return console.Print(cli.Answer{
		Body: found.Body, Items: "candidates", Table: candidateTable(console, found.Candidates, options.Evidence),
	})
}

func resolveQuery(
	ctx context.Context, console *cli.Console, client *apiclient.Client, options apiclient.DiscoverOptions,
) error {
	found, err := client.Resolve(ctx, options)
	if err != nil {
		return err
	}

	noteWithout(console, &found.Reply)

	if len(found.Candidates) == 0 {
		console.Note(noteNoMatch)
	}

	for _, filter := range slices.Sorted(maps.Keys(found.Excluded)) {
		console.Note("%d excluded by %s", found.Excluded[filter], filter)
	}

	noteWarnings(console, found.Warnings)

	return console.Print(cli.Answer{Body: found.Body, Items: "candidates", Table: resolutionTable(found.Candidates)})
}

func noteWarnings(console *cli.Console, warnings []string) {
	for _, warning := range warnings {
		if warning == warningDiversified {
			console.Note("Not in the order of scores: after three agents of one owner, other owners come first. " +
				"Add --by-score to order by score.")

			continue
		}

		console.Note("Warning from the directory: %s", warning)
	}
}

func candidateTable(console *cli.Console, all []apiclient.Candidate, evidence bool) cli.Table {
	t := cli.Table{Head: []string{
		"SCORE", "AGENT", "ORIGIN", "-ID", "-NAME (CLAIMED)", "PROTOCOL", "ENDPOINT (CLAIMED)", "MATCHED TAGS",
		"+STATE", "+EXPIRES", "+FLAGS", "+DESCRIPTION (CLAIMED)",
	}}
	if evidence {
		t.Head = append(t.Head, "EVIDENCE")
	}

	for i := range all {
		candidate := &all[i]

		// A row has room for one endpoint; -o json has the others.
		var binding apiclient.Binding
		if len(candidate.Bindings) > 0 {
			binding = candidate.Bindings[0]
		}

		provenance := candidate.Provenance

		row := []string{
			formatScore(candidate.Score), flagged(candidate.Agent, provenance), provenance.Authority, candidate.ID,
			cli.Shorten(candidate.Name, longestName), binding.Protocol, binding.Endpoint,
			strings.Join(candidate.MatchedTags, " "), provenance.Verification.State,
			console.Time(provenance.ExpiresAt),
			strings.Join(candidate.Flags, " "), cli.Shorten(candidate.Description, longestText),
		}
		if evidence {
			row = append(row, matchText(candidate))
		}

		t.Add(row...)
	}

	return t
}

// longestName is how many characters of a claimed name or example a table shows.
const longestName = 40

// matchText returns the components of a candidate's score and the examples that match.
func matchText(candidate *apiclient.Candidate) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(candidate.Components)) {
		parts = append(parts, name+" "+formatScore(candidate.Components[name]))
	}

	for _, example := range candidate.MatchedExamples {
		parts = append(parts, strconv.Quote(cli.Shorten(example.Text, longestName)))
	}

	return strings.Join(parts, ", ")
}

func resolutionTable(all []apiclient.Resolved) cli.Table {
	t := cli.Table{Head: []string{
		"SCORE", "AGENT", "ORIGIN", "-ID", "-NAME (CLAIMED)", "TRANSPORT", "ENDPOINT (CLAIMED)", "EVIDENCE",
		"+METHOD", "+OPERATION", "+AUTHENTICATION (CLAIMED)", "+STATE", "+FLAGS",
	}}
	for i := range all {
		r := &all[i]

		var reasons []string
		for _, reason := range r.Reasons {
			reasons = append(reasons, reason.Matched+" "+reason.Value)
		}

		t.Add(
			formatScore(r.Score), flagged(r.Agent, r.Provenance), r.Provenance.Authority, r.ID,
			cli.Shorten(r.Name, longestName), r.Invocation.Transport, r.Endpoint,
			cli.Shorten(strings.Join(reasons, ", "), longestText),
			r.Invocation.Method, r.Invocation.Operation, cli.Shorten(string(r.Invocation.Auth), longestText),
			r.Provenance.Verification.State, strings.Join(r.Flags, " "),
		)
	}

	return t
}

func formatScore(score float64) string { return fmt.Sprintf("%.3f", score) }
