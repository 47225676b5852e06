package release

import (
	"errors"
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

Compare the key's fingerprint with the published one. Without this program:

  openssl pkeyutl -verify -rawin -pubin -inkey KEY -in SHA256SUMS -sigfile SHA256SUMS.sig
  sha256sum --check SHA256SUMS`

// verdict is the result as -o json prints it.
type verdict struct {
	Key   string   `json:"key"`   // fingerprint
	Files []string `json:"files"` // verified, in order
}

// Command returns the command that verifies a release.
func Command(session connect.Session) *cobra.Command {
	var keyFile string

	cmd := &cobra.Command{
		Use:   "verify-release DIRECTORY|FILE --key FILE",
		Short: "Verify a downloaded release by its signature",
		Long:  help,
		Args:  cli.Args("DIRECTORY|FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if keyFile == "" {
				return cli.Usage("--key is required: the public key that signs releases")
			}

			key, err := ReadKey(keyFile)
			if err != nil {
				return cli.Failed(cli.ExitKey, "cannot read the key: %w", err)
			}

			files, err := verify(key, args[0])
			if err != nil {
				return err
			}

			t := cli.Table{Head: []string{"FILE", "STATE"}}
			for _, name := range files {
				t.Add(name, "verified")
			}

			result := verdict{Key: key.Fingerprint(), Files: files}

			if err := session.PrintValue(result, "", t); err != nil {
				return err
			}

			session.Note("Signed by the key with SHA-256 fingerprint %s.", result.Key)

			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "`FILE` with the public key of releases (PEM, Ed25519)")

	return cmd
}

// verify verifies a directory or one file and returns the names of the files verified.
func verify(key Key, path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, missing(err)
	}

	dir, only := path, ""
	if !info.IsDir() {
		dir, only = filepath.Split(path)
	}

	sums, err := key.Open(dir)
	if err != nil {
		return nil, missing(err)
	}

	names := sums.Names()
	if only != "" {
		names = []string{only}
	}

	for _, name := range names {
		if err := sums.Verify(dir, name); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil, missing(err)
			}

			return nil, cli.Failed(cli.ExitFormat, "%.64q is not verified: %w", name, err)
		}
	}

	return names, nil
}

// missing returns the failure of a release that can't be read or isn't signed by the key.
func missing(err error) error {
	switch {
	case errors.Is(err, ErrSignature), errors.Is(err, ErrSums):
		return cli.Failed(cli.ExitFormat, "the release is not verified: %w", err).
			WithHint("Compare the fingerprint of the key with the published one, and download the release again.")
	case errors.Is(err, fs.ErrNotExist):
		return cli.Failed(cli.ExitNotFound, "the release is not complete: %w", err)
	default:
		return cli.Failed(cli.ExitFailed, "cannot read the release: %w", err)
	}
}
