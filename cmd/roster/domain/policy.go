package domain

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/trust/policy"
)

func policyCommand(s *connect.Session) *cobra.Command {
	group := cli.Group("policy", "Show, test and apply the domain's access policy",
		showPolicyCommand(s), applyPolicyCommand(s), checkPolicyCommand(s), explainPolicyCommand(s))
	group.Long = "Show, test and apply the domain's access policy.\n\n" + strings.TrimSuffix(policy.Vocabulary, "\n")

	return group
}

func showPolicyCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the policy in force (Cedar), with its version in the first line",
		Args:  cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			current, reply, err := client.Operator().Policy(ctx)
			if err != nil {
				return err
			}

			if !session.Format.IsTable() {
				return session.Print(cli.Answer{Body: reply.Body})
			}

			text := strings.TrimRight(current.Policy, "\n")
			_, err = fmt.Fprintf(session.Stdout, "%s%d\n%s\n", versionPrefix, current.Version, text)

			return err
		}),
	}
}

// The value of --replaces that replaces any version.
const anyVersion = "any"

func applyPolicyCommand(session *connect.Session) *cobra.Command {
	var (
		builtIn, accepted bool
		replaces          string
	)
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a policy in force in the whole domain",
		Long: `Put the policy in FILE (Cedar) in force in the whole domain. Requests and exports to peers
follow it at once. With --built-in, and without FILE, the domain returns to the policy in
its nodes' configuration.

Before anything changes, the command says which registrations the policy withdraws from
which peers, and which domains it names that are no peers. It asks whether to go on if
registrations are withdrawn, or redacted for a peer; without a terminal, only --yes applies
such a policy.

A FILE from "roster policy show" begins with its version. If another version is in force by
now, the command is refused, so that no concurrent change is lost. --replaces names the
version to replace instead, or any.`,
		Example: "  roster policy show > policy.cedar\n" +
			"  roster policy check cases.json --policy policy.cedar --domain alpha.test\n" +
			"  roster policy apply policy.cedar",
		Args: func(c *cobra.Command, args []string) error {
			if builtIn {
				return cli.Args()(c, args)
			}

			return cli.Args("FILE")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			text := ""
			if !builtIn {
				var err error
				if text, err = readPolicy(args[0]); err != nil {
					return err
				}
			}

			rest, version, err := splitVersion(text, replaces)
			if err != nil {
				return err
			}

			// An empty policy would return the domain to the built-in one, which takes --built-in.
			if rest == "" && !builtIn {
				return cli.Failed(cli.ExitFormat, "policy %s is empty", args[0])
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			return applyPolicy(c.Context(), session, client, rest, version, accepted)
		},
	}
	cmd.Flags().StringVar(&replaces, "replaces", "",
		"replace only this `VERSION`, or any (default: the version in the first line of FILE)")
	cmd.Flags().BoolVar(&accepted, "yes", false, "apply the policy without asking")
	cmd.Flags().BoolVar(&builtIn, "built-in", false, "return to the policy in the nodes' configuration")

	return cmd
}

// applyPolicy puts a policy in force that replaces the given version, or any if it is nil.
func applyPolicy(ctx context.Context, session *connect.Session, client *apiclient.Client, text string,
	version *uint64, accepted bool) error {
	before, _, err := client.Operator().Policy(ctx)
	if err != nil {
		return err
	}

	isInForce := text == before.Policy || text == "" && before.Version == 0

	// The domain's leader compares the versions again. This node may be behind the leader, so that
	// only an older version is certainly wrong. A text that is in force was accepted before.
	if version != nil && *version < before.Version && !isInForce {
		return cli.Failed(cli.ExitConflict, "the policy in force is version %d, and this one replaces version %d; "+
			"nothing was changed", before.Version, *version).
			WithHint("Repeat your change on the policy in force:").
			WithNext(session.CommandLine("policy", "show"))
	}

	if err := acceptPreview(ctx, session, client, text, accepted); err != nil {
		return err
	}

	// A policy in force is sent all the same, because this node may be behind the leader.
	var reply apiclient.Reply
	if err := client.Operator().Noting(&reply).SetPolicy(ctx, text, version); err != nil {
		return err
	}

	const href = "/v1/operator/policy"

	after := before

	// The first answer may have been old, so only an unchanged version shows that nothing was changed.
	if isInForce {
		if after, _, err = client.Operator().Policy(ctx); err != nil {
			return err
		}
	}

	if isInForce && after.Version == before.Version {
		return session.PrintWritten(cli.WrittenOf(href, "unchanged", reply.Header),
			"this policy is in force already, as version %d; nothing was changed", before.Version)
	}

	return session.PrintWritten(cli.WrittenOf(href, "applied", reply.Header), "the policy is in force")
}

