package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print the manual page of a command, or write those of all",
		Long: `Print the manual page of a command, to be read with man -l -, or with --dir write
those of all commands, one file each. SOURCE_DATE_EPOCH dates them.`,
		Example: "  roster man lookup | man -l -\n  roster man --dir /usr/local/share/man/man1",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.DisableAutoGenTag = true
			page := &doc.GenManHeader{Section: "1", Source: "Roster", Manual: "Roster"}
			switch of, rest, err := root.Find(args); {
			case err != nil || len(rest) > 0:
				return usage("there is no command %q", args)
			case dir != "" && len(args) > 0:
				return usage("--dir writes the pages of all commands; it goes with none")
			case dir == "":
				return doc.GenMan(of, page, a.stdout)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("the pages can't be written: %w", err)
			}
			return doc.GenManTree(root, page, dir)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "write the pages of all commands into this directory")
	return c
}
