package domain

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

// A revocation is the result of roster revoke.
type revocation struct {
	Identity      directory.Identity            `json:"identity"`
	Policy        string                        `json:"policy"` // the policy that blocks the identity
	Ended         bool                          `json:"ended"`
	Registrations []apiclient.OwnedRegistration `json:"registrations"`
}

func revokeCommand(session *connect.Session) *cobra.Command {
	var end bool
	cmd := &cobra.Command{
		Use:   "revoke IDENTITY",
		Short: "Block an identity; with --end, remove its registrations",
		Long: `Block an identity in this domain and list its registrations. A policy that forbids it every
action is added to the policy in force.

Without --end the registrations stay until their deadlines: they can't be refreshed any more,
and "roster register --keep" ends with the reason. To unblock the identity, remove the added
policy again: see "roster policy show" and "roster policy apply".`,
		Example: "  roster revoke spiffe://alpha.test/agent/eve --end",
		Args:    cli.Args("IDENTITY"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := directory.ParseIdentity(args[0])
			if err != nil {
				return cli.Usage("IDENTITY must be a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT, got %q", args[0])
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			done := revocation{Identity: id, Policy: "revoked " + id.String(), Ended: end}

			// The identity is blocked first. Otherwise it could register again while its registrations end.
			if err := block(c.Context(), session.Console, client, done.Policy, id); err != nil {
				return err
			}

			if done.Registrations, err = listOwned(c.Context(), client, id, end); err != nil {
				return err
			}

			return printRevocation(session.Console, done)
		},
	}
	cmd.Flags().BoolVar(&end, "end", false, "remove the identity's registrations")

	return cmd
}

// maxPolicyAttempts bounds the attempts to change the policy while others change it too.
const maxPolicyAttempts = 16

// block adds a policy of that name to those in force, unless it is there. It loses no
// concurrent change.
func block(
	ctx context.Context, console *cli.Console, client *apiclient.Client, name string, id directory.Identity,
) error {
	for attempt := 1; ; attempt++ {
		current, _, err := client.Operator().Policy(ctx)
		if err != nil {
			return err
		}

		text, isBlocked := addBlock(current.Policy, name, id)
		if isBlocked {
			console.Note("%s is blocked already", id)
			return nil
		}

		// The version makes the change fail if another one came between.
		err = client.Operator().SetPolicy(ctx, text, &current.Version)
		switch {
		case err == nil:
			console.Note("blocked %s", id)
			return nil
		case attempt == maxPolicyAttempts || !errors.Is(err, apiclient.ErrPrecondition):
			return err
		}

		// The addressed node may not have applied the concurrent change yet.
		if !apiclient.Pause(ctx, time.Duration(attempt)*20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// addBlock returns policies with one of that name at their end that forbids an identity
// every action, and whether they have it already. It must be there as a whole: a policy of
// that name that was commented out or changed blocks nothing.
func addBlock(policies, name string, id directory.Identity) (text string, isBlocked bool) {
	forbid := fmt.Sprintf("\n@id(%s)\nforbid (principal == Identity::%s, action, resource);\n",
		strconv.Quote(name), strconv.Quote(id.String()))

	policies = strings.TrimRight(policies, "\n") + "\n"
	if strings.Contains("\n"+policies, forbid) {
		return policies, true
	}

	return policies + forbid, false
}

// listOwned returns an identity's registrations. With end it removes them.
func listOwned(
	ctx context.Context, client *apiclient.Client, id directory.Identity, end bool,
) ([]apiclient.OwnedRegistration, error) {
	all := []apiclient.OwnedRegistration{}
	for after := ""; ; {
		var (
			page apiclient.Owned
			err  error
		)

		// Ended registrations are gone, so each page of an end is the first one.
		if end {
			page, _, err = client.Operator().EndOwned(ctx, id.String())
		} else {
			page, _, err = client.Operator().Owned(ctx, id.String(), after)
		}

		if err != nil {
			return nil, err
		}

		all = append(all, page.Registrations...)

		after = page.Next
		if after == "" {
			return all, nil
		}
	}
}

func printRevocation(console *cli.Console, done revocation) error {
	if len(done.Registrations) == 0 {
		console.Note("It has no registrations here.")
	} else if done.Ended {
		console.Note("registrations removed: %d", len(done.Registrations))
	}

	t := cli.Table{Head: []string{"AGENT", "RID", "EXPIRES"}}
	for _, r := range done.Registrations {
		t.Add(r.Agent, r.RID, console.Time(r.ExpiresAt))
	}

	return console.PrintValue(done, "registrations", t)
}
