package local

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node/dev"
)

// devCommand returns the command that runs a development mesh.
func devCommand(session *connect.Session) *cobra.Command {
	options := dev.Options{Program: session.Program, Out: session.Stdout}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a complete development mesh on this machine",
		Long: `Run a complete development mesh on this machine: several domains on loopback, peered with
each other, with sample agents. The command prints the addresses, the certificates and
commands to try. Ctrl-C stops it.

Without --dir nothing is left on disk. With --dir the mesh is kept: use the same directory
again to continue it.

For development only: everyone may read, and the certificates come from temporary
authorities.`,
		Example: "  roster dev\n  roster dev --dir mesh --domains 2 --nodes 3",
		Args:    cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := options.Check(); err != nil {
				return cli.Usage("%w", err)
			}

			c.Flags().Visit(func(flag *pflag.Flag) { options.Given = append(options.Given, flag.Name) })

			err := dev.Run(c.Context(), options)

			// The error about a port that is taken names the flag, and free ports are the way out.
			if err != nil && strings.Contains(err.Error(), "--port") {
				return cli.Failed(cli.ExitFailed, "%w", err).WithNext(onFreePorts(session.Program, c.Flags()))
			}

			return err
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&options.Domains, "domains", 3, "`NUMBER` of domains, 1 to 10")
	flags.IntVar(&options.Nodes, "nodes", 1, "`NUMBER` of nodes per domain: 1, 3 or 5")
	flags.BoolVar(&options.Processes, "processes", false, "run each node in its own process, which you can kill")
	flags.IntVar(&options.Port, "port", 8400, "API `PORT` of the first node; the others follow; 0 for free ports")
	flags.StringVar(&options.Dir, "dir", "", "keep certificates, configurations and data in this `DIRECTORY`")
	flags.IntVar(&options.Sample, "sample", 12, "`NUMBER` of sample agents")
	flags.BoolVar(&options.Gateway, "gateway", true,
		"let callers invoke agents through the nodes, also agents on loopback")
	flags.BoolVar(&options.Insecure, "insecure-loopback", false,
		"also call agents by plain http on loopback")
	flags.StringVar(&options.Trace, "trace", "",
		"export all traces to the OpenTelemetry collector at `URL`, such as http://127.0.0.1:4318/v1/traces")
	flags.BoolVar(&options.Limits, "limits", false, "apply the rate limits, quotas and operators' proofs of serve")
	cmd.AddCommand(mintCommand(session))

	return cmd
}

// onFreePorts returns the command line of dev with its given flags, but with free ports.
func onFreePorts(program string, flags *pflag.FlagSet) string {
	line := program + " dev"

	flags.Visit(func(flag *pflag.Flag) {
		if flag.Name != "port" {
			line += " --" + flag.Name + "=" + cli.ShellQuote(flag.Value.String())
		}
	})

	return line + " --port 0"
}

func mintCommand(session *connect.Session) *cobra.Command {
	var dir, domain, path string
	cmd := &cobra.Command{
		Use:   "mint --dir DIR --domain DOMAIN --path /PATH",
		Short: "Issue another identity in a development mesh",
		Long: `Issue another identity in a development mesh, running or not: a certificate and a key. The
command adds the identity to DIR/mesh.json and prints its entry.`,
		Example: "  roster dev mint --dir mesh --domain alpha.test --path /agent/carol",
		Args:    cli.Args(),
		RunE: func(*cobra.Command, []string) error {
			switch {
			case dir == "":
				return cli.Usage("missing --dir DIR")
			case domain == "":
				return cli.Usage("missing --domain DOMAIN")
			case !strings.HasPrefix(path, "/"):
				return cli.Usage("--path must begin with a slash, got %q", path)
			}

			identity, err := dev.Mint(dir, domain, path)
			if err != nil {
				return cli.Failed(cli.ExitFailed, "cannot issue the identity: %w", err)
			}

			if session.Format == "" {
				// The entry in mesh.json has this form.
				session.Format = cli.FormatJSON
			}

			t := cli.Table{Head: []string{"SPIFFE ID", "CERT", "KEY"}}
			t.Add(identity.SPIFFEID, identity.Cert, identity.Key)

			return session.PrintValue(identity, "", t)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "`DIRECTORY` of the mesh, as given to roster dev --dir (required)")
	flags.StringVar(&domain, "domain", "", "trust `DOMAIN`, such as alpha.test (required)")
	flags.StringVar(&path, "path", "", "`PATH` of the SPIFFE ID, such as /agent/carol (required)")

	return cmd
}
