package domain

import (
	"context"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func membersCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "members",
		Short: "List the nodes of all domains in the gossip pool",
		Args:  cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			members, reply, err := client.Operator().Members(ctx)
			if err != nil {
				return err
			}

			t := cli.Table{Head: []string{"ID", "DOMAIN", "ADDRESS", "STATE"}}
			for _, m := range members {
				t.Add(m.ID, m.Domain, m.Address, m.State)
			}

			return session.Print(cli.Answer{Body: reply.Body, Items: "members", Table: t})
		}),
	}
}
