package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func manCommand(session *connect.Session) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print the manual page of a command, or write all pages to a directory",
		Long: `Print the manual page of a command; pipe it to man -l - to read it. With --dir, write the
pages of all commands, one file each. SOURCE_DATE_EPOCH sets their date.`,
		Example: "  roster man lookup | man -l -\n  roster man --dir /usr/local/share/man/man1",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()

			date, err := manualDate()
			if err != nil {
				return cli.Usage("%w", err)
			}

			named, rest, err := root.Find(args)
			switch {
			case err != nil || len(rest) > 0:
				return cli.Usage("unknown command %q", strings.Join(args, " "))
			case dir != "" && len(args) > 0:
				return cli.Usage("--dir and COMMAND exclude each other; --dir writes the pages of all commands")
			case dir == "":
				return writeManual(session.Stdout, session, named, date)
			}

			if err := os.MkdirAll(dir, 0o755); err != nil {
				return cli.Failed(cli.ExitFailed, "cannot write the manual pages: %w", err)
			}

			return writeManuals(session, root, dir, date)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write the pages of all commands to this `DIRECTORY`")

	return cmd
}
