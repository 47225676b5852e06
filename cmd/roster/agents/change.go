package agents

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

func refreshCommand(session *connect.Session) *cobra.Command {
	var lifetime cli.Lifetime
	cmd := &cobra.Command{
		Use:   "refresh NAME|RID",
		Short: "Extend a registration by another lifetime",
		Args:  cli.Args("NAME|RID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			refreshed, err := client.Refresh(ctx, connect.RegistrationPath(args[0], ""), lifetime.Duration())
			if err != nil {
				return explainRefusal(ctx, session, err, "refresh", args[0])
			}

			switch {
			case refreshed.Granted != 0 && lifetime == 0:
				session.Note("Lifetime granted: %d s.", cli.WholeSeconds(refreshed.Granted))
			case refreshed.Granted != 0:
				session.Note("Lifetime granted: %d s instead of %d s.", cli.WholeSeconds(refreshed.Granted), lifetime)
			}

			return printRefreshed(session, args[0], refreshed)
		}),
	}
	cli.LifetimeFlag(cmd, &lifetime)

	return cmd
}

// printRefreshed prints the new deadline of a registration.
func printRefreshed(session *connect.Session, id string, refreshed *apiclient.Registered) error {
	written := cli.WrittenOf(connect.RegistrationPath(id, ""), "refreshed", refreshed.Header)
	written.RID = refreshed.RID
	written.Lifetime = cli.WholeSeconds(refreshed.Granted)
	written.Visibility = refreshed.Visibility

	table := cli.Table{Head: []string{"AGENT", "EXPIRES", "+INDEX"}}
	table.Add(id, written.ExpiresAt, written.Index)

	return session.PrintValue(written, "", table)
}

func deregisterCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "deregister NAME|RID",
		Short: "Remove a registration",
		Args:  cli.Args("NAME|RID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			reply, err := client.Deregister(ctx, connect.RegistrationPath(args[0], ""))
			if err != nil {
				return explainRefusal(ctx, session, err, "deregister", args[0])
			}

			return session.PrintWritten(cli.WrittenOf(connect.RegistrationPath(args[0], ""), "removed", reply.Header),
				"removed %s", args[0])
		}),
	}
}

// explainRefusal adds the command that helps to a refused change: the same change at the
// origin, a lookup, or the registration's provenance. The arguments of the change begin with its
// verb and the registration's id.
func explainRefusal(ctx context.Context, session *connect.Session, err error, args ...string) error {
	var response *apiclient.Error
	if errors.As(err, &response) && response.Code == string(directory.ForeignRegistration) {
		return changeAtOrigin(session, response, args)
	}

	id := args[1]
	err = connect.SuggestLookup(ctx, session, err, id)

	return cli.Suggest(err, cli.ExitRefused, session.CommandLine("get", id, "--provenance"))
}

// changeAtOrigin is the failure to change another domain's registration. It suggests the saved
// context of that domain, which has an identity and the bundle too, else the domain's address.
func changeAtOrigin(session *connect.Session, response *apiclient.Error, args []string) error {
	failure := cli.FailureOf(response)

	at, err := url.Parse(response.OriginHref)
	if err != nil {
		// The saved context can still be found by the domain alone.
		at = &url.URL{}
	}

	words := []string{session.Program}

	if saved := session.ContextOf(response.OriginAuthority, at.Host); saved != "" {
		words = append(words, "--context", cli.ShellQuote(saved))
	} else if at.Host != "" {
		failure = failure.WithHint("It takes an identity that may change it there, and that domain's bundle.")
		words = append(words, "--address", "https://"+cli.ShellQuote(at.Host))

		if response.OriginAuthority != "" {
			words = append(words, "--domain", cli.ShellQuote(response.OriginAuthority))
		}
	} else {
		return failure
	}

	// The line is made to be pasted into a shell, and some of its words come from the directory.
	for _, arg := range args {
		words = append(words, cli.ShellQuote(arg))
	}

	return failure.WithNext(strings.Join(words, " "))
}
