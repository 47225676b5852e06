package domain

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

func setPeerCommand(session *connect.Session) *cobra.Command {
	var change peerChange
	cmd := &cobra.Command{
		Use:   "set DOMAIN",
		Short: "Set export and import rules, quotas and addresses of a peering",
		Long: `Set the rules of a peering: limits on the export to a peer in addition to policy, limits on
the import from it, and its addresses. Settings without a flag stay unchanged.

Import rules apply at once to registrations that are here already. Quotas (--records,
--bytes, --owner-share) limit new registrations only.

The addresses come from the invitation. If the peer's nodes move, set the new addresses with
--nodes and --gossip: at the peer, "roster raft peers -o wide" lists them. A bundle endpoint at
an old address moves to the first new one. Gossip addresses stay without --gossip.

--peer-bundle replaces the peer's authorities at once, as when one was stolen: every node
refuses what the dropped ones certified, ends connections by it, and fetches the peer's
registrations again. Compare the fingerprints with the peer's operator first. The refresh of
the bundle ends, unless --bundle-endpoint is given too, because the endpoint may still have a
dropped authority.`,
		Example: "  roster peer set beta.test --export-names 'public-*' --export-kinds a2a,mcp\n" +
			"  roster peer set beta.test --records 5000 --on-stale hide\n" +
			"  roster peer set beta.test --peer-bundle beta-ca.pem\n" +
			"  roster peer set beta.test --nodes https://ad1.beta.test:8400,https://ad2.beta.test:8400",
		Args: cli.Args("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			change.command = c
			return change.run(c.Context(), session, args[0])
		},
	}
	change.addFlags(cmd)

	return cmd
}

// A filter is the flags for the agents to export to a peer, or to import from it.
type filter struct{ names, capabilities, kinds []string }

func (f *filter) addFlags(c *cobra.Command, direction string) {
	flags := c.Flags()
	only := direction + " only "
	flags.StringSliceVar(&f.names, direction+"-names", nil,
		only+"agents with these `NAMES` (NAME or PREFIX*); \"\" for all")
	flags.StringSliceVar(&f.capabilities, direction+"-capabilities", nil,
		only+"agents with one of these capabilities, `NAMES` (NAME or PREFIX*); \"\" for all")
	flags.StringSliceVar(&f.kinds, direction+"-kinds", nil,
		only+"registrations of these `KINDS`; \"\" for all")
}

// apply sets the given filters in rules and reports whether any was given.
func (f *filter) apply(cmd *cobra.Command, direction string, rules *apiclient.PeerRules) (given bool) {
	if cmd.Flags().Changed(direction + "-names") {
		rules.Names = f.names
		given = true
	}

	if cmd.Flags().Changed(direction + "-capabilities") {
		rules.Capabilities = f.capabilities
		given = true
	}

	if cmd.Flags().Changed(direction + "-kinds") {
		rules.Kinds = f.kinds
		given = true
	}

	return given
}

// A peerChange is the flags of roster peer set.
type peerChange struct {
	command *cobra.Command // has the flags

	exported, imported filter
	records            uint64
	bytes              uint64
	ownerShare         uint32
	maxLifetime        time.Duration
	onStale            string

	nodes    []string
	gossip   []string
	endpoint string // of the bundle
	profile  string // of the endpoint
	bundle   string // file
}

// The flags of roster peer set that are read by name.
const (
	flagRecords     = "records"
	flagBytes       = "bytes"
	flagOwnerShare  = "owner-share"
	flagMaxLifetime = "max-lifetime"
	flagOnStale     = "on-stale"
	flagNodes       = "nodes"
	flagGossip      = "gossip"
	flagEndpoint    = "bundle-endpoint"
	flagProfile     = "bundle-profile"
	flagBundle      = "peer-bundle"
)

