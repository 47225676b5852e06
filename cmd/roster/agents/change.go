package agents

import (
	"context"
	"errors"
	"net/url"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/cmd/roster/resource"
	"github.com/roster-mesh/roster/directory"
)

func refreshCommand(session connect.Session) *cobra.Command {
	var lifetime cli.Lifetime
	cmd := &cobra.Command{
		Use:   "refresh NAME|RID",
		Short: "Extend a registration by another lifetime",
		Args:  cli.Args("NAME|RID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			refreshed, err := client.Refresh(ctx, resource.Path(args[0], ""), lifetime.Duration())
			if err != nil {
				return explainRefusal(session, err, "refresh", args[0])
			}

			if refreshed.Granted != 0 {
				session.Note("Lifetime granted: %d s instead of %d s.", cli.WholeSeconds(refreshed.Granted), lifetime)
			}

			return printRefreshed(session, args[0], refreshed)
		}),
	}
	cli.LifetimeFlag(cmd, &lifetime)

	return cmd
}

// printRefreshed prints the new deadline of a registration.
func printRefreshed(session connect.Session, id string, refreshed *apiclient.Registered) error {
	written := cli.WrittenOf(resource.Path(id, ""), "refreshed", refreshed.Header)
	written.RID = refreshed.RID
	written.Lifetime = cli.WholeSeconds(refreshed.Granted)
	written.Visibility = refreshed.Visibility

	table := cli.Table{Head: []string{"AGENT", "EXPIRES", "+INDEX"}}
	table.Add(id, written.ExpiresAt, written.Index)

	return session.PrintValue(written, "", table)
}

func deregisterCommand(session connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "deregister NAME|RID",
		Short: "Remove a registration",
		Args:  cli.Args("NAME|RID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			reply, err := client.Deregister(ctx, resource.Path(args[0], ""))
			if err != nil {
				return explainRefusal(session, err, "deregister", args[0])
			}

			return session.PrintWritten(cli.WrittenOf(resource.Path(args[0], ""), "removed", reply.Header),
				"removed %s", args[0])
		}),
	}
}

// explainRefusal adds the command that helps to a refused change: the same change at the
// origin, a lookup, or the registration's provenance.
func explainRefusal(session connect.Session, err error, verb, id string) error {
	var response *apiclient.Error
	if errors.As(err, &response) && response.Code == string(directory.ForeignRegistration) {
		if at, parseErr := url.Parse(response.OriginHref); parseErr == nil && at.Host != "" {
			atOrigin := session.Program + " --address https://" + cli.ShellQuote(at.Host) + " " + verb + " " +
				cli.ShellQuote(id)

			return cli.FailureOf(err).WithNext(atOrigin)
		}
	}

	err = resource.SuggestLookup(session, err, id)

	return cli.Suggest(err, cli.ExitRefused, session.CommandLine("get", id, "--provenance"))
}
