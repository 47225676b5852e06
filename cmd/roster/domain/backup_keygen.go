package domain

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func keygenCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make a key that decrypts backups",
		Long: `Write a new age identity (private key) to FILE, which only your account can read, and print
its public key for --recipient. The file must not exist. Keep it away from the domain's nodes,
and a copy of it elsewhere: without it no backup that was encrypted to it can be restored.`,
		Example: "  roster snapshot keygen backup.key\n" +
			"  roster snapshot save alpha.backup --recipient age1...",
		Args: cli.Args("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			identity, err := age.GenerateX25519Identity()
			if err != nil {
				return err
			}

			// The private key is on the disk before its public key is shown.
			if err := writeIdentity(args[0], identity); err != nil {
				return err
			}

			made := struct {
				File      string `json:"file"`
				Recipient string `json:"recipient"`
			}{args[0], identity.Recipient().String()}

			session.Note("wrote the private key %s; back up with --recipient and:", made.File)

			if session.Format.IsTable() {
				_, err = fmt.Fprintln(session.Stdout, made.Recipient)
				return err
			}

			return session.PrintValue(made, "", cli.Table{})
		},
	}
}

// writeIdentity writes an identity to a new file, in the form of age-keygen.
func writeIdentity(path string, identity *age.X25519Identity) error {
	const never = "A key is never overwritten, because it may be the only one that decrypts a backup."

	return writeNew(path, "key", never, func(file io.Writer) error {
		_, err := fmt.Fprintf(file, "# created: %s\n# public key: %s\n%s\n", time.Now().UTC().Format(time.RFC3339),
			identity.Recipient(), identity)

		return err
	})
}

// writeNew writes a file for its owner alone, as a whole or not at all. A file that exists is refused with a hint.
func writeNew(path, what, never string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return cli.Failed(cli.ExitConflict, "%s exists", path).WithHint("%s", never)
	}

	if err != nil {
		return cli.Failed(cli.ExitFailed, "cannot write the %s: %w", what, err)
	}

	// A part of the file is removed, so that it isn't taken for the whole later.
	if err = errors.Join(write(file), file.Sync(), file.Close()); err != nil {
		return errors.Join(cli.Failed(cli.ExitFailed, "cannot write the %s: %w", what, err), os.Remove(path))
	}

	return nil
}