func (p *peerChange) addFlags(cmd *cobra.Command) {
	p.exported.addFlags(cmd, "export")
	p.imported.addFlags(cmd, "import")

	flags := cmd.Flags()
	flags.Uint64Var(&p.records, flagRecords, 0,
		"quota of the peer's registrations here, a `NUMBER`; 0 for the node's limits.records_per_peer")
	flags.Uint64Var(&p.bytes, flagBytes, 0,
		"quota of the peer's records here, and of its ledger's copy, in `BYTES`; "+
			"0 for the node's limits.bytes_per_peer")
	flags.Uint32Var(&p.ownerShare, flagOwnerShare, 0,
		"limit each owner to 1/`N` of these quotas; withheld owners count as one; 1 for no limit, 0 for 1/16")
	flags.DurationVar(&p.maxLifetime, flagMaxLifetime, 0,
		"maximum `DURATION` after a refresh to show the peer's registrations here; 0 for no limit")
	p.onStale = "serve"
	cli.ChoiceFlag(cmd, &p.onStale, flagOnStale, "`ACTION` when the peer is unreachable: "+
		"keep serving its registrations until they expire (serve), or hide them (hide)", "serve", "hide")

	flags.StringSliceVar(&p.nodes, flagNodes, nil,
		"`URLS` of the peer's nodes, https://HOST[:PORT]; replaces the known ones")
	flags.StringSliceVar(&p.gossip, flagGossip, nil,
		"gossip `ADDRESSES` of the peer's nodes, HOST:PORT; replaces the known ones; \"\" for none")
	flags.StringVar(&p.bundle, flagBundle, "",
		"`FILE` with the peer's authorities (SPIFFE bundle or PEM) in the place of the present; ends the refresh")
	flags.StringVar(&p.endpoint, flagEndpoint, "",
		"https `URL` from which the peer's bundle is refreshed; \"\" stops the refresh")
	flags.StringVar(&p.profile, flagProfile, directory.ProfileSPIFFE,
		"`PROFILE` of --bundle-endpoint: "+directory.ProfileSPIFFE+" or "+directory.ProfileWeb)
}

func (p *peerChange) run(ctx context.Context, session *connect.Session, domain string) error {
	client, err := session.Client()
	if err != nil {
		return err
	}

	// The rules are replaced as a whole, so the present ones are read first, and flags change a part of them.
	peer, err := findPeer(ctx, session, client, domain)
	if err != nil {
		return err
	}

	settings, err := p.settings(peer)
	if err != nil {
		return err
	}

	// The bundle is read before anything changes, so that a wrong file changes nothing.
	prints, err := p.readBundle(session, domain, &settings)
	if err != nil {
		return err
	}

	var reply apiclient.Reply
	if err := client.Operator().Noting(&reply).SetPeer(ctx, domain, settings); err != nil {
		return cli.Suggest(err, cli.ExitNotFound, session.CommandLine("peer", "list"))
	}

	err = session.PrintWritten(cli.WrittenOf(peersHref, "updated", reply.Header).About(domain),
		"updated the peering with %s", domain)
	if err == nil && prints != nil {
		session.Note("Its authorities have the fingerprints %s now.", strings.Join(prints, " "))
		noteRefresh(session, peer, settings.BundleEndpoint != nil)
	}

	if err == nil && settings.Addresses != nil {
		err = noteMove(ctx, session, client, peer, &settings)
	}

	return err
}

// noteMove notes which of a peer's other addresses have moved with those of its nodes, and which have
// not. was is the peer before that.
func noteMove(ctx context.Context, session *connect.Session, client *apiclient.Client, was *apiclient.Peer,
	to *apiclient.PeerSettings) error {
	now, err := findPeer(ctx, session, client, was.Domain)
	if err != nil {
		return err
	}

	switch {
	case now.BundleEndpoint != was.BundleEndpoint && to.BundleEndpoint == nil && to.Bundle == nil:
		session.Note("Its bundle is refreshed from %s now.", now.BundleEndpoint)
	case now.BundleEndpoint != "" && to.BundleEndpoint == nil:
		session.Note("Its bundle endpoint stays %s; --%s changes it.", now.BundleEndpoint, flagEndpoint)
	}

	if to.Gossip == nil && len(now.Gossip) > 0 {
		session.Note("Its gossip addresses stay %s; --%s changes them.", strings.Join(now.Gossip, " "), flagGossip)
	}

	return nil
}

