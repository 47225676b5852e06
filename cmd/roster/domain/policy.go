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

func policyCommand(s connect.Session) *cobra.Command {
	return cli.Group("policy", "Show, test and apply the domain's access policy",
		showPolicyCommand(s), applyPolicyCommand(s), checkPolicyCommand(s), explainPolicyCommand(s))
}

func showPolicyCommand(session connect.Session) *cobra.Command {
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

func applyPolicyCommand(session connect.Session) *cobra.Command {
	var (
		builtIn  bool
		replaces string
	)
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a policy in force in the whole domain",
		Long: `Put the policy in FILE (Cedar) in force in the whole domain. Requests and exports to peers
follow it at once. With --built-in, and without FILE, the domain returns to the policy in
its nodes' configuration.

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

			if rest == "" && !builtIn {
				return cli.Failed(cli.ExitFormat, "policy %s is empty", args[0])
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			var reply apiclient.Reply
			if err := client.Operator().Noting(&reply).SetPolicy(c.Context(), rest, version); err != nil {
				return err
			}

			return session.PrintWritten(cli.WrittenOf("/v1/operator/policy", "applied", reply.Header),
				"the policy is in force")
		},
	}
	cmd.Flags().StringVar(&replaces, "replaces", "",
		"replace only this `VERSION`, or any (default: the version in the first line of FILE)")
	cmd.Flags().BoolVar(&builtIn, "built-in", false, "return to the policy in the nodes' configuration")

	return cmd
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
