package main

import (
	"time"

	"github.com/spf13/cobra"
)

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("%q is no command of roster %s", args[0], use)
		}
		return usage("roster %s needs a command behind it", use)
	}}
	c.AddCommand(commands...)
	return c
}

func (a *app) membersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "members",
		Short: "List the nodes of the mesh that gossip with the directory's node",
		Args:  needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			members, reply, err := client.Members(c.Context())
			if err != nil {
				return err
			}
			t := table{head: []string{"ID", "DOMAIN", "ADDRESS", "STATE"}}
			for _, m := range members {
				t.rows = append(t.rows, []string{m.ID, m.Domain, m.Address, m.State})
			}
			return a.print(answer{reply.Body, "members", t})
		},
	}
}

// stamp writes a time as the HTTP answers do; a time that never was is empty.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
