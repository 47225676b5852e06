package domain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

func raftCommand(session *connect.Session) *cobra.Command {
	return cli.Group("raft", "List, admit and remove the domain's Raft members",
		listMembersCommand(session),
		transferLeadershipCommand(session),
		removeMemberCommand(session),
		admitCommand(session),
		leaveCommand(session),
		confirmClockCommand(session),
	)
}

func listMembersCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "peers",
		Short: "List the domain's Raft members",
		Long: `List the domain's Raft members as the addressed node sees them, and the nodes that are
admitted but have not joined yet. LAST CONTACT is the leader's last contact with a member. A
STATE of silent means that it has received nothing of the member for three seconds.`,
		Args: cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			status, reply, err := client.Operator().Raft(ctx)
			if err != nil {
				return err
			}

			t := cli.Table{
				Head: []string{"ID", "ADDRESS", "ROLE", "STATE", "LAST CONTACT", "+API", "+READS"},
			}
			for _, m := range status.Peers {
				t.Add(m.ID, m.Address, roleOf(m, status.Leader), m.State, lastContact(session.Console, m), m.API,
					readFormats(m.Reads))
			}

			if w := status.Written; w.Log > 0 && session.Format == cli.FormatWide {
				session.Note("%s", writtenFormats(w))
			}

			if status.Leader == "" {
				session.Note("no leader")
			}

			for _, n := range status.Admitted {
				if n.Max > 0 {
					session.Note("nodes that match %s are admitted while fewer than %d members do", n.ID, n.Max)
					continue
				}

				session.Note("%s is admitted and may join until %s", n.ID, cli.FormatTime(n.Until))
			}

			return session.Print(cli.Answer{Body: reply.Body, Items: "peers", Table: t})
		}),
	}
}

// readFormats returns the newest versions and formats that a node reads.
func readFormats(r apiclient.Reads) string {
	if r.Log == 0 {
		return ""
	}

	text := fmt.Sprintf("log %d, snapshot %d, wire %d", r.Log, r.Snapshot, r.Wire)
	for _, structure := range slices.Sorted(maps.Keys(r.Formats)) {
		text += fmt.Sprintf(", %s %d", structure, slices.Max(append(r.Formats[structure], 1)))
	}

	return text
}

// writtenFormats returns the versions and formats that a domain writes.
func writtenFormats(w apiclient.Written) string {
	text := fmt.Sprintf("the domain writes log version %d, snapshot version %d, wire version %d", w.Log, w.Snapshot,
		w.Wire)
	for _, structure := range slices.Sorted(maps.Keys(w.Formats)) {
		text += fmt.Sprintf(", %s format %d", structure, w.Formats[structure])
	}

	return text
}

func lastContact(console *cli.Console, peer apiclient.RaftPeer) string {
	switch {
	case !peer.LastContact.IsZero():
		return console.Time(peer.LastContact)
	case peer.State == "alive": // the leader itself
		return ""
	default:
		return "not since this leader was elected"
	}
}

func roleOf(peer apiclient.RaftPeer, leader string) string {
	switch {
	case peer.ID == leader:
		return "leader"
	case peer.Voter:
		return "voter"
	}

	return "learner"
}

func transferLeadershipCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "transfer [ID]",
		Short: "Transfer Raft leadership to another node",
		Long: `Transfer Raft leadership to the node ID, or to any up-to-date voter. Writes are delayed
during the transfer and don't fail. ID is a SPIFFE ID or its last segment.`,
		Example: "  roster raft transfer\n  roster raft transfer 2",
		Args:    cli.AtMostOne("ID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			id := ""
			if len(args) > 0 {
				var err error
				if id, err = memberID(ctx, session, client, args[0]); err != nil {
					return err
				}
			}

			// The leader is read before the transfer, so that a late answer is recognised as an old one.
			before := leaderOf(ctx, client)

			var reply apiclient.Reply
			if err := client.Operator().Noting(&reply).Transfer(ctx, id); err != nil {
				return suggestMembers(session, err)
			}

			if id == "" {
				id = leaderAfter(ctx, client, before)
			}

			written := cli.WrittenOf(raftHref, "transferred", reply.Header).About(id)
			if id == "" {
				return session.PrintWritten(written, "leadership transferred; roster raft peers shows the leader")
			}

			return session.PrintWritten(written, "leadership transferred to %s", id)
		}),
	}
}

