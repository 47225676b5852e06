// Package domain has the commands that run and operate a domain's directory: its nodes,
// keys, policy and the identities in it.
package domain

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// NodeCommands returns the commands that run, configure and diagnose a node.
func NodeCommands(s connect.Session) []*cobra.Command {
	return []*cobra.Command{serveCommand(s), configCommand(s), statusCommand(s), doctorCommand(s)}
}

// OperatorCommands returns the commands of a domain's operator.
func OperatorCommands(s connect.Session) []*cobra.Command {
	return []*cobra.Command{raftCommand(s), keysCommand(s), policyCommand(s), revokeCommand(s), flaggedCommand(s),
		proofCommand(s), auditCommand(s)}
}
