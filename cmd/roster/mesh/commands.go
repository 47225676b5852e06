// Package mesh has the commands for other domains: peerings with them, the nodes that
// gossip, directories on the local network, and the verification of proofs.
package mesh

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// Commands returns the commands of this package.
func Commands(s connect.Session) []*cobra.Command {
	return []*cobra.Command{peerCommand(s), membersCommand(s), findCommand(s), verifyCommand(s), bundleCommand(s)}
}