// leaderOf returns the leader as the addressed node knows it; empty if it doesn't answer.
func leaderOf(ctx context.Context, client *apiclient.Client) string {
	status, _, err := client.Operator().Raft(ctx)
	if err != nil {
		return ""
	}

	return status.Leader
}

// leaderAfter returns the leader after a transfer from another, once the addressed node knows it;
// empty if it doesn't within two seconds.
func leaderAfter(ctx context.Context, client *apiclient.Client, before string) string {
	const (
		attempts = 20
		pause    = 100 * time.Millisecond
	)

	// Without the leader before, a new one can't be recognised.
	if before == "" {
		return leaderOf(ctx, client)
	}

	for range attempts {
		if leader := leaderOf(ctx, client); leader != "" && leader != before {
			return leader
		}

		if !apiclient.Pause(ctx, pause) {
			break
		}
	}

	return ""
}

func removeMemberCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a node from the domain, running or not",
		Long: `Remove a node from the domain, running or not. The leader asks the remaining voters first, for
two seconds at most, and refuses if no majority of them answers. A removed node can join again
after "roster raft admit". ID is a SPIFFE ID or its last segment.`,
		Example: "  roster raft remove 3",
		Args:    cli.Args("ID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			id, err := memberID(ctx, session, client, args[0])
			if err != nil {
				return err
			}

			return suggestMembers(session, change(session, client,
				cli.Written{Href: raftHref, Result: "removed", Subject: id},
				func(o *apiclient.Operator) error { return o.RemoveMember(ctx, id) },
				"removed %s from the domain", id))
		}),
	}
}

func admitCommand(session *connect.Session) *cobra.Command {
	var (
		withdraw, standing bool
		most               uint32
	)
	cmd := &cobra.Command{
		Use:   "admit ID",
		Short: "Allow a new node to join the domain",
		Long: `Allow a new node to join the domain once, within a day. Then start the node with a
configuration that has "join". It is a learner until it has caught up. ID is the node's
SPIFFE ID, spiffe://DOMAIN/roster/node/NAME, or its NAME.

With --standing, ID may end in *, and the nodes that match it may join at any time while the
domain has fewer than --max members that do: for nodes that a platform replaces by itself.`,
		Example: "  roster raft admit 4\n" +
			"  roster raft admit --standing --max 5 'spiffe://alpha.test/roster/node/*'",
		Args: cli.Args("ID"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			id, err := nodeID(ctx, client, args[0], standing)
			if err != nil {
				return err
			}

			if standing {
				return admitStanding(ctx, session, client, id, most, withdraw)
			}

			result, note := "admitted", "admitted %s; it may join within a day"
			if withdraw {
				result, note = "withdrawn", "withdrew the admission of %s"
			}

			return suggestMembers(session, change(session, client,
				cli.Written{Href: raftHref, Result: result, Subject: id},
				func(o *apiclient.Operator) error { return o.Admit(ctx, id, withdraw) }, note, id))
		}),
	}
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "withdraw the admission")
	cmd.Flags().BoolVar(&standing, "standing", false, "admit all nodes that match ID, until it is withdrawn")
	cmd.Flags().Uint32Var(&most, "max", 1, "`N` members that may match a standing admission")

	return cmd
}

func admitStanding(ctx context.Context, session *connect.Session, client *apiclient.Client, pattern string,
	most uint32, withdraw bool) error {
	result := "admitted"
	note := fmt.Sprintf("admitted nodes that match %s while fewer than %d members do", pattern, most)

	switch {
	case withdraw:
		// The API withdraws an admission by a maximum of 0.
		most, result, note = 0, "withdrawn", "withdrew the standing admission of "+pattern
	case most == 0:
		return cli.Usage("--max must be 1 or more")
	}

	return suggestMembers(session, change(session, client,
		cli.Written{Href: raftHref, Result: result, Subject: pattern},
		func(o *apiclient.Operator) error { return o.AdmitStanding(ctx, pattern, most) }, "%s", note))
}

