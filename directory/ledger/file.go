package ledger

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces a small file beside a log whole. It is on disk when WriteFile returns.
func WriteFile(path string, data []byte) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}

	_, err = file.Write(data)

	// Without the sync, a loss of power after the rename could leave an empty file.
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}

	if err = os.Rename(path+".new", path); err != nil {
		return err
	}

	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}

	return errors.Join(dir.Sync(), dir.Close())
}
