package main

import (
	"strconv"
	"strings"
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

func (a *app) peerCommand() *cobra.Command {
	return group("peer", "Look at the domains that this one is peered with", &cobra.Command{
		Use:   "list",
		Short: "List the peered domains and how far behind their copies are",
		Args:  needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			peers, reply, err := client.Peers(c.Context())
			if err != nil {
				return err
			}
			t := table{head: []string{"DOMAIN", "STATE", "HEALTH", "LAG REVISIONS", "LAG SECONDS", "LAST HEARD", "+WATERMARK", "+TIP", "+ADDRESSES", "LAST ERROR"}}
			for _, p := range peers {
				t.rows = append(t.rows, []string{
					p.Domain, p.State, p.Health, strconv.FormatUint(p.LagRevisions, 10), strconv.FormatFloat(p.LagSeconds, 'f', 1, 64),
					stamp(p.LastHeard), p.Watermark, p.Tip, strings.Join(p.Addresses, " "), p.LastError,
				})
			}
			return a.print(answer{reply.Body, "peers", t})
		},
	})
}

// stamp writes a time as the HTTP answers do; a time that never was is empty.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
