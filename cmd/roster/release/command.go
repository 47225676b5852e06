package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

const help = `Verify the files of a release by the key that signs releases.

A directory is verified as a whole: each file that SHA256SUMS lists must be there with its hash.
A file is verified alone, by the SHA256SUMS of its directory. Exit code 10: a signature or a hash
is wrong.

Compare the key's fingerprint with the published one, and the version with the one that you
want: an older release is signed as well. Without this program:

  openssl pkeyutl -verify -rawin -pubin -inkey KEY -in SHA256SUMS -sigfile SHA256SUMS.sig
  sha256sum --check SHA256SUMS`

// verdict is the result as -o json prints it.
type verdict struct {
	Version string   `json:"version"` // with its revision
	Key     string   `json:"key"`     // fingerprint
	Files   []string `json:"files"`   // verified, in order
}

// Command returns the command that verifies a release.
func Command(session *connect.Session) *cobra.Command {
	var keyFile string

	cmd := &cobra.Command{
		Use:   "verify-release DIRECTORY|FILE --key FILE",
		Short: "Verify a downloaded release by its signature",
		Long:  help,
		Args:  cli.Args("DIRECTORY|FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if keyFile == "" {
				return cli.Usage("missing --key FILE: the public key that signs releases")
			}

			key, err := ReadKey(keyFile)
			if err != nil {
				return cli.Failed(cli.ExitKey, "cannot read the key: %w", err)
			}

			result, err := verify(key, args[0])
			if err != nil {
				return err
			}

			t := cli.Table{Head: []string{"FILE", "STATE"}}
			for _, name := range result.Files {
				t.Add(name, "verified")
			}

			if err := session.PrintValue(result, "", t); err != nil {
				return err
			}

			session.Note("Release %s, signed by the key with SHA-256 fingerprint %s.", cli.Printable(result.Version),
				result.Key)

			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "`FILE` with the public key of releases (PEM, Ed25519)")

	return cmd
}

// verify verifies a directory or one file.
func verify(key Key, path string) (verdict, error) {
	info, err := os.Stat(path)
	if err != nil {
		return verdict{}, refusal(err)
	}

	dir, only := path, ""
	if !info.IsDir() {
		dir, only = filepath.Split(path)
	}

	// The signature is verified before any name in the list is used as a path.
	sums, err := key.Open(dir)
	if err != nil {
		return verdict{}, refusal(err)
	}

	// The version is verified for a single file, too, because an older release is signed as well.
	version, err := sums.Version(dir)
	if err != nil {
		return verdict{}, refusal(err)
	}

	names := sums.Names()
	if only != "" {
		names = []string{only}
	}

	for _, name := range names {
		if err := sums.Verify(dir, name); err != nil {
			return verdict{}, refusal(fmt.Errorf("%.64q: %w", name, err))
		}
	}

	return verdict{version, key.Fingerprint(), names}, nil
}

// refusal returns the failure of a release that can't be read or isn't signed by the key.
func refusal(err error) error {
	switch {
	case errors.Is(err, ErrSignature), errors.Is(err, ErrSums), errors.Is(err, ErrMismatch),
		errors.Is(err, ErrUnlisted):
		return cli.Failed(cli.ExitFormat, "the release is not verified: %w", err).
			WithHint("Compare the fingerprint of the key with the published one, and download the release again.")
	case errors.Is(err, fs.ErrNotExist):
		return cli.Failed(cli.ExitNotFound, "the release is not complete: %w", err)
	default:
		return cli.Failed(cli.ExitFailed, "cannot read the release: %w", err)
	}
}
