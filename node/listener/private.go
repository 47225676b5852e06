package listener

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// ListenPrivate listens on a Unix socket with mode 0600. It is made in a folder that others
// can't enter, so that it has that mode before it has its name. One that a killed process
// has left is replaced. Closing the listener leaves the file.
func ListenPrivate(path string) (ln net.Listener, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".sock-")
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	private := filepath.Join(dir, "s")

	// It forgets the file by this name, which the file doesn't have when it is closed.
	socket, err := net.Listen("unix", private)
	if err != nil {
		return nil, err
	}

	if err := errors.Join(os.Chmod(private, 0o600), os.Rename(private, path)); err != nil {
		return nil, errors.Join(err, socket.Close())
	}

	return socket, nil
}
