package domain

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/node/config"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node"
)

func saveCommand(session *connect.Session) *cobra.Command {
	var enc encryption
	cmd := &cobra.Command{
		Use:   "save FILE (--recipient KEY | --plaintext)",
		Short: "Save a backup of the domain while it runs",
		Long: `Save a backup of the domain to FILE while it runs. The backup contains every write that was
acknowledged before. An existing file is not overwritten.
` + encryptionHelp,
		Example: "  roster snapshot save alpha.backup --recipient age1...\n" +
			"  roster snapshot save alpha.backup --recipient @operators.txt",
		Args: cli.Args("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := enc.parse(); err != nil {
				// A wrong flag ends the command before any request.
				return err
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			return saveFile(session.Console, args[0], enc, func(out io.Writer) error {
				return client.Operator().SaveSnapshot(c.Context(), out)
			})
		},
	}
	enc.addFlags(cmd)

	return cmd
}

func salvageCommand(session *connect.Session) *cobra.Command {
	var (
		file   string
		before uint64
		enc    encryption
	)
	cmd := &cobra.Command{
		Use:   "salvage FILE --config FILE (--recipient KEY | --plaintext)",
		Short: "Make a backup from a stopped node's disk after the domain lost its quorum",
		Long: `Make a backup from a stopped node's disk, for a domain that has lost more than half of its
voters permanently. Without a quorum the remaining nodes can't write, nor save a backup
while they run. The data on the disk is not changed. If the disk is damaged or read-only,
work on a copy.

To recover the domain:

  1. Stop the remaining nodes and salvage each one. The command prints the term and the
     entry at which the node's log ends.
  2. Choose the backup of the highest term, and among those of the highest entry. Ignore
     the position: a leader that was cut off may have written entries that were never
     committed.
  3. Move the data directories of all remaining nodes away, start as many nodes as the
     domain begins with, with configurations that list them as members, and restore the
     chosen backup.

Peers reconnect if they find a node whose address they know; otherwise their operators set
the new addresses with "roster peer set DOMAIN --nodes". Writes that only lost nodes have
acknowledged are lost.

If no node starts because of one log entry, which each of them names, use --before with its
number on the node with the longest log. All writes from that entry on are lost.
` + encryptionHelp,
		Example: "  roster snapshot salvage left.backup --config node.yaml --recipient age1...\n" +
			"  roster snapshot restore left.backup --identity key.txt --new-epoch --reason 'three disks lost'",
		Args: cli.Args("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return cli.Usage("missing --config FILE").
					WithHint("It names the configuration of the stopped node on this machine.")
			}

			loaded, err := config.Load(file)
			if err != nil {
				return cli.Usage("invalid configuration: %w", err).WithNext(session.Program + " config")
			}

			return salvage(session.Console, args[0], enc, loaded, before)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", configHelp)
	cmd.Flags().Uint64Var(&before, "before", 0, "end the backup before the log entry with this `NUMBER`")
	enc.addFlags(cmd)

	return cmd
}

func salvage(console *cli.Console, path string, enc encryption, cfg config.Config, before uint64) error {
	var term, entry uint64

	err := saveFile(console, path, enc, func(out io.Writer) error {
		end, err := node.SalvageBackup(cfg, before, out)
		term = end.Term
		entry = end.Entry

		return err
	})

	if refused, ok := errors.AsType[*node.EntryError](err); ok {
		return cli.Failed(cli.ExitFailed, "the log can't be applied: %w", err).
			WithHint("If no newer release wrote that entry, cut the log before it with --before %d. All writes from "+
				"it on are lost.", refused.Entry)
	}

	if err != nil {
		return err
	}

	if before > 0 {
		console.Note("the backup ends at entry %d of term %d; the log from entry %d on is not in it", entry, term,
			before)

		return nil
	}

	console.Note("the log ends at term %d, entry %d: of several nodes' backups choose the highest term, "+
		"then the highest entry", term, entry)

	return nil
}

// saveFile makes a backup with write and saves it at path, as a whole or not at all.
func saveFile(
	console *cli.Console, path string, enc encryption, write func(io.Writer) error,
) error {
	recipients, err := enc.parse()
	if err != nil {
		return err
	}

	// An existing file is refused before the backup is made. nameBackup closes the race.
	if _, err := os.Lstat(path); err == nil {
		return cli.Failed(cli.ExitConflict, "%s exists", path).
			WithHint("Backups never overwrite a file; choose another name.")
	}

	// The name shows an incomplete file as such, and O_EXCL keeps two saves apart.
	partial := path + ".partial"

	file, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return cli.Failed(cli.ExitConflict, "%s exists", partial).
			WithHint("Another save is running, or one was interrupted; if it was interrupted, remove the file:").
			WithNext("rm " + cli.ShellQuote(partial))
	}

	if err != nil {
		return err
	}

	info, err := writeBackup(file, recipients, write)

	// The contents are on the disk before the file gets its name.
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, removeIfExists(partial))
	}

	if err := nameBackup(partial, path); err != nil {
		return err
	}

	protection := "not encrypted"
	if len(recipients) > 0 {
		protection = fmt.Sprintf("encrypted, recipients: %d", len(recipients))
	}

	console.Note("saved %s at %s (registrations: %d, bytes: %d, %s)",
		info.Domain.Name(), info.Position, info.Registrations, info.Size, protection)

	if console.Format.IsTable() {
		return nil
	}

	return console.PrintValue(summarize(info, len(recipients) > 0), "", cli.Table{})
}

// nameBackup gives a complete backup its name, and replaces no file. If it fails, the backup stays where it is.
func nameBackup(partial, path string) error {
	// The exclusive creation refuses a file that was made meanwhile, and unlike a link works on every file system.
	claim, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		if err = errors.Join(claim.Close(), os.Rename(partial, path)); err != nil {
			err = errors.Join(err, removeIfExists(path))
		}
	}

	if err == nil {
		return nil
	}

	code := cli.ExitFailed
	if errors.Is(err, fs.ErrExist) {
		code = cli.ExitConflict
	}

	return cli.Failed(code, "cannot rename the backup: %w", err).
		WithHint("The backup is complete in %s; move it to another name.", partial)
}

func removeIfExists(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}
