package domain

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func peerCommand(session *connect.Session) *cobra.Command {
	return cli.Group("peer", "Manage peerings with other domains",
		inviteCommand(session),
		acceptCommand(session),
		listPeersCommand(session),
		showPeerCommand(session),
		exportToPeerCommand(session),
		setPeerCommand(session),
		evidenceCommand(session),
		releaseCommand(session),
		removePeerCommand(session),
	)
}

// noteExport notes that a new peering exports nothing, and the command that changes it.
func noteExport(s *connect.Session, domain string) {
	s.Note("Nothing is exported to %s yet. To export mesh registrations to it:", domain)
	s.Note("  %s", s.CommandLine("peer", "export", domain))
}

func listPeersCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List peers with state, lag and the age of the last verified page",
		Long: `List the peers as the addressed node sees them. A peer is unreachable if none of its nodes has
answered this node for nine seconds. LAST PAGE AGE is the time since the newest page of the
peer that this node verified was issued; a domain in which nothing changes issues none.`,
		Args: cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			peers, reply, err := client.Operator().Peers(ctx)
			if err != nil {
				return err
			}

			table := peersTable(session.Console, peers)

			return session.Print(cli.Answer{Body: reply.Body, Items: "peers", Table: table})
		}),
	}
}

func peersTable(console *cli.Console, peers []apiclient.Peer) cli.Table {
	t := cli.Table{Head: []string{
		"DOMAIN", "STATE", "EXPORTED", "LAG REVISIONS", "LAG SECONDS", "LAST PAGE AGE", "LAST ANSWER",
		"+LAST PAGE", "+TAKEN BY PEER", "+POSITION HERE", "+POSITION THERE", "+ADDRESSES",
		"+FORMATS HELD BACK", "LAST ERROR",
	}}
	for i := range peers {
		peer := &peers[i]
		t.Add(
			peer.Domain, peer.StateText(), cli.YesNo(peer.Exported), strconv.FormatUint(peer.LagRevisions, 10),
			formatSeconds(peer.LagSeconds), peer.PageAgeText(), console.Time(peer.LastAnswer),
			console.Time(peer.LastPage), takenBy(peer), peer.Watermark, peer.Tip, strings.Join(peer.Addresses, " "),
			strings.Join(peer.HoldsBack, " "), peerTrouble(peer),
		)
	}

	return t
}

// takenBy returns the position of this domain up to which the peer has taken its announcements.
func takenBy(peer *apiclient.Peer) string {
	if peer.Theirs == nil {
		return ""
	}

	return peer.Theirs.Position
}

// peerTrouble returns the most urgent trouble of a peering, or "".
func peerTrouble(peer *apiclient.Peer) string {
	if peer.Agreed == "frozen" {
		return peer.FrozenText()
	}

	text := cmp.Or(peer.RefusalText(), peer.LastError)
	if text == "" && peer.BundleError != "" {
		text = "bundle refresh: " + peer.BundleError
	}

	return text
}

func formatSeconds(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 1, 64) }

// findPeer returns one peer of the domain.
func findPeer(
	ctx context.Context, session *connect.Session, client *apiclient.Client, domain string,
) (*apiclient.Peer, error) {
	peers, _, err := client.Operator().Peers(ctx)
	if err != nil {
		return nil, err
	}

	i := slices.IndexFunc(peers, func(p apiclient.Peer) bool { return p.Domain == domain })
	if i < 0 {
		return nil, cli.Failed(cli.ExitNotFound, "%s is not a peer of this domain", domain).
			WithNext(session.CommandLine("peer", "list"))
	}

	return &peers[i], nil
}

func evidenceCommand(session *connect.Session) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "evidence DOMAIN",
		Short: "Print the evidence against a frozen peer",
		Long: `Print the evidence for which a peer is frozen: two signed structures that contradict each
other, with everything to verify them offline. Anyone with the peer's bundle can verify it.`,
		Example: "  roster peer evidence beta.test > evidence.json\n  roster verify evidence.json --bundle beta.pem",
		Args:    cli.Args("DOMAIN"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			file, err := client.Operator().Evidence(ctx, args[0], id)
			if err != nil {
				return cli.Suggest(err, cli.ExitNotFound, session.CommandLine("peer", "show", args[0]))
			}

			_, err = session.Stdout.Write(file.Body)

			return err
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "`ID` of the evidence, from roster peer show (default: the oldest)")

	return cmd
}

func exportToPeerCommand(session *connect.Session) *cobra.Command {
	var off bool
	cmd := &cobra.Command{
		Use:   "export DOMAIN",
		Short: "Start or stop exporting mesh registrations to a peer",
		Long: `Export to a peer the registrations with visibility mesh that policy permits. With --off,
stop the export; the peer then removes the registrations of this domain.

"roster peer set" limits the export by name, capability and kind.`,
		Args: cli.Args("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			if off {
				return changePeering(c.Context(), session, args[0], apiclient.PeerUnexport,
					"no longer exporting to %s; it removes its copies")
			}

			return changePeering(c.Context(), session, args[0], apiclient.PeerExport,
				"exporting to %s: registrations with visibility mesh")
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "stop the export")

	return cmd
}

func releaseCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "release DOMAIN",
		Short: "Accept registrations from a frozen peer again",
		Long: `Accept registrations from a frozen peer again. Do so after you have cleared up the evidence
with its operator. The peer must have revoked a key that signed the evidence or have begun a
new epoch; otherwise the command is refused.`,
		Args: cli.Args("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			return changePeering(c.Context(), session, args[0], apiclient.PeerRelease, "released %s")
		},
	}
}

func removePeerCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "remove DOMAIN",
		Short: "End a peering on both sides",
		Long: `End a peering, or withdraw an invitation that was not used. The peer's registrations are
removed here at once. The peer is notified and removes this domain's registrations; if it is
unreachable, they expire at their deadlines. "roster peer list" shows the peer as terminated
until it has acknowledged that, and for a day at most.`,
		Args: cli.Args("DOMAIN"),
		RunE: func(c *cobra.Command, args []string) error {
			return changePeering(c.Context(), session, args[0], apiclient.PeerRemove,
				"removed the peering with %s")
		},
	}
}

// peersHref is where the peerings are shown.
const peersHref = "/v1/operator/peers"

// changePeering changes the state of a peering and notes the result, a format with the
// domain.
func changePeering(
	ctx context.Context, session *connect.Session, domain string, verb apiclient.PeerVerb, result string,
) error {
	client, err := session.Client()
	if err != nil {
		return err
	}

	err = change(session, client, cli.Written{Href: peersHref, Result: string(verb), Subject: domain},
		func(o *apiclient.Operator) error { return o.ChangePeering(ctx, domain, verb) }, result, domain)
	err = cli.Suggest(err, cli.ExitNotFound, session.CommandLine("peer", "list"))

	return cli.Suggest(err, cli.ExitConflict, session.CommandLine("peer", "show", domain))
}
