package domain

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// snapshotCommand returns the commands that save, salvage, inspect and restore backups of a
// domain's directory.
//
// A backup contains the salts that hide withheld members of records. So the file is
// encrypted with age (https://age-encryption.org) unless the operator asks for plaintext.
// Between this program and a directory the backup travels unencrypted inside mutual TLS.
func snapshotCommand(s *connect.Session) *cobra.Command {
	return cli.Group("snapshot", "Save, inspect and restore backups of a domain",
		keygenCommand(s), saveCommand(s), salvageCommand(s), inspectCommand(s), restoreCommand(s))
}