// readBundle puts the peer's authorities of --peer-bundle into the settings, and returns their
// fingerprints; nil without the flag.
func (p *peerChange) readBundle(session *connect.Session, domain string, to *apiclient.PeerSettings) ([]string, error) {
	if !p.command.Flags().Changed(flagBundle) {
		return nil, nil
	}

	td, err := parseDomain(domain)
	if err != nil {
		return nil, err
	}

	text, err := session.ReadFile(p.bundle, trust.MaxBundle+1)
	if err != nil {
		return nil, err
	}

	if to.Bundle, err = trust.BundleJWKS(td, text); err != nil {
		return nil, cli.Usage("--%s %s is no bundle of %s: %v", flagBundle, p.bundle, domain, err)
	}

	return trust.Fingerprints(td, to.Bundle)
}

// noteRefresh notes that the bundle is no longer refreshed, and the command that changes it.
func noteRefresh(session *connect.Session, peer *apiclient.Peer, given bool) {
	if given || peer.BundleEndpoint == "" {
		return
	}

	session.Note("The bundle is no longer refreshed. Once the endpoint has no dropped authority:")
	session.Note("  %s", session.CommandLine("peer", "set", peer.Domain, "--"+flagEndpoint, peer.BundleEndpoint))
}

// settings returns the peer's present settings with the given changes.
func (p *peerChange) settings(peer *apiclient.Peer) (apiclient.PeerSettings, error) {
	var to apiclient.PeerSettings
	if p.exported.apply(p.command, "export", &peer.Export) {
		to.Export = &peer.Export
	}

	filtered := p.imported.apply(p.command, "import", &peer.Import)

	// The limits are applied whether or not there are filters.
	if limited := p.applyLimits(&peer.Import); filtered || limited {
		to.Import = &peer.Import
	}

	if p.command.Flags().Changed(flagNodes) {
		to.Addresses = p.nodes
	}

	if p.command.Flags().Changed(flagGossip) {
		to.Gossip = p.gossip
	}

	switch {
	case p.endpoint == "" && p.command.Flags().Changed(flagProfile):
		return to, cli.Usage("--bundle-profile without --bundle-endpoint; give both")
	case p.endpoint != "":
		to.BundleEndpoint = &apiclient.BundleEndpoint{URL: p.endpoint, Profile: p.profile}

	// The flag with an empty value stops the refresh.
	case p.command.Flags().Changed(flagEndpoint):
		to.BundleEndpoint = &apiclient.BundleEndpoint{}
	}

	if to.Export == nil && to.Import == nil && to.Addresses == nil && to.Gossip == nil && to.BundleEndpoint == nil &&
		!p.command.Flags().Changed(flagBundle) {
		return to, cli.Usage("nothing to set; give at least one flag, such as --export-names")
	}

	// The rules have whole seconds, and applyLimits has cut off the rest.
	seconds := p.maxLifetime / time.Second
	if seconds < 0 || seconds > math.MaxUint32 || p.maxLifetime%time.Second != 0 {
		return to, cli.Usage("--max-lifetime must be a whole number of seconds, or 0 for no limit, got %s",
			p.maxLifetime)
	}

	return to, nil
}

// applyLimits sets the given limits on the import in rules and reports whether any was
// given.
func (p *peerChange) applyLimits(rules *apiclient.PeerRules) (given bool) {
	for name, set := range map[string]func(){
		flagRecords:     func() { rules.Records = p.records },
		flagBytes:       func() { rules.Bytes = p.bytes },
		flagOwnerShare:  func() { rules.OwnerShare = p.ownerShare },
		flagMaxLifetime: func() { rules.MaxLifetime = uint32(p.maxLifetime / time.Second) },
		flagOnStale:     func() { rules.OnStale = p.onStale },
	} {
		if p.command.Flags().Changed(name) {
			set()
			given = true
		}
	}

	return given
}