// raftHref is where the domain's members are shown.
const raftHref = "/v1/operator/raft"

// nodeID returns the SPIFFE ID of a node of the addressed domain by that ID or its last
// segment, or of a pattern that ends in *. It refuses others.
func nodeID(ctx context.Context, client *apiclient.Client, text string, pattern bool) (string, error) {
	wrong := cli.Usage("ID must be spiffe://DOMAIN%sNAME or NAME, got %q", directory.NodePath, text)

	if !strings.HasPrefix(text, "spiffe://") {
		if strings.Contains(text, "/") {
			return "", wrong
		}

		node, _, err := client.Operator().Node(ctx)
		if err != nil {
			return "", err
		}

		asked, err := spiffeid.FromString(node.ID)
		if err != nil {
			return "", err
		}

		text = asked.TrustDomain().IDString() + directory.NodePath + text
	}

	// A pattern is no valid id, so an id that matches it is checked.
	example := text
	if prefix, ok := strings.CutSuffix(text, "*"); ok && pattern {
		example = prefix + "x"
	}

	id, err := spiffeid.FromString(example)
	if err != nil || !strings.HasPrefix(id.Path(), directory.NodePath) {
		return "", wrong
	}

	return text, nil
}

func confirmClockCommand(session *connect.Session) *cobra.Command {
	var step time.Duration

	cmd := &cobra.Command{
		Use:   "confirm-clock",
		Short: "Confirm that the stepped clock of the Raft leader is right",
		Long: `Confirm that the clock of the domain's Raft leader is right though it has made a step, so that
leases run by it. "roster status" shows the step. Without this, a step is confirmed by a peer's
time, or when the clocks of all members have agreed on it for ten minutes. Compare the clocks of
all members with a time server before: leases end early, or late, by a step that is wrong.`,
		Example: "  roster raft confirm-clock --step -1h0m0s",
		Args:    cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			if step == 0 {
				return cli.Usage("missing --step STEP: the step that roster status shows, such as -1h0m0s")
			}

			if step.Abs() <= directory.MaxStep {
				return cli.Usage("--step must be the step that roster status shows, over %v, such as -1h0m0s, got %v",
					directory.MaxStep, step)
			}

			return change(session, client, cli.Written{Href: "/v1/operator/status", Result: "confirmed"},
				func(o *apiclient.Operator) error { return o.ConfirmClock(ctx, step) },
				"confirmed the step of the leader's clock by %v; leases run by it", step)
		}),
	}
	cmd.Flags().DurationVar(&step, "step", 0,
		"`STEP` of the clock: by how much it is ahead of the domain's time, or behind it if negative (required)")

	return cmd
}

func leaveCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Remove the addressed node (--address) from its domain",
		Long: `Remove the addressed node (--address) from its domain. A leader transfers its leadership
first. The node keeps running until you stop it, but it is not ready and refuses writes.`,
		Args: cli.Args(),
		RunE: session.WithNode(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			return change(session, client, cli.Written{Href: raftHref, Result: "left"},
				func(o *apiclient.Operator) error { return o.Leave(ctx) },
				"the node has left its domain; stop it now")
		}),
	}
}

func suggestMembers(s *connect.Session, err error) error {
	return cli.Suggest(err, cli.ExitNotFound, s.CommandLine("raft", "peers"))
}

// memberID returns the SPIFFE ID of a member by that ID or its last segment.
func memberID(ctx context.Context, session *connect.Session, client *apiclient.Client, id string) (string, error) {
	if strings.HasPrefix(id, "spiffe://") {
		return id, nil
	}

	status, _, err := client.Operator().Raft(ctx)
	if err != nil {
		return "", err
	}

	for _, m := range status.Peers {
		if strings.HasSuffix(m.ID, "/"+id) {
			return m.ID, nil
		}
	}

	return "", suggestMembers(session, cli.Failed(cli.ExitNotFound, "no node %q in the domain", id))
}
