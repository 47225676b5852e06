package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// ReplaceFile replaces a file whole: a reader sees the old or the new contents. It does not
// sync them to disk.
func ReplaceFile(path string, contents []byte, mode fs.FileMode) error {
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
