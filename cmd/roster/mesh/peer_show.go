package mesh

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func showPeerCommand(s connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "show DOMAIN",
		Short: "Show one peering in full: state, rules, quotas, evidence, counters",
		Args:  cli.Args("DOMAIN"),
		RunE: s.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			peer, err := findPeer(ctx, s, client, args[0])
			if err != nil {
				return err
			}
			return s.PrintValue(peer, "", peerTable(peer))
		}),
	}
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

func peerTable(p *apiclient.Peer) cli.Table {
	t := &fieldTable{cli.Table{Head: []string{"FIELD", "VALUE"}}}
	addPeerState(t, p)
	addPeerRules(t, "export", p.Export)
	addPeerRules(t, "import", p.Import)
	addPeerHoldings(t, p)

	t.add("bytes in", cli.NonZero(p.BytesIn))
	t.add("bytes out", cli.NonZero(p.BytesOut))
	t.add("gossip bytes in", cli.NonZero(p.GossipIn))
	t.add("gossip bytes out", cli.NonZero(p.GossipOut))
	for _, e := range p.Evidence {
		t.add("evidence", e.ID+", found "+cli.FormatTime(e.Found))
	}
	t.addCounts("messages", p.Received)
	t.addCounts("messages refused", p.Refused)

	return t.Table
}

func addPeerState(t *fieldTable, p *apiclient.Peer) {
	t.add("domain", p.Domain)
	t.add("state", p.State)
	t.add("agreed state", p.Agreed)
	t.add("ended by", p.EndedBy)
	t.add("invitation valid until", cli.FormatTime(p.Until))
	t.add("fingerprint", p.Fingerprint)
	t.add("exported to peer", cli.YesNo(p.Exported))
	if p.Unlisted {
		t.add("exported to us", "no; ask the peer's operator to run roster peer export for this domain")
	}
	t.add("addresses", strings.Join(p.Addresses, " "))
	t.add("gossip addresses", strings.Join(p.Gossip, " "))
	t.add("position here", p.Watermark)
	t.add("position there", p.Tip)
	t.add("lag", fmt.Sprintf("%d revisions, %s s", p.LagRevisions, formatSeconds(p.LagSeconds)))
	t.add("last contact", cli.FormatTime(p.LastHeard))
	if p.HeadAge > 0 {
		t.add("age of newest head", formatSeconds(p.HeadAge)+" s")
	}
	t.add("bundle endpoint", p.BundleEndpoint)
	t.add("bundle refreshed", cli.FormatTime(p.BundleChecked))
	t.add("bundle error", p.BundleError)
	t.add("last error", p.LastError)
	t.add("formats held back", strings.Join(p.HoldsBack, " "))
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

func addPeerHoldings(t *fieldTable, p *apiclient.Peer) {
	if p.Hidden {
		t.add("hidden", "yes; the peer has been unreachable for too long")
	}
	t.add("records", usageOfLimit(p.Records, p.RecordsLimit))
	t.add("bytes", usageOfLimit(p.Bytes, p.BytesLimit))
	t.add("records missing", cli.NonZero(uint64(p.Missing)))
	t.add("records over quota", cli.NonZero(p.OverQuota))
	t.add("unsupported", p.Unsupported)
	t.addCounts("records of unsupported format", p.Unopened)
}

// usageOfLimit returns how much of a quota is used. A limit of 0 means no limit.
func usageOfLimit(used, limit uint64) string {
	if limit == 0 {
		return cli.NonZero(used)
	}
	return fmt.Sprintf("%d of %d (%.1f %%)", used, limit, 100*float64(used)/float64(limit))
}
