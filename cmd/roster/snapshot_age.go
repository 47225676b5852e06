package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/node"
)

// A backup holds the salts that hide withheld members of records, so its file is
// encrypted by age (https://age-encryption.org) unless its maker says otherwise. What
// travels between this program and a directory is in clear, inside mutual TLS.
const (
	ageMark     = "age-encryption.org/v1\n" // how an encrypted file begins
	maxKeyFile  = 1 << 20                   // of recipients or identities, in bytes
	sealingHelp = `
The file is encrypted to each --recipient, an age public key (age1…, made by age-keygen)
or @FILE that lists several, since it holds the salts that hide withheld members. Keep
the identity (the private key) away from the domain's nodes; restore and inspect take
it by --identity. With --plaintext the file is not encrypted: whoever can read it then
has those secrets.`
)

// sealing says to whom a backup is encrypted.
type sealing struct {
	recipients []string // age public keys, or @FILE
	plaintext  bool
}

func (s *sealing) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&s.recipients, "recipient", nil,
		"encrypt to this age public key, or to those listed in @FILE; repeatable")
	c.Flags().BoolVar(&s.plaintext, "plaintext", false, "do not encrypt the file")
}

// parse returns the recipients, none of a file in clear.
func (s *sealing) parse() ([]age.Recipient, error) {
	switch {
	case s.plaintext && len(s.recipients) > 0:
		return nil, usage("--plaintext and --recipient exclude each other")
	case s.plaintext:
		return nil, nil
	case len(s.recipients) == 0:
		return nil, usage("the backup has no recipient").
			because("It holds secrets: encrypt it by --recipient age1… (age-keygen makes a key), or give --plaintext.")
	}

	var all []age.Recipient
	for _, text := range s.recipients {
		in := io.Reader(strings.NewReader(text))
		if name, isFile := strings.CutPrefix(text, "@"); isFile {
			content, err := readKeyFile(name)
			if err != nil {
				return nil, err
			}
			in = bytes.NewReader(content)
		}
		parsed, err := age.ParseRecipients(in)
		if err != nil { // which never quotes what could be a private key
			return nil, usage("--recipient is not an age public key, nor @FILE of some: %w", err).
				because("A public key begins with age1; age-keygen -y FILE prints that of an identity (private key).")
		}
		all = append(all, parsed...)
	}

	return all, nil
}

// readKeyFile reads a file of age recipients or identities.
func readKeyFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, failed(exitFailed, "the key file can't be read: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, failed(exitFailed, "the key file can't be read: %w", err)
	}
	if len(content) > maxKeyFile {
		return nil, failed(exitFailed, "the key file %s has over %d bytes", name, maxKeyFile)
	}

	return content, nil
}

// writeBackup has write make a backup and writes it to file, encrypted if there are
// recipients. It returns what is in the backup, which was read on the way: in clear
// the backup is never on this machine's disk.
func writeBackup(file io.Writer, recipients []age.Recipient, write func(io.Writer) error) (*node.Backup, error) {
	sealed := io.WriteCloser(clearFile{file})
	if len(recipients) > 0 {
		var err error
		if sealed, err = age.Encrypt(file, recipients...); err != nil {
			return nil, fmt.Errorf("encrypt the backup: %w", err)
		}
	}

	type result struct {
		info *node.Backup
		err  error
	}
	out, in := io.Pipe()
	inspected := make(chan result, 1)
	go func() {
		info, err := node.InspectBackup(out)
		_, _ = io.Copy(io.Discard, out) // so that the writer doesn't wait for a reader that gave up
		inspected <- result{info, err}
	}()

	err := write(io.MultiWriter(sealed, in))
	_ = in.CloseWithError(err)
	found := <-inspected
	if err != nil {
		return nil, err
	}
	if found.err != nil {
		return nil, fmt.Errorf("what arrived is not a whole backup: %w", found.err)
	}
	if err := sealed.Close(); err != nil {
		return nil, fmt.Errorf("encrypt the backup: %w", err)
	}

	return found.info, nil
}

// clearFile is what takes a backup in clear.
type clearFile struct{ io.Writer }

// Close implements io.Closer; who opened the file closes it.
func (clearFile) Close() error { return nil }

// An openedBackup is a backup file that can be read, whether it is encrypted or not.
type openedBackup struct {
	path      string
	file      *os.File
	plain     io.ReaderAt
	size      int64 // of plain
	encrypted bool
}

// openBackup opens a backup file, by the identities of a file if it is encrypted. The
// caller closes it.
func openBackup(path, identityFile string) (*openedBackup, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := &openedBackup{path: path, file: file}
	if err := b.open(identityFile); err != nil {
		_ = file.Close()
		return nil, err
	}

	return b, nil
}

func (b *openedBackup) open(identityFile string) error {
	info, err := b.file.Stat()
	if err != nil {
		return err
	}
	b.plain = b.file
	b.size = info.Size()
	mark := make([]byte, len(ageMark))
	if n, err := b.file.ReadAt(mark, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	} else if string(mark[:n]) != ageMark {
		return nil
	}

	b.encrypted = true
	identities, err := readIdentities(b.path, identityFile)
	if err != nil {
		return err
	}
	b.plain, b.size, err = age.DecryptReaderAt(b.file, info.Size(), identities...)
	var noMatch *age.NoIdentityMatchError
	if errors.As(err, &noMatch) {
		return failed(exitKey, "no identity in %s opens %s", identityFile, b.path).
			because("The backup was encrypted to other recipients, or its header was damaged.")
	}
	if err != nil {
		return b.damaged(err)
	}

	return nil
}

func readIdentities(path, identityFile string) ([]age.Identity, error) {
	if identityFile == "" {
		return nil, usage("the backup %s is encrypted", path).because("Give the age identity (private key) of a recipient by --identity FILE.")
	}
	content, err := readKeyFile(identityFile)
	if err != nil {
		return nil, err
	}
	identities, err := age.ParseIdentities(bytes.NewReader(content))
	if err != nil { // which never quotes the key
		return nil, failed(exitKey, "%s holds no age identity in clear: %w", identityFile, err)
	}

	return identities, nil
}

// inspect reads the whole file and returns what is in it. Each part of an encrypted
// file is authenticated, so nothing of it is used before all of it was found whole.
func (b *openedBackup) inspect() (*node.Backup, error) {
	info, err := node.InspectBackup(b.reader())
	if errors.Is(err, node.ErrBackup) {
		return nil, failed(exitFormat, "%w", err).
			because("%s was not written by roster snapshot save, or was damaged since.", b.path)
	}
	if err != nil {
		return nil, b.explain(err)
	}

	return info, nil
}

// explain returns the failure of a command that ended with err, which says so if it
// was the file that couldn't be read.
func (b *openedBackup) explain(err error) error {
	if errors.Is(err, errUnreadable) && b.encrypted {
		return b.damaged(err)
	}

	return err
}

func (b *openedBackup) damaged(err error) error {
	return failed(exitFormat, "the encrypted backup %s is cut off or damaged: %w", b.path, err)
}

// reader returns the backup in clear, from its beginning. Its errors are errUnreadable.
func (b *openedBackup) reader() io.Reader {
	return markedReader{io.NewSectionReader(b.plain, 0, b.size)}
}

// errUnreadable tells what a file's reader couldn't from what else can go wrong while
// a backup is sent.
var errUnreadable = errors.New("it can't be read")

type markedReader struct{ r io.Reader }

// Read implements io.Reader.
func (m markedReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errUnreadable, err)
	}

	return n, err
}

func (b *openedBackup) close() { _ = b.file.Close() }
