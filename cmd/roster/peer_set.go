package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/directory"
)

// listFlags are the rules of both directions.
type listFlags struct{ names, capabilities, kinds []string }

func (l *listFlags) add(c *cobra.Command, way, what string) {
	c.Flags().StringSliceVar(&l.names, way+"-names", nil, what+" agents of these names alone; one that ends in * is a prefix, \"\" is for all")
	c.Flags().StringSliceVar(&l.capabilities, way+"-capabilities", nil, what+" agents with one of these capabilities alone, likewise")
	c.Flags().StringSliceVar(&l.kinds, way+"-kinds", nil, what+" registrations of these kinds alone")
}

// into puts what was given into r, and reports whether anything was.
func (l *listFlags) into(c *cobra.Command, way string, r *directory.PeerRules) (given bool) {
	flags := c.Flags()
	if flags.Changed(way + "-names") {
		r.Names, given = l.names, true
	}
	if flags.Changed(way + "-capabilities") {
		r.Capabilities, given = l.capabilities, true
	}
	if flags.Changed(way + "-kinds") {
		r.Kinds, given = nil, true
		for _, k := range l.kinds {
			r.Kinds = append(r.Kinds, directory.Kind(k))
		}
	}
	return given
}

func (a *app) peerSetCommand() *cobra.Command {
	var out, in listFlags
	var records, bytes uint64
	var life time.Duration
	var onStale string
	c := &cobra.Command{
		Use:   "set DOMAIN",
		Short: "Set rules for what goes to a peer and what is taken of it",
		Long: `Set rules for what goes to a peer, beyond what policy says, and for what is taken of
what it announces. What isn't given stays as it is. Rules for what comes in hold at
once for what is here already, but for quotas: those bound what is added.`,
		Args: needs("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			peer, err := a.peer(c.Context(), client, args[0])
			if err != nil {
				return err
			}
			var export, imports *directory.PeerRules
			if out.into(c, "export", &peer.Export) {
				export = &peer.Export
			}
			r := &peer.Import
			given := in.into(c, "import", r)
			for name, set := range map[string]func(){
				"records": func() { r.Records = records }, "bytes": func() { r.Bytes = bytes },
				"max-lifetime": func() { r.MaxLifetime = uint32(life / time.Second) }, "on-stale": func() { r.OnStale = onStale },
			} {
				if c.Flags().Changed(name) {
					set()
					given = true
				}
			}
			if given {
				imports = r
			}
			if export == nil && imports == nil {
				return usage("say what to set")
			}
			if life < 0 || life/time.Second > 1<<32-1 {
				return usage("--max-lifetime is %s", life)
			}
			if err := client.SetPeerRules(c.Context(), args[0], export, imports); err != nil {
				return suggest(err, exitNotFound, a.command("peer", "list"))
			}
			a.note("the rules for %s are set", args[0])
			return nil
		},
	}
	out.add(c, "export", "let it have")
	in.add(c, "import", "show")
	c.Flags().Uint64Var(&records, "records", 0, "hold at most so many registrations of it; 0 for any number")
	c.Flags().Uint64Var(&bytes, "bytes", 0, "hold at most so many bytes of records; 0 for any number")
	c.Flags().DurationVar(&life, "max-lifetime", 0, "show a registration for at most so long after its deadline was set; 0 to its deadline")
	c.Flags().StringVar(&onStale, "on-stale", "serve", "serve what it told to the deadlines when it isn't heard, or hide it")
	return c
}
