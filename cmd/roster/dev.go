package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/node/dev"
)

func (a *app) devCommand() *cobra.Command {
	o := dev.Options{Program: a.program, Out: a.stdout}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run whole domains on this machine, to try everything with",
		Long: `Run whole domains on loopback, peered with each other, with sample agents; print
where everything is and what to try. Ctrl-C ends it and leaves nothing behind,
unless --dir says where to keep it: the same directory later is the same mesh.

This is for trying things: everybody may read, and certificates come from an
authority that is made on the spot.`,
		Args: needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return usage("%w", err)
			}
			err := dev.Run(c.Context(), o)
			if err != nil && strings.Contains(err.Error(), "--port") {
				return failed(exitFailed, "%w", err).try(a.program + " dev --port 0")
			}
			return err
		},
	}
	f := c.Flags()
	f.IntVar(&o.Domains, "domains", 3, "how many domains, 1 to 10")
	f.IntVar(&o.Nodes, "nodes", 1, "nodes of each domain: 1, 3 or 5")
	f.BoolVar(&o.Processes, "processes", false, "each node in a process of its own, which can be killed")
	f.IntVar(&o.Port, "port", 8400, "the first node's API port, the next ones follow; 0 picks free ones")
	f.StringVar(&o.Dir, "dir", "", "where to keep certificates, configurations and data")
	f.IntVar(&o.Sample, "sample", 12, "how many sample agents to register")
	f.BoolVar(&o.Gateway, "gateway", true, "let callers invoke agents through the nodes, those on loopback too")
	f.BoolVar(&o.Limits, "limits", false, "rate limits and quotas as serve has them; none otherwise")
	c.AddCommand(a.mintCommand())
	return c
}

func (a *app) mintCommand() *cobra.Command {
	var dir, domain, path string
	c := &cobra.Command{
		Use:   "mint --dir DIR --domain DOMAIN --path /PATH",
		Short: "Make another identity in a development mesh",
		Long: `Make another identity in the development mesh of a directory, whether it runs or
not: a certificate and a key. The identity is added to DIR/mesh.json, and its
entry there is printed.`,
		Args: needs(),
		RunE: func(*cobra.Command, []string) error {
			if dir == "" || domain == "" || !strings.HasPrefix(path, "/") {
				return usage("an identity needs --dir, --domain and --path, which begins with a slash")
			}
			id, err := dev.Mint(dir, domain, path)
			if err != nil {
				return failed(exitFailed, "the identity can't be made: %w", err)
			}
			if a.output == "" {
				a.output = "json" // as it stands in mesh.json
			}
			return a.printOwn(id, "", table{
				head: []string{"SPIFFE ID", "CERT", "KEY"},
				rows: [][]string{{id.SPIFFEID, id.Cert, id.Key}},
			})
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "the directory that roster dev --dir was given")
	c.Flags().StringVar(&domain, "domain", "", "the trust domain, such as alpha.test")
	c.Flags().StringVar(&path, "path", "", "the SPIFFE ID's path, such as /agent/carol")
	return c
}
