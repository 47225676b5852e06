// Package domain has the commands that run and operate a domain's directory: its nodes, keys,
// policy, backups and the identities in it, and its relations to other domains.
package domain

import (
	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// NodeCommands returns the commands that run, configure and diagnose a node.
func NodeCommands(s *connect.Session) []*cobra.Command {
	return []*cobra.Command{serveCommand(s), configCommand(s), statusCommand(s), doctorCommand(s)}
}

// OperatorCommands returns the commands of a domain's operator.
func OperatorCommands(s *connect.Session) []*cobra.Command {
	return []*cobra.Command{raftCommand(s), keysCommand(s), policyCommand(s), revokeCommand(s), flaggedCommand(s),
		proofCommand(s), auditCommand(s), snapshotCommand(s), historyCommand(s)}
}

// MeshCommands returns the commands for other domains: peerings with them, the nodes that
// gossip, directories on the local network, and the verification of proofs.
func MeshCommands(s *connect.Session) []*cobra.Command {
	return []*cobra.Command{peerCommand(s), membersCommand(s), findCommand(s), verifyCommand(s), bundleCommand(s)}
}

// change makes an operator's change and prints its result, which begins with the fields known before.
func change(session *connect.Session, client *apiclient.Client, known cli.Written,
	do func(*apiclient.Operator) error, note string, args ...any) error {
	var reply apiclient.Reply
	if err := do(client.Operator().Noting(&reply)); err != nil {
		return err
	}

	written := cli.WrittenOf(known.Href, known.Result, reply.Header).About(known.Subject)

	return session.PrintWritten(written, note, args...)
}
