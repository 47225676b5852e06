package domain

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/durable"
)

// maxValidity bounds the validity of a token: a week.
const maxValidity = 7 * 24 * time.Hour

func inviteCommand(session *connect.Session) *cobra.Command {
	var (
		validity time.Duration
		out      string
	)

	cmd := &cobra.Command{
		Use:   "invite DOMAIN",
		Short: "Create a one-time token to peer with a domain",
		Long: `Create a one-time token with which the operator of DOMAIN makes it a peer of this domain.
The token is a secret: send it over a channel that you trust. Compare the fingerprint over
another channel: "roster peer accept" shows the same one.

Nothing is exported to the peer before "roster peer export".`,
		Example: "  roster peer invite beta.test --out token",
		Args:    cli.Args("DOMAIN"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			if validity < time.Second || validity > maxValidity {
				return cli.Usage("--life must be 1s to 168h, got %s", validity)
			}

			return invite(ctx, session, client, args[0], validity, out)
		}),
	}
	cmd.Flags().DurationVar(&validity, "life", time.Hour,
		"validity of the token, a `DURATION` of at most a week (168h)")
	cmd.Flags().StringVar(&out, "out", "",
		"write the token to `FILE`, for your account only (default: standard output)")

	return cmd
}

func invite(
	ctx context.Context, session *connect.Session, client *apiclient.Client, domain string, validity time.Duration,
	out string,
) error {
	if _, err := parseDomain(domain); err != nil {
		return err
	}

	invitation, reply, err := client.Operator().Invite(ctx, domain, validity)

	var refused *apiclient.Error

	// The domain is the directory's own.
	if errors.As(err, &refused) && refused.Pointer == "/domain" {
		return cli.Usage("invalid DOMAIN %s: %s", domain, refused.Detail)
	}

	if err != nil {
		return cli.Suggest(err, cli.ExitConflict, session.CommandLine("peer", "show", domain))
	}

	switch {
	// The token is a secret, so its file is for the owner alone.
	case out != "":
		err = durable.WriteFile(out, []byte(invitation.Token+"\n"), 0o600)

	// The token stands alone on standard output, so that it can be redirected to a file.
	case session.Format.IsTable():
		_, err = io.WriteString(session.Stdout, cli.Printable(invitation.Token)+"\n")
	default:
		err = session.PrintValue(struct {
			apiclient.Invitation
			cli.Position
		}{invitation, cli.PositionOf(reply.Header)}, "", cli.Table{})
	}

	if err != nil {
		return err
	}

	session.Note("The token is valid once, until %s. Fingerprint of this domain: %s",
		cli.FormatTime(invitation.Until), strings.Join(invitation.Fingerprints, " "))
	session.Note(fingerprintRule)
	session.Note("The operator of %s runs this with the token in a file, or on standard input (-):", domain)
	session.Note("  roster peer accept @FILE")
	session.Note("Afterwards compare its fingerprint, too, so that no other bearer of the token is the peer:")
	session.Note("  %s", session.CommandLine("bundle", domain, "--fingerprint"))
	noteExport(session, domain)

	return nil
}

func acceptCommand(session *connect.Session) *cobra.Command {
	var fingerprints []string
	cmd := &cobra.Command{
		Use:   "accept @FILE | -",
		Short: "Peer with the domain that created a token",
		Long: `Peer with the domain that created a token with "roster peer invite". The token is read from
FILE, or from standard input: on a command line other users of the machine see it.

The node fetches that domain's bundle from the token's address; the token has its hash. Compare
the fingerprint that both commands show, or pass the expected one with --fingerprint. A token
can be accepted again safely: that changes nothing. A peer that has ended the peering and
invites again becomes a new one: nothing is exported to it, and no rules apply.

Nothing is exported to the peer before "roster peer export".`,
		Example: "  roster peer accept @token\n  pbpaste | roster peer accept -",
		Args:    cli.Args("@FILE or -"),
		RunE: func(c *cobra.Command, args []string) error {
			return accept(c.Context(), session, args[0], fingerprints)
		},
	}
	cmd.Flags().StringSliceVar(&fingerprints, "fingerprint", nil,
		"expected `FINGERPRINT` of the domain's authority, or a list of all; refuse others")

	return cmd
}

func accept(ctx context.Context, session *connect.Session, argument string, fingerprints []string) error {
	text, err := readToken(session, argument)
	if err != nil {
		return err
	}

	// The token is parsed here, so that a truncated one is not sent.
	token, err := operator.ParseToken(text)
	if err != nil {
		return cli.Usage("invalid or incomplete token; it is one word from roster peer invite " +
			"and begins with roster-peer")
	}

	client, err := session.Client()
	if err != nil {
		return err
	}

	accepted, reply, err := client.Operator().Accept(ctx, text, fingerprints...)
	if err != nil {
		return acceptFailure(session, err, token.Domain)
	}

	if !session.Format.IsTable() {
		if err := session.PrintValue(struct {
			apiclient.Accepted
			cli.Position
		}{accepted, cli.PositionOf(reply.Header)}, "", cli.Table{}); err != nil {
			return err
		}
	}

	found := strings.Join(accepted.Fingerprints, " ")
	if accepted.Already {
		session.Note("%s is a peer already, and nothing was changed; its fingerprint is %s", token.Domain, found)
		return nil
	}

	session.Note("%s is a peer now; its fingerprint is %s", token.Domain, found)
	session.Note(fingerprintRule)
	noteExport(session, token.Domain)

	return nil
}

// readToken reads a token from @FILE or from standard input (-). It takes one in the argument
// too, from scripts, and notes the risk.
func readToken(session *connect.Session, argument string) (string, error) {
	file, isFile := strings.CutPrefix(argument, "@")
	if !isFile && argument != "-" {
		session.Note("A token on the command line is visible to other users of this machine; use @FILE or -.")
		return argument, nil
	}

	if isFile && file == "" {
		return "", cli.Usage("@ must be followed by the name of the file with the token")
	}

	text, err := session.ReadFile(file, operator.MaxToken+1)

	return strings.TrimSpace(string(text)), err
}

// acceptFailure is the failure to accept a token of a domain. The default suggestion would
// repeat the command line, which can have a secret.
func acceptFailure(session *connect.Session, err error, domain string) error {
	var response *apiclient.Error
	if errors.As(err, &response) && response.Problem.Pointer == "/fingerprints" {
		return cli.Failed(cli.ExitKey, "fingerprint mismatch: %w", err).
			WithHint("Ask the sender of the token.").WithNext(session.CommandLine("peer", "list"))
	}

	if response != nil && response.Problem.Pointer == "/token" && errors.Is(err, apiclient.ErrConflict) {
		return cli.Failed(cli.ExitConflict, "%s", response.Detail).
			WithHint("If the peer's operator confirms the new fingerprint over another channel, get that bundle and " +
				"replace the authority (docs/guides/authority.md):").
			WithNext(session.CommandLine("peer", "set", domain, "--"+flagBundle, "FILE"))
	}

	err = cli.Suggest(err, cli.ExitUnavailable, session.CommandLine("peer", "show", domain))

	return cli.Suggest(err, cli.ExitConflict, session.CommandLine("peer", "list"))
}
