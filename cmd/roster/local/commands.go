// Package local has the commands that work on files of this machine: the configuration of a new
// domain, a certificate authority for domains that have no SPIRE, and a development mesh.
package local

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// Commands returns the commands of this package.
func Commands(session *connect.Session) []*cobra.Command {
	return []*cobra.Command{initDomainCommand(session), authorityCommand(session), devCommand(session)}
}
