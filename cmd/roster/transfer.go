package main

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/directory"
)

func (a *app) transferCommand() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "transfer NAME|RID --to IDENTITY",
		Short: "Give a registration to another identity",
		Long: `Give a registration to another identity, as its owner or as an operator. Nothing
else of it changes: name, contents and deadline stay. Who is to own it must be one
that policy lets register it, and from then on refreshes and removes it. It is not
asked; what it does not want it removes.`,
		Example: "  roster transfer weather-oslo --to spiffe://alpha.test/agent/bob",
		Args:    needs("NAME|RID"),
		RunE: func(c *cobra.Command, args []string) error {
			owner, err := directory.ParseIdentity(to)
			if err != nil {
				return usage("--to is %q; it is a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT", to)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			reply, err := client.TransferOwner(c.Context(), resource(args[0], ""), owner.String())
			if err != nil {
				return a.helpWith(err, "transfer", args[0])
			}
			a.note("%s is %s's.", args[0], to)
			return a.printBody(reply.Body)
		},
	}
	c.Flags().StringVar(&to, "to", "", "who is to own it")
	return c
}
