package domain

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func flaggedCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "flagged",
		Short: "List registrations flagged as search spam",
		Long: `List the registrations of all domains that are flagged as search spam. Discovery queries
rank them lower. The flags:

  repetition  the same words again and again
  density     lists of words in place of sentences, or tags unrelated to the text
  scatter     examples unrelated to the rest of the registration`,
		Args: cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			flagged, reply, err := client.Operator().Flagged(ctx)
			if err != nil {
				return err
			}

			if len(flagged) == 0 {
				session.Note("No registration is flagged.")
			}

			t := cli.Table{Head: []string{"AGENT", "ORIGIN", "FLAGS", "HREF"}}
			for _, f := range flagged {
				t.Add(f.Agent, f.Origin, strings.Join(f.Flags, " "), f.Href)
			}

			return session.Print(cli.Answer{Body: reply.Body, Items: "flagged", Table: t})
		}),
	}
}
