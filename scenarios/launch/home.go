package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Isolate gives this process and those that it starts an empty folder for settings, and none
// of the variables that select a directory or an identity. Go's and git's own settings stay.
// remove deletes the folder.
func Isolate() (remove func(), err error) {
	own, err := os.UserConfigDir()
	if err != nil {
		own = "" // there is no home, and so no settings to keep
	}

	dir, err := os.MkdirTemp("", "roster-home-")
	if err != nil {
		return nil, err
	}

	errs := []error{os.Setenv("XDG_CONFIG_HOME", dir)}

	if own != "" && os.Getenv("GOENV") == "" {
		errs = append(errs, os.Setenv("GOENV", filepath.Join(own, "go", "env")))
	}

	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "ROSTER_") || name == "SPIFFE_ENDPOINT_SOCKET" {
			errs = append(errs, os.Unsetenv(name))
		}
	}

	return func() { _ = os.RemoveAll(dir) }, errors.Join(errs...)
}
