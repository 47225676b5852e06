package peering

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/roster-mesh/roster/directory"
)

func (a *Agreements) file(peering directory.Peering) string {
	return filepath.Join(a.cfg.Dir, peering.Domain.Name()+".json")
}

// keep puts a peer's bundle in force and writes the agreement to disk, so that a node
// that restarts knows its peers before it has read its domain's log. The bundle of a
// pending peer is not in force yet. It reports whether the agreement has ended with this.
func (a *Agreements) keep(peering directory.Peering) (left bool) {
	name := peering.Domain.Name()
	if peering.State == directory.PeeringTerminated || peering.State == directory.PeeringPending {
		a.cfg.Bundles.Remove(peering.Domain)
		a.forget(peering.Domain)

		err := os.Remove(a.file(peering))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.cfg.Logger.Error("a former peer can't be removed from disk", "peer", name, "err", err)
		}

		// Without a file the agreement had ended before, and its farewell isn't repeated.
		return err == nil && peering.State == directory.PeeringTerminated
	}

	// The bundle before stays in force and on disk, so that a restart does not put an unconfirmed one in force.
	peering.Bundle = a.confirmed(peering)

	if err := a.cfg.Bundles.Set(peering.Domain, peering.Bundle); err != nil {
		a.cfg.Logger.Error("a peer's bundle is not usable; the last good one stays", "peer", name, "err", err)
		return false
	}

	a.note(peering)

	if err := a.write(peering); err != nil {
		a.cfg.Logger.Error("a peer can't be kept on disk", "peer", name, "err", err)
	}

	return false
}

// write replaces the file of an agreement as a whole.
func (a *Agreements) write(peering directory.Peering) error {
	data, err := json.Marshal(peering)
	if err != nil {
		return err
	}

	return a.cfg.ReplaceFile(a.file(peering), data, 0o600)
}

// load puts the bundles in force that keep wrote.
func (a *Agreements) load() error {
	if err := os.MkdirAll(a.cfg.Dir, 0o700); err != nil {
		return err
	}

	peerings, err := ReadFiles(a.cfg.Dir)
	if err != nil {
		return err
	}

	for _, peering := range peerings {
		if err := a.cfg.Bundles.Set(peering.Domain, peering.Bundle); err != nil {
			return fmt.Errorf("%s: %w", a.file(peering), err)
		}

		a.note(peering)
	}

	a.last = peerings

	return nil
}

// ReadFiles reads the agreements that a node keeps on disk. Those before a damaged file are
// returned with the error.
func ReadFiles(dir string) (peerings []directory.Peering, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return peerings, err
		}

		var peering directory.Peering

		err = json.Unmarshal(data, &peering)
		if name := peering.Domain.Name(); err == nil && name+".json" != filepath.Base(file) {
			err = fmt.Errorf("it has the agreement with %q", name)
		}

		if err != nil {
			return peerings, fmt.Errorf("%s is damaged; remove it: the node reads it from the domain's log again: %w",
				file, err)
		}

		peerings = append(peerings, peering)
	}

	return peerings, nil
}
