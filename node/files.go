package node

import (
	"log/slog"
	"os"
)

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
