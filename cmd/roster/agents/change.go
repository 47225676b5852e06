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

func refreshCommand(s connect.Session) *cobra.Command {
	var lifetime cli.Lifetime
	c := &cobra.Command{
		Use:   "refresh NAME|RID",
		Short: "Extend a registration by another lifetime",
		Args:  cli.Args("NAME|RID"),
		RunE: s.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			refreshed, err := client.Refresh(ctx, resource.Path(args[0], ""), lifetime.Duration())
			if err != nil {
				return explainRefusal(s, err, "refresh", args[0])
			}

			if refreshed.Granted != 0 {
				s.Note("Lifetime granted: %d s instead of %d s.", cli.WholeSeconds(refreshed.Granted), lifetime)
			}
			s.Note("refreshed %s", args[0])

			return s.PrintBody(refreshed.Body)
		}),
	}
	cli.LifetimeFlag(c, &lifetime)

	return c
}

func deregisterCommand(s connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "deregister NAME|RID",
		Short: "Remove a registration",
		Args:  cli.Args("NAME|RID"),
		RunE: s.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			reply, err := client.Deregister(ctx, resource.Path(args[0], ""))
			if err != nil {
				return explainRefusal(s, err, "deregister", args[0])
			}
			s.Note("removed %s", args[0])

			return s.PrintBody(reply.Body)
		}),
	}
}

func transferCommand(s connect.Session) *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "transfer NAME|RID --to IDENTITY",
		Short: "Transfer a registration to another owner",
		Long: `Transfer a registration to another owner. The present owner and operators may do so.
Name, document and deadline stay as they are. Policy must permit the new owner to register
the name. The transfer takes effect at once, without a confirmation by the new owner.`,
		Example: "  roster transfer weather-oslo --to spiffe://alpha.test/agent/bob",
		Args:    cli.Args("NAME|RID"),
		RunE: func(c *cobra.Command, args []string) error {
			owner, err := directory.ParseIdentity(to)
			if err != nil {
				return cli.Usage("--to must be a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT, got %q", to)
			}
			client, err := s.Client()
			if err != nil {
				return err
			}
			reply, err := client.TransferOwner(c.Context(), resource.Path(args[0], ""), owner.String())
			if err != nil {
				return explainRefusal(s, err, "transfer", args[0])
			}
			s.Note("transferred %s to %s", args[0], to)

			return s.PrintBody(reply.Body)
		},
	}
	c.Flags().StringVar(&to, "to", "", "`IDENTITY` of the new owner (required)")

	return c
}

// explainRefusal adds the command that helps to a refused change: the same change at the
// origin, a lookup, or the registration's provenance.
func explainRefusal(s connect.Session, err error, verb, id string) error {
	var response *apiclient.Error
	if errors.As(err, &response) && response.Code == string(directory.ForeignRegistration) {
		if at, parseErr := url.Parse(response.OriginHref); parseErr == nil && at.Host != "" {
			atOrigin := s.Program + " --address https://" + cli.ShellQuote(at.Host) + " " + verb + " " + cli.ShellQuote(id)
			return cli.FailureOf(err).WithNext(atOrigin)
		}
	}

	err = resource.SuggestLookup(s, err, id)
	return cli.Suggest(err, cli.ExitRefused, s.CommandLine("get", id, "--provenance"))
}
