// Package durable writes files that survive a loss of power.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces a file whole. The contents are on disk when it returns.
func WriteFile(file string, data []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(file)

	// The temporary file is in the same directory, because a rename is atomic within one file system only.
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()

	_, err = f.Write(data)

	// Without the sync, the rename could reach the disk before the data, and a power failure leave an empty file.
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}

	return Rename(f.Name(), file)
}

// Rename gives a file another name in its directory, on disk when it returns.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}

	// The rename survives a power failure only once the directory is synced as well.
	d, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}

	return errors.Join(d.Sync(), d.Close())
}
