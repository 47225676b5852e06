package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

func (a *app) flaggedCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "flagged",
		Short: "List registrations whose texts are written for rankers, not for readers",
		Long: `List the registrations of all domains whose texts are written to be found and not to
be read. They rank below what is honest.

repetition  the same words over and over
density     a list of words where sentences belong, or tags that nothing bears out
scatter     examples that nothing else in it bears out`,
		Args: needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			flagged, reply, err := client.Flagged(ctx)
			if err != nil {
				return err
			}
			if len(flagged) == 0 {
				a.note("No registration is flagged.")
			}
			t := table{head: []string{"AGENT", "ORIGIN", "FLAGS", "HREF"}}
			for _, f := range flagged {
				t.rows = append(t.rows, []string{f.Agent, f.Origin, strings.Join(f.Flags, " "), f.Href})
			}
			return a.print(answer{reply.Body, "flagged", t})
		}),
	}
}
