package domain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func showPeerCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "show DOMAIN",
		Short: "Show one peering in full: state, rules, quotas, evidence, counters",
		Args:  cli.Args("DOMAIN"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			peer, err := findPeer(ctx, session, client, args[0])
			if err != nil {
				return err
			}

			if err := session.PrintValue(peer, "", peerTable(session.Console, peer)); err != nil {
				return err
			}

			if peer.NotExported {
				return noteNotExported(ctx, session, client, peer.Domain)
			}

			return nil
		}),
	}
}

// noteNotExported notes the command by which a peer's operator starts the export to this domain.
func noteNotExported(ctx context.Context, session *connect.Session, client *apiclient.Client, peer string) error {
	node, _, err := client.Operator().Node(ctx)
	if err != nil {
		return err
	}

	id, err := spiffeid.FromString(node.ID)
	if err != nil {
		return err
	}

	session.Note("%s doesn't export to this domain yet. Ask its operator to run:", peer)
	session.Note("  roster peer export %s", id.TrustDomain().Name())

	return nil
}

// A fieldTable is a table of names and values without the empty values.
type fieldTable struct{ cli.Table }

func (t *fieldTable) add(name, value string) {
	if value != "" {
		t.Add(name, value)
	}
}

// addCounts adds a row for each key of counts, in their order.
func (t *fieldTable) addCounts(name string, counts map[string]uint64) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		t.add(name+" "+key, strconv.FormatUint(counts[key], 10))
	}
}

func peerTable(console *cli.Console, peer *apiclient.Peer) cli.Table {
	t := &fieldTable{cli.Table{Head: []string{"FIELD", "VALUE"}}}
	addPeerState(console, t, peer)
	addPeerRules(t, "export", peer.Export)
	addPeerRules(t, "import", peer.Import)
	addPeerHoldings(t, peer)

	t.add("bytes in", fmt.Sprint(peer.BytesIn))
	t.add("bytes out", fmt.Sprint(peer.BytesOut))
	t.add("gossip bytes in", fmt.Sprint(peer.GossipIn))
	t.add("gossip bytes out", fmt.Sprint(peer.GossipOut))

	for _, e := range peer.Evidence {
		t.add("evidence", e.ID+", found "+console.Time(e.Found))
	}

	t.addCounts("messages", peer.Received)
	t.addCounts("messages refused", peer.Refused)

	return t.Table
}

func addPeerState(console *cli.Console, t *fieldTable, peer *apiclient.Peer) {
	t.add("domain", peer.Domain)
	t.add("state", showState(peer))
	t.add("agreed state", peer.Agreed)
	t.add("ended by", peer.EndedBy)
	t.add("invitation valid until", console.Time(peer.Until))
	t.add("fingerprints", strings.Join(peer.Fingerprints, " "))
	t.add("exported to peer", cli.YesNo(peer.Exported))
	addTheirs(t, peer)

	if peer.NotExported {
		t.add("exported by peer", "no")
	}

	t.add("addresses", strings.Join(peer.Addresses, " "))
	t.add("addresses by its nodes", strings.Join(peer.StatedAddresses, " "))

	for _, node := range peer.ContradictedNodes {
		t.add("contradicted node", node.String())
		t.add("contradicted key", node.Key)
	}

	t.add("gossip addresses", strings.Join(peer.Gossip, " "))
	t.add("position here", peer.Watermark)
	t.add("position there", peer.Tip)
	t.add("lag", fmt.Sprintf("%d revisions, %s s", peer.LagRevisions, formatSeconds(peer.LagSeconds)))
	t.add("last answer", console.Time(peer.LastAnswer))
	t.add("last verified message", console.Time(peer.LastHeard))
	t.add("last verified page", console.Time(peer.LastPage))
	t.add("age of last verified page", peer.PageAgeText())

	if peer.HeadAge > 0 {
		t.add("age of last verified head", formatSeconds(peer.HeadAge)+" s")
	}

	if peer.LedgerAge > 0 {
		t.add("age of last verified checkpoint", formatSeconds(peer.LedgerAge)+" s")
	}

	t.add("checkpoint error", peer.LedgerError)
	t.add("other ledger shown to", strings.Join(peer.LedgerDiffers, " "))
	t.add("bundle endpoint", peer.BundleEndpoint)
	t.add("bundle refreshed", console.Time(peer.BundleChecked))
	t.add("bundle error", peer.BundleError)
	t.add("last error", peer.LastError)
	t.add("formats held back", strings.Join(peer.HoldsBack, " "))
}

// addTheirs adds how the peer sees this domain.
func addTheirs(t *fieldTable, peer *apiclient.Peer) {
	theirs := peer.Theirs
	if theirs == nil {
		return
	}

	t.add("refuses this domain", peer.RefusalText())
	t.add("state of this domain there",
		theirs.State+" (reported by "+theirs.Node+" at "+cli.FormatTime(theirs.Heard)+")")
	t.add("last taken by peer", theirs.Position)
	t.add("last page taken by peer", cli.FormatTime(theirs.Page))

	if theirs.RefusedCode != "" {
		t.add("last refused by peer", theirs.RefusedCode+" at "+cli.FormatTime(theirs.RefusedAt))
	}
}

// showState returns the state in words. For an unreachable peer it has the last verified page,
// because everything else that is shown of the peer is as old.
func showState(peer *apiclient.Peer) string {
	if peer.UnreachableSince.IsZero() {
		return peer.StateText()
	}

	return peer.StateText() + ", " + peer.PageText()
}

func addPeerRules(t *fieldTable, direction string, rules apiclient.PeerRules) {
	t.add(direction+" names", strings.Join(rules.Names, " "))
	t.add(direction+" capabilities", strings.Join(rules.Capabilities, " "))
	t.add(direction+" kinds", strings.Join(rules.Kinds, " "))
	t.add(direction+" quota of records", cli.NonZero(rules.Records))
	t.add(direction+" quota of bytes", cli.NonZero(rules.Bytes))

	if parts := rules.OwnerShare; parts > 0 {
		t.add(direction+" share of one owner", "1/"+strconv.FormatUint(uint64(parts), 10))
	}

	if seconds := rules.MaxLifetime; seconds > 0 {
		t.add(direction+" maximum lifetime", (time.Duration(seconds) * time.Second).String())
	}

	t.add(direction+" on stale", rules.OnStale)
}

func addPeerHoldings(t *fieldTable, peer *apiclient.Peer) {
	if peer.Hidden {
		t.add("hidden", "yes; the peer has been unreachable for too long")
	}

	if peer.Shed {
		t.add("shed", "yes; the node is short of memory and doesn't show its registrations")
	}

	t.add("records", usageOfLimit(peer.Records, peer.RecordsLimit))
	t.add("bytes", usageOfLimit(peer.Bytes, peer.BytesLimit))
	t.add("records missing", fmt.Sprint(peer.Missing))
	t.add("records over quota", fmt.Sprint(peer.OverQuota))

	if peer.Unconfirmed > 0 {
		t.add("records unconfirmed", fmt.Sprintf("%d; only one of its nodes announces them", peer.Unconfirmed))
	}

	t.add("unsupported", peer.Unsupported)
	t.addCounts("records of unsupported format", peer.Unopened)
}

// usageOfLimit returns how much of a quota is used. A limit of 0 means no limit.
func usageOfLimit(used, limit uint64) string {
	if limit == 0 {
		return fmt.Sprint(used)
	}

	return fmt.Sprintf("%d of %d (%.1f %%)", used, limit, 100*float64(used)/float64(limit))
}
