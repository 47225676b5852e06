package main

import (
	"context"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

func (a *app) membersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "members",
		Short: "List the nodes of the mesh that gossip with the directory's node",
		Args:  needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			members, reply, err := client.Members(ctx)
			if err != nil {
				return err
			}
			t := table{head: []string{"ID", "DOMAIN", "ADDRESS", "STATE"}}
			for _, m := range members {
				t.rows = append(t.rows, []string{m.ID, m.Domain, m.Address, m.State})
			}
			return a.print(answer{reply.Body, "members", t})
		}),
	}
}
