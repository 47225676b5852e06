package domain

import (
	"context"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

func keysCommand(s *connect.Session) *cobra.Command {
	return cli.Group("keys", "List, rotate and revoke the domain's signing keys",
		listKeysCommand(s), rotateKeyCommand(s), revokeKeyCommand(s))
}

func listKeysCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the domain's signing keys: active, recently rotated, revoked",
		Args:  cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			all, reply, err := client.Operator().Keys(ctx)
			if err != nil {
				return err
			}

			t := cli.Table{Head: []string{"KEY", "STATE", "NODE"}}
			for _, key := range all.Keys {
				state := "active"
				if key.Rotated {
					state = "rotated"
				}

				t.Add(key.ID, state, key.Node)
			}

			for _, id := range all.Revoked {
				t.Add(id, "revoked", "")
			}

			return session.Print(cli.Answer{Body: reply.Body, Items: "keys", Table: t})
		}),
	}
}

// keysHref is where the domain's keys are shown.
const keysHref = "/v1/operator/keys"

func rotateKeyCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Replace the signing key of the addressed node",
		Long: `Replace the signing key of the addressed node (--address). The old key signs no more, and
its signatures stay valid for five more minutes. If the old key may be compromised, revoke
it with "roster keys revoke" instead.`,
		Args: cli.Args(),
		RunE: session.WithNode(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			return change(session, client, cli.Written{Href: keysHref, Result: "rotated"},
				func(o *apiclient.Operator) error { return o.RotateKey(ctx) },
				"rotated: the node signs with a new key; the old key stays valid for five more minutes")
		}),
	}
}

func revokeKeyCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke a signing key permanently",
		Long: `Revoke a signing key of the domain permanently. Within seconds peers reject all signatures
of the key, old and new. Its node creates a new key at once, and the node's recently rotated
keys become invalid too. KEY is an id from "roster keys list", or of an earlier key of the
domain.`,
		Args: cli.Args("KEY"),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, args []string) error {
			if _, err := directory.ParseHash(args[0]); err != nil {
				return cli.Usage("KEY must be an id of a signing key, got %q", args[0]).
					WithNext(session.CommandLine("keys", "list"))
			}

			return change(session, client, cli.Written{Href: keysHref, Result: "revoked", Subject: args[0]},
				func(o *apiclient.Operator) error { return o.RevokeKey(ctx, args[0]) }, "revoked %s", args[0])
		}),
	}
}
