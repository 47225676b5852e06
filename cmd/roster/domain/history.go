package domain

import (
	"context"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

func historyCommand(s *connect.Session) *cobra.Command {
	return cli.Group("history", "Erase past contents of registrations",
		eraseHistoryCommand(s))
}

func eraseHistoryCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "erase RID",
		Short: "Erase the contents of a registration that has ended",
		Long: `Erase the contents of a registration that has ended, on all nodes of the domain and
permanently: its documents, name and identities, and the salts that hide them. Each node erases
them from its history, log and snapshots at once, and a node that is away does when it returns.
Hashes and times remain, and with them every proof of the domain's log. A living registration
is refused: end it first by "roster deregister". Backups and peers keep their copies.`,
		Example: "  roster history erase 01JB6ZK1T1Q3V9M6Y5C0R8W2XN",
		Args:    cli.Args("RID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			if _, err := directory.ParseRID(args[0]); err != nil {
				return cli.Usage("RID must be the id of a registration, got %q", args[0])
			}

			erased := cli.Written{Href: "/ad/r/" + args[0] + "/history", Result: "erased", Subject: args[0]}

			return change(session, client, erased,
				func(o *apiclient.Operator) error { return o.EraseHistory(ctx, args[0]) },
				"erased the contents of %s", args[0])
		}),
	}
}