// acceptPreview notes the changes that a policy would make at the peers. A policy that withdraws or
// redacts registrations has to be accepted: by --yes or at the terminal.
func acceptPreview(
	ctx context.Context, session *connect.Session, client *apiclient.Client, text string, accepted bool,
) error {
	preview, _, err := client.Operator().PreviewPolicy(ctx, text)
	if err != nil {
		return err
	}

	for _, unknown := range preview.Unknown {
		if unknown.Near != "" {
			session.Note("the policy names %s, which is no peer; did you mean %s?", unknown.Domain, unknown.Near)
		} else {
			session.Note("the policy names %s, which is no peer", unknown.Domain)
		}
	}

	loses := false

	for _, peer := range preview.Peers {
		noteExports(session, "the policy withdraws from %s: %s", peer.Domain, peer.Withdrawn)
		noteExports(session, "the policy withholds from %s members of: %s", peer.Domain, peer.Redacted)
		noteExports(session, "the policy sends to %s: %s", peer.Domain, peer.Added)

		loses = loses || peer.Withdrawn.Total+peer.Redacted.Total > 0
	}

	if !loses || accepted {
		return nil
	}

	if session.IsInteractive() {
		accepted, err := session.Accepts()
		if accepted || err != nil {
			return err
		}
	}

	return cli.Failed(cli.ExitConflict, "the policy takes registrations from peers; nothing was changed").
		WithHint("Add --yes to accept that.")
}

// noteExports says which registrations a policy changes at a peer, if there are any.
func noteExports(session *connect.Session, format, peer string, changed apiclient.ChangedExports) {
	if changed.Total == 0 {
		return
	}

	names := strings.Join(changed.Agents, ", ")
	if more := changed.Total - len(changed.Agents); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}

	session.Note(format, peer, names)
}

// readPolicy reads a policy from a file and checks its syntax.
func readPolicy(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", cli.Failed(cli.ExitFailed, "cannot read the policy: %w", err)
	}

	if err := policy.Check(file, text); err != nil {
		return "", cli.Failed(cli.ExitFormat, "%w", err)
	}

	return string(text), nil
}

// versionPrefix begins the output of roster policy show. The version follows.
const versionPrefix = "// version "

// splitVersion returns a policy without its version line, and the version to replace: the
// value of --replaces, or else that of the line; nil for any.
func splitVersion(text, replaces string) (rest string, version *uint64, err error) {
	rest = text
	if line, following, _ := strings.Cut(text, "\n"); strings.HasPrefix(line, versionPrefix) {
		number := strings.TrimSpace(strings.TrimPrefix(line, versionPrefix))

		// Another text behind the prefix is a comment of the policy, and stays in it.
		if n, err := strconv.ParseUint(number, 10, 64); err == nil {
			rest = following
			version = &n
		}
	}

	switch replaces {
	case "":
		return rest, version, nil
	case anyVersion:
		return rest, nil, nil
	}

	n, err := strconv.ParseUint(replaces, 10, 64)
	if err != nil {
		return "", nil, cli.Usage("--replaces must be a version from roster policy show, or any, got %q", replaces)
	}

	return rest, &n, nil
}
