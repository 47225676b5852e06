package domain

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/node"
)

// maxKeyFile bounds a file of recipients or identities, in bytes.
const maxKeyFile = 1 << 20

const encryptionHelp = `
The file is encrypted, because it contains the salts that hide withheld members. Each
--recipient is an age public key (age1..., from "roster snapshot keygen") or @FILE with
several. Keep the identity (private key) away from the domain's nodes; restore and inspect
read it from --identity. With --plaintext the file is not encrypted, and everyone who can read
it has these secrets.`

// encryption is the flags for a backup's recipients.
type encryption struct {
	recipients []string // age public keys, or @FILE
	plaintext  bool
}

func (e *encryption) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&e.recipients, "recipient", nil,
		"encrypt to this age public `KEY`, or to those in @FILE; may be repeated")
	cmd.Flags().BoolVar(&e.plaintext, "plaintext", false, "don't encrypt the file")
}

// parse returns the recipients; nil for plaintext.
func (e *encryption) parse() ([]age.Recipient, error) {
	switch {
	case e.plaintext && len(e.recipients) > 0:
		return nil, cli.Usage("--plaintext and --recipient exclude each other")
	case e.plaintext:
		return nil, nil
	case len(e.recipients) == 0:
		return nil, cli.Usage("missing --recipient KEY or --plaintext").
			WithHint("A backup contains secrets: encrypt it to an age public key (roster snapshot keygen FILE makes " +
				"one), or give --plaintext.")
	}

	var all []age.Recipient
	for _, text := range e.recipients {
		parsed, err := parseRecipients(text)
		if err != nil {
			return nil, err
		}

		all = append(all, parsed...)
	}

	return all, nil
}

// parseRecipients returns the recipients of one --recipient.
func parseRecipients(text string) ([]age.Recipient, error) {
	in := io.Reader(strings.NewReader(text))
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		content, err := readKeyFile(name)
		if err != nil {
			return nil, err
		}

		in = bytes.NewReader(content)
	}

	// The error of age never quotes the text, which could be a private key.
	parsed, err := age.ParseRecipients(in)
	if err != nil {
		return nil, cli.Usage("--recipient must be an age public key, or @FILE with public keys: %w", err).
			WithHint("A public key begins with age1; age-keygen -y FILE prints that of an identity (private key).")
	}

	return parsed, nil
}

// readKeyFile reads a file of age recipients or identities.
func readKeyFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot read the key file: %w", err)
	}

	defer func() { _ = file.Close() }()

	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot read the key file: %w", err)
	}

	if len(content) > maxKeyFile {
		return nil, cli.Failed(cli.ExitFailed, "key file %s is larger than %d bytes", name, maxKeyFile)
	}

	return content, nil
}

// readIdentities reads the identities that decrypt the backup at path.
func readIdentities(path, identityFile string) ([]age.Identity, error) {
	if identityFile == "" {
		return nil, cli.Usage("backup %s is encrypted; add --identity FILE", path).
			WithHint("The file must contain the age identity (private key) of a recipient.")
	}

	content, err := readKeyFile(identityFile)
	if err != nil {
		return nil, err
	}

	// The error of age never quotes the key.
	identities, err := age.ParseIdentities(bytes.NewReader(content))
	if err != nil {
		return nil, cli.Failed(cli.ExitKey, "%s contains no unencrypted age identity: %w", identityFile, err)
	}

	return identities, nil
}

// writeBackup makes a backup with write and writes it to file, encrypted if there are
// recipients. It inspects the backup on the way and returns its description. The unencrypted
// backup is never on this machine's disk.
func writeBackup(file io.Writer, recipients []age.Recipient, write func(io.Writer) error) (*node.Backup, error) {
	encrypted := io.WriteCloser(nopCloser{file})
	if len(recipients) > 0 {
		var err error
		if encrypted, err = age.Encrypt(file, recipients...); err != nil {
			return nil, fmt.Errorf("encrypt the backup: %w", err)
		}
	}

	type result struct {
		info *node.Backup
		err  error
	}

	// The backup is inspected on its way, because its plain text is never on the disk.
	out, in := io.Pipe()
	inspected := make(chan result, 1)
	go func() {
		info, err := node.InspectBackup(out)

		// Without a reader, the writer would wait for ever after a failed inspection.
		_, _ = io.Copy(io.Discard, out)
		inspected <- result{info, err}
	}()

	err := write(io.MultiWriter(encrypted, in))

	// The end of the pipe ends the inspection; an error must not look like the end of the backup.
	_ = in.CloseWithError(err)
	found := <-inspected

	if err != nil {
		return nil, err
	}

	if found.err != nil {
		return nil, fmt.Errorf("the received backup is incomplete: %w", found.err)
	}

	// Only Close writes the last part, without which the file can't be decrypted.
	if err := encrypted.Close(); err != nil {
		return nil, fmt.Errorf("encrypt the backup: %w", err)
	}

	return found.info, nil
}

// nopCloser writes an unencrypted backup. The caller closes the file.
type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }
