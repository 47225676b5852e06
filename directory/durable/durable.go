// Package durable writes files that survive a loss of power.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// WriteFile replaces a file whole. The contents are on disk when it returns.
func WriteFile(file string, data []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(file)

	// The temporary file is in the same directory, because a rename is atomic within one file system only.
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+temporary+"*")
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

// temporary is between the name of a file and digits in the name of its temporary file.
const temporary = ".tmp-"

// underWay is how old a temporary file is at least that no WriteFile is about to rename.
const underWay = time.Minute

// Clean removes the temporary files under a directory that a crash left behind.
func Clean(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}

		at := strings.LastIndex(entry.Name(), temporary)
		if at < 1 || entry.Name()[0] != '.' || strings.Trim(entry.Name()[at+len(temporary):], "0123456789") != "" {
			return nil
		}

		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < underWay {
			return err
		}

		return root.Remove(path)
	})
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
