package main

import "github.com/spf13/cobra"

func (a *app) keysCommand() *cobra.Command {
	return group("keys", "Look at the keys that sign for the domain, and change them",
		a.keysListCommand(), a.keysRotateCommand(), a.keysRevokeCommand())
}

func (a *app) keysListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the keys that sign for the domain, were rotated a moment ago, or are revoked", Args: needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			all, reply, err := client.Keys(c.Context())
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
		},
	}
}

func (a *app) keysRotateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Give the node that is asked another signing key",
		Long: `Give the node that is asked another signing key. The one before signs no more, and is
not revoked: what it signed is believed for five minutes yet. Use revoke where it may
be in wrong hands.`,
		Args: needs(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			if err := client.RotateKey(c.Context()); err != nil {
				return err
			}
			a.note("the node signs with another key")
			return nil
		},
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
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			if err := client.RevokeKey(c.Context(), args[0]); err != nil {
				return suggest(err, exitUsage, a.command("keys", "list"))
			}
			a.note("%s is revoked", args[0])
			return nil
		},
	}
}
