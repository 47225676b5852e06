package main

import (
	"context"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

func (a *app) keysCommand() *cobra.Command {
	return group("keys", "Look at the keys that sign for the domain, and change them",
		a.keysListCommand(), a.keysRotateCommand(), a.keysRevokeCommand())
}

func (a *app) keysListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the keys that sign for the domain, were rotated a moment ago, or are revoked", Args: needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			all, reply, err := client.Keys(ctx)
			if err != nil {
				return err
			}
			t := table{head: []string{"KEY", "STATE", "NODE"}}
			for _, k := range all.Keys {
				state := "active"
				if k.Rotated {
					state = "rotated"
				}
				t.rows = append(t.rows, []string{k.ID, state, k.Node})
			}
			for _, id := range all.Revoked {
				t.rows = append(t.rows, []string{id, "revoked", ""})
			}
			return a.print(answer{reply.Body, "keys", t})
		}),
	}
}

func (a *app) keysRotateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Give the node that is asked another signing key",
		Long: `Give the node that is asked another signing key. The one before signs no more, and is
not revoked: what it signed is believed for five minutes yet. Use revoke where it may
be in wrong hands.`,
		Args: needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			if err := client.RotateKey(ctx); err != nil {
				return err
			}
			a.note("the node signs with another key")
			return nil
		}),
	}
}

func (a *app) keysRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY", Short: "Take a signing key back, for good",
		Long: `Take a signing key back, for good, in the whole domain: peers refuse within seconds
what it signs or signed. The node that had it makes itself another at once, and those
that it rotated a moment ago are believed no more. It may be a key that the domain had
earlier.`,
		Args: needs("KEY"),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, args []string) error {
			if err := client.RevokeKey(ctx, args[0]); err != nil {
				return suggest(err, exitUsage, a.command("keys", "list"))
			}
			a.note("%s is revoked", args[0])
			return nil
		}),
	}
}
