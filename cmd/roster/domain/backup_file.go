package domain

import (
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/node"
)

// ageHeader begins an encrypted file.
const ageHeader = "age-encryption.org/v1\n"

// A file is an open backup file, encrypted or not.
type file struct {
	path      string
	disk      *os.File
	plain     io.ReaderAt // the decrypted backup
	size      int64       // of plain
	encrypted bool
}

// openFile opens a backup file and decrypts it if necessary. The caller closes it.
func openFile(path, identityFile string) (*file, error) {
	disk, err := os.Open(path)
	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot read the backup: %w", err)
	}

	f := &file{path: path, disk: disk}
	if err := f.decrypt(identityFile); err != nil {
		_ = disk.Close()
		return nil, err
	}

	return f, nil
}

// decrypt sets the decrypted backup, which is the file itself unless that is encrypted.
func (f *file) decrypt(identityFile string) error {
	info, err := f.disk.Stat()
	if err != nil {
		return err
	}

	f.plain = f.disk
	f.size = info.Size()

	// The header decides, because neither name nor flags say whether the file is encrypted.
	header := make([]byte, len(ageHeader))

	n, err := f.disk.ReadAt(header, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	if string(header[:n]) != ageHeader {
		return nil
	}

	f.encrypted = true

	identities, err := readIdentities(f.path, identityFile)
	if err != nil {
		return err
	}

	f.plain, f.size, err = age.DecryptReaderAt(f.disk, info.Size(), identities...)

	// Only this error means another key. Any other is a fault of the file.
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return cli.Failed(cli.ExitKey, "no identity in %s decrypts %s", identityFile, f.path).
			WithHint("The backup is encrypted to other recipients, or its header is damaged.")
	}

	if err != nil {
		return f.damaged(err)
	}

	return nil
}

// inspect reads the whole file and returns a description of the backup. Each part of an
// encrypted file is authenticated, so the backup is used only after all of it was read.
func (f *file) inspect() (*node.Backup, error) {
	info, err := node.InspectBackup(f.reader())
	if errors.Is(err, node.ErrBackup) {
		return nil, cli.Failed(cli.ExitFormat, "%w", err).
			WithHint("%s was not written by roster snapshot save, or it is damaged.", f.path)
	}

	if err != nil {
		return nil, f.explain(err)
	}

	return info, nil
}

// explain returns the failure for an error that may come from reading the file.
func (f *file) explain(err error) error {
	if errors.Is(err, errRead) && f.encrypted {
		return f.damaged(err)
	}

	return err
}

func (f *file) damaged(err error) error {
	return cli.Failed(cli.ExitFormat, "encrypted backup %s is truncated or damaged: %w", f.path, err)
}

// reader returns the decrypted backup from its beginning. Its errors wrap errRead.
func (f *file) reader() io.Reader {
	return markedReader{io.NewSectionReader(f.plain, 0, f.size)}
}

func (f *file) close() { _ = f.disk.Close() }

// errRead distinguishes errors of reading the file from other errors while a backup is
// sent.
var errRead = errors.New("cannot read the backup")

type markedReader struct{ r io.Reader }

// Read implements io.Reader.
func (m markedReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errRead, err)
	}

	return n, err
}
