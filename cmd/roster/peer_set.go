package main

import (
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
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
func (l *listFlags) into(c *cobra.Command, way string, r *apiclient.PeerRules) (given bool) {
	flags := c.Flags()
	if flags.Changed(way + "-names") {
		r.Names, given = l.names, true
	}
	if flags.Changed(way + "-capabilities") {
		r.Capabilities, given = l.capabilities, true
	}
	if flags.Changed(way + "-kinds") {
		r.Kinds, given = l.kinds, true
	}
	return given
}

func (a *app) peerSetCommand() *cobra.Command {
	var out, in listFlags
	var records, bytes uint64
	var share uint32
	var life time.Duration
	var onStale, endpoint, profile string
	var nodes, gossip []string
	c := &cobra.Command{
		Use:   "set DOMAIN",
		Short: "Set rules for what goes to a peer and what is taken of it, and where it is found",
		Long: `Set rules for what goes to a peer, beyond what policy says, and for what is taken of
what it announces. What isn't given stays as it is; a bundle endpoint and its profile go
together. Rules for what comes in hold at once for what is here already, but for quotas:
those bound what is added.

Where a peer is found is what its invitation said. When its nodes move, or others take
their places, say so here: its operator has the addresses of "roster raft peers -o wide".`,
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
			var to apiclient.PeerSettings
			if out.into(c, "export", &peer.Export) {
				to.Export = &peer.Export
			}
			r := &peer.Import
			given := in.into(c, "import", r)
			for name, set := range map[string]func(){
				"records": func() { r.Records = records }, "bytes": func() { r.Bytes = bytes }, "owner-share": func() { r.OwnerShare = share },
				"max-lifetime": func() { r.MaxLifetime = uint32(life / time.Second) }, "on-stale": func() { r.OnStale = onStale },
			} {
				if c.Flags().Changed(name) {
					set()
					given = true
				}
			}
			if given {
				to.Import = r
			}
			if c.Flags().Changed("nodes") {
				to.Addresses = nodes
			}
			if c.Flags().Changed("gossip") {
				to.Gossip = gossip
			}
			switch {
			case endpoint == "" && c.Flags().Changed("bundle-profile"):
				return usage("--bundle-profile is that of --bundle-endpoint: give both")
			case c.Flags().Changed("bundle-endpoint") && endpoint == "":
				to.BundleEndpoint = &apiclient.BundleEndpoint{}
			case endpoint != "":
				to.BundleEndpoint = &apiclient.BundleEndpoint{URL: endpoint, Profile: profile}
			}
			if to.Export == nil && to.Import == nil && to.Addresses == nil && to.Gossip == nil && to.BundleEndpoint == nil {
				return usage("say what to set")
			}
			if life < 0 || life/time.Second > 1<<32-1 || life%time.Second != 0 {
				return usage("--max-lifetime is %s; it is whole seconds, or 0 for no bound", life)
			}
			if err := client.SetPeer(c.Context(), args[0], to); err != nil {
				return suggest(err, exitNotFound, a.command("peer", "list"))
			}
			a.note("what was given is set for %s", args[0])
			return nil
		},
	}
	out.add(c, "export", "let it have")
	in.add(c, "import", "show")
	c.Flags().Uint64Var(&records, "records", 0, "hold at most so many registrations of it; 0 for limits.records_per_peer")
	c.Flags().Uint64Var(&bytes, "bytes", 0, "hold at most so many bytes of records; 0 for limits.bytes_per_peer")
	c.Flags().Uint32Var(&share, "owner-share", 0, "let one owner, or all whose owner is withheld, have one part in so many of these; 1 for all, 0 for 16")
	c.Flags().DurationVar(&life, "max-lifetime", 0, "show a registration for at most so long after its deadline was set; 0 to its deadline")
	c.Flags().StringSliceVar(&nodes, "nodes", nil, "where its nodes are reached, https://HOST[:PORT] of each, in the place of those that are known")
	c.Flags().StringSliceVar(&gossip, "gossip", nil, "where its nodes' gossip listeners are, HOST:PORT of some, likewise; \"\" is for none")
	c.Flags().StringVar(&endpoint, "bundle-endpoint", "", "where its trust bundle is had anew, an https URL; \"\" is nowhere")
	c.Flags().StringVar(&profile, "bundle-profile", directory.ProfileSPIFFE, "the profile of --bundle-endpoint: "+directory.ProfileSPIFFE+" or "+directory.ProfileWeb)
	c.Flags().StringVar(&onStale, "on-stale", "serve", "serve what it told to the deadlines when it isn't heard, or hide it")
	return c
}
