package node

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// ReplaceFile replaces a file whole: a reader sees the old or the new contents. It does not
// sync them to disk.
func ReplaceFile(path string, contents []byte, mode fs.FileMode) error {
	// The temporary file is in the same folder, because a rename can't cross file systems.
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}

	_, err = file.Write(contents)

	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}

	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}

	return err
}

// makePrivate makes a folder that only the node's account may enter. One that others may
// enter is taken away from them.
func makePrivate(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}

	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a folder can't be entered without x
		log.Warn("other accounts may enter the data directory", "path", dir, "err", err)
		return nil
	}

	log.Info("took the data directory away from other accounts", "path", dir, "mode", "0700")

	return nil
}
