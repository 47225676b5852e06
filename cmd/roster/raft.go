package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
)

func (a *app) raftCommand() *cobra.Command {
	return group("raft", "Look at which nodes hold a domain's directory, and change it",
		a.raftPeersCommand(), a.raftTransferCommand(), a.raftRemoveCommand(), a.raftAdmitCommand(), a.raftLeaveCommand())
}

func (a *app) raftPeersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "peers",
		Short: "List the domain's nodes, as the one that is asked sees them",
		Args:  needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			status, reply, err := client.Raft(ctx)
			if err != nil {
				return err
			}
			t := table{head: []string{"ID", "ADDRESS", "ROLE", "LAST CONTACT", "+API", "+READS"}}
			for _, p := range status.Peers {
				t.rows = append(t.rows, []string{p.ID, p.Address, roleOf(p, status.Leader), contact(p), p.API, readsText(p.Reads)})
			}
			if w := status.Written; w.Log > 0 {
				a.note("%s", writtenText(w))
			}
			if status.Leader == "" {
				a.note("no leader is known")
			}
			for _, n := range status.Admitted {
				a.note("%s may join until %s", n.ID, stamp(n.Until))
			}
			return a.print(answer{reply.Body, "peers", t})
		}),
	}
}

// readsText shows the newest versions and formats that a node reads.
func readsText(r apiclient.Reads) string {
	if r.Log == 0 {
		return ""
	}

	text := fmt.Sprintf("log %d, snapshot %d, wire %d", r.Log, r.Snapshot, r.Wire)
	for _, structure := range slices.Sorted(maps.Keys(r.Formats)) {
		text += fmt.Sprintf(", %s %d", structure, slices.Max(append(r.Formats[structure], 1)))
	}

	return text
}

// writtenText shows the versions and formats that a domain writes.
func writtenText(w apiclient.Written) string {
	text := fmt.Sprintf("the domain writes log version %d, snapshot version %d, wire version %d", w.Log, w.Snapshot, w.Wire)
	for _, structure := range slices.Sorted(maps.Keys(w.Formats)) {
		text += fmt.Sprintf(", %s format %d", structure, w.Formats[structure])
	}

	return text
}

func contact(p apiclient.RaftPeer) string {
	if p.Unheard {
		return "not since this leader leads"
	}
	return stamp(p.LastContact)
}

func roleOf(p apiclient.RaftPeer, leader string) string {
	switch {
	case p.ID == leader:
		return "leader"
	case p.Voter:
		return "voter"
	}
	return "non-voter"
}

func (a *app) raftTransferCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "transfer [ID]",
		Short: "Give the leadership to a node, or to any that is fit",
		Long: `Give the leadership to a node, or to any that is fit where none is named. No write
fails meanwhile. ID is a node's SPIFFE ID, or what stands behind the last slash of it.`,
		Args: anyOf("[ID]"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.operate(c.Context(), args, func(ctx context.Context, client *apiclient.Client, id string) error {
				return client.Transfer(ctx, id)
			}, func(id string) string {
				if id == "" {
					return "another node leads now"
				}
				return id + " leads now"
			})
		},
	}
}

func (a *app) raftRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Take a node out of the domain, dead or alive",
		Long: `Take a node out of the domain. It is refused where the nodes that are left could
not write. A node that was removed comes back only when it is admitted again. ID
is a node's SPIFFE ID, or what stands behind the last slash of it.`,
		Args: needs("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.operate(c.Context(), args, func(ctx context.Context, client *apiclient.Client, id string) error {
				return client.RemoveMember(ctx, id)
			}, func(id string) string { return id + " is no node of the domain any more" })
		},
	}
}

func (a *app) raftAdmitCommand() *cobra.Command {
	var withdraw bool
	c := &cobra.Command{
		Use:   "admit ID",
		Short: "Let a new node join the domain",
		Long: `Let a new node join the domain, once and within a day. Then start it with a
configuration that has join. It is a non-voter until it has caught up. ID is its
SPIFFE ID, spiffe://DOMAIN/roster/node/NAME.`,
		Args: needs("ID"),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, args []string) error {
			if err := client.Admit(ctx, args[0], withdraw); err != nil {
				return suggest(err, exitNotFound, a.command("raft", "peers"))
			}
			if withdraw {
				a.note("%s may not join any more", args[0])
			} else {
				a.note("%s may join within a day", args[0])
			}
			return nil
		}),
	}
	c.Flags().BoolVar(&withdraw, "withdraw", false, "take it back")
	return c
}

func (a *app) raftLeaveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Take the node that --address names out of its domain",
		Long: `Take the node that --address names out of its domain. It hands over first where it
leads. It goes on until it is stopped, is not ready, and takes no writes.`,
		Args: needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			if err := client.Leave(ctx); err != nil {
				return err
			}
			a.note("the node has left its domain; stop it now")
			return nil
		}),
	}
}

// operate does something with a node of the domain, which may be named in short.
func (a *app) operate(ctx context.Context, args []string, do func(context.Context, *apiclient.Client, string) error, said func(string) string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	id := strings.Join(args, "")
	if id != "" && !strings.HasPrefix(id, "spiffe://") {
		if id, err = a.nodeNamed(ctx, client, id); err != nil {
			return err
		}
	}
	if err := do(ctx, client, id); err != nil {
		return suggest(err, exitNotFound, a.command("raft", "peers"))
	}
	a.note("%s", said(id))
	return nil
}

// nodeNamed returns the id of the domain's node of that name.
func (a *app) nodeNamed(ctx context.Context, client *apiclient.Client, name string) (string, error) {
	status, _, err := client.Raft(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range status.Peers {
		if strings.HasSuffix(p.ID, "/"+name) {
			return p.ID, nil
		}
	}
	return "", failed(exitNotFound, "no node of the domain is called %q", name).try(a.command("raft", "peers"))
}
