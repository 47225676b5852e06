package agents

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

// A transfer has the flags of roster transfer: exactly one step, or the list.
type transfer struct {
	to                               string
	life                             time.Duration
	accept, decline, withdraw, force bool
	list                             bool
}

func transferCommand(session *connect.Session) *cobra.Command {
	var t transfer
	cmd := &cobra.Command{
		Use:   "transfer NAME|RID --to IDENTITY | --accept | --decline | --withdraw, or transfer --list",
		Short: "Transfer a registration to another owner",
		Long: `Transfer a registration to another owner. Its owner offers it with --to, and the new owner
accepts or declines. Until then nothing changes; the new owner may read the registration. Any
change of its contents voids the offer, and the owner may withdraw it.

The new owner becomes the owner and the registrant of the contents, so policy must permit it to
register them. Name, document and deadline stay as they are.

An operator moves a registration without an offer with --force. Its provenance then names the
operator, until the new owner registers it.`,
		Example: `  roster transfer weather-oslo --to spiffe://alpha.test/agent/bob
  roster transfer --list
  roster transfer weather-oslo --accept`,
		Args: func(cmd *cobra.Command, args []string) error {
			if t.list {
				return cli.Args()(cmd, args)
			}

			return cli.Args("NAME|RID")(cmd, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := t.check(); err != nil {
				return err
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			if t.list {
				return listOffers(c.Context(), session, client)
			}

			if err := t.run(c.Context(), session, client, args[0]); err != nil {
				return explainRefusal(c.Context(), session, err, append([]string{"transfer", args[0]}, t.step()...)...)
			}

			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&t.to, "to", "", "`IDENTITY` of the new owner, to offer the registration")
	flags.Var(&cli.Seconds{Value: &t.life}, "expires-in",
		"`SECONDS` for which the offer is open, at most 604800 (default 86400)")
	flags.BoolVar(&t.accept, "accept", false, "accept the offer of the registration")
	flags.BoolVar(&t.decline, "decline", false, "decline the offer of the registration")
	flags.BoolVar(&t.withdraw, "withdraw", false, "withdraw the offer of the registration")
	flags.BoolVar(&t.force, "force", false, "give the registration to --to without an offer, as an operator")
	flags.BoolVar(&t.list, "list", false, "list the open offers that you make and are made")

	return cmd
}

// check refuses flags that don't ask for exactly one step.
func (t *transfer) check() error {
	steps := 0
	for _, asked := range []bool{t.to != "", t.accept, t.decline, t.withdraw, t.list} {
		if asked {
			steps++
		}
	}

	switch {
	case t.force && t.to == "":
		return cli.Usage("--force needs --to")
	case steps != 1:
		return cli.Usage("give one of --to, --accept, --decline, --withdraw and --list")
	case t.life != 0 && (t.to == "" || t.force):
		return cli.Usage("--expires-in is for an offer: give it with --to and without --force")
	case t.to == "":
		return nil
	}

	if _, err := directory.ParseIdentity(t.to); err != nil {
		return cli.Usage("--to must be a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT, got %q", t.to)
	}

	return nil
}

// step returns the flags of the step.
func (t *transfer) step() []string {
	switch {
	case t.force:
		return []string{"--to", t.to, "--force"}
	case t.accept:
		return []string{"--accept"}
	case t.decline:
		return []string{"--decline"}
	case t.withdraw:
		return []string{"--withdraw"}
	case t.life != 0:
		return []string{"--to", t.to, "--expires-in", strconv.FormatInt(int64(t.life/time.Second), 10)}
	}

	return []string{"--to", t.to}
}

// run makes the step.
func (t *transfer) run(ctx context.Context, session *connect.Session, client *apiclient.Client, id string) error {
	transfers := client.Transfers()

	var (
		reply  *apiclient.Reply
		err    error
		result string
		done   string
		path   = connect.RegistrationPath(id, "")
	)

	switch {
	case t.force:
		reply, err = transfers.Force(ctx, path, t.to)
		result = "transferred"
		done = "transferred " + id + " to " + t.to
	case t.accept:
		reply, err = transfers.Answer(ctx, path, true)
		result = "accepted"
		done = "accepted " + id + ": you own it"
	case t.decline:
		reply, err = transfers.Answer(ctx, path, false)
		result = "declined"
		done = "declined " + id
	case t.withdraw:
		reply, err = transfers.Withdraw(ctx, path)
		result = "withdrawn"
		done = "withdrew the offer of " + id
	default:
		var offer apiclient.Offer
		offer, reply, err = transfers.Offer(ctx, path, t.to, t.life)
		done = "offered " + id + " to " + t.to + " until " + cli.FormatTime(offer.ExpiresAt)
	}

	if err != nil {
		return err
	}

	// Only the answer to an offer has a body.
	if len(reply.Body) > 0 {
		session.Note("%s", done)

		return session.PrintBody(reply.Body)
	}

	return session.PrintWritten(cli.WrittenOf(path, result, reply.Header), "%s", done)
}

// listOffers prints the open offers that the caller makes and is made, page by page.
func listOffers(ctx context.Context, session *connect.Session, client *apiclient.Client) error {
	all := []apiclient.Offer{}

	for page := ""; ; {
		offers, reply, err := client.Transfers().List(ctx, page)
		if err != nil {
			return err
		}

		all = append(all, offers...)

		if page = reply.NextPage(); page == "" {
			break
		}
	}

	table := cli.Table{Head: []string{"AGENT", "RID", "OWNER", "TO", "EXPIRES", "STATE"}}

	for _, offer := range all {
		state := "open"
		if offer.Changed {
			state = "void: changed since"
		}

		table.Add(offer.Agent, offer.RID, offer.Owner, offer.To, session.Time(offer.ExpiresAt), state)
	}

	return session.PrintValue(map[string]any{"transfers": all}, "transfers", table)
}
