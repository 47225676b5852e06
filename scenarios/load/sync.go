package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roster-mesh/roster/api"
)

// firstSync measures how long a domain that comes new to another's registrations
// takes from its start until it shows them all: the pages, the records, the disk
// and the index, with both ends on this machine.
func firstSync(ctx context.Context, b *bench) error {
	dir := filepath.Join(b.dir, "sync")
	if b.keep != "" {
		dir = filepath.Join(b.keep, "sync")
	}
	mesh, err := b.layOutMesh(ctx, dir, 2, 1)
	if err != nil {
		return err
	}
	origin, newcomer := mesh[0], mesh[1]
	defer origin.close()
	defer newcomer.close()
	if err := origin.start(ctx); err != nil {
		return err
	}
	size := b.size
	if err := origin.fillUpTo(ctx, filepath.Join(dir, "filled"), size); err != nil {
		return err
	}
	if err := origin.settled(ctx, size); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(newcomer.Nodes[0].Data, "federation")); err != nil {
		return err // what it was told in a run before
	}
	before, err := origin.nodes[0].cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := newcomer.start(ctx); err != nil {
		return err
	}
	var watching errgroup.Group
	if b.profiles != "" {
		watching.Go(func() error { return newcomer.profile(ctx, "sync-newcomer", b.turn) })
		watching.Go(func() error { return origin.profile(ctx, "sync-origin", b.turn) })
	}
	most := int64(0)
	if err := newcomer.shows(ctx, origin, size, &most); err != nil {
		return err
	}
	took := time.Since(began)
	if err := watching.Wait(); err != nil {
		return err
	}
	of, err1 := origin.nodes[0].cpu()
	by, err2 := newcomer.nodes[0].cpu()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	all, _, err := newcomer.nodes[0].resident()
	if err != nil {
		return err
	}
	now, err := newcomer.nodes[0].own()
	if err != nil {
		return err
	}
	limit := 20 * float64(size) / 100_000
	if size >= 1_000_000 {
		limit = 240
	}
	b.report.add(row{Section: "sync", What: fmt.Sprintf("first sync of %s records", count(size)), Value: took.Seconds(), Unit: "s", Bar: atMost(limit),
		Note: fmt.Sprintf("%.1f s of the origin's CPU and %.1f s of the newcomer's, which has %s MB and had %s of its own at most, %s with its store's file",
			(of - before).Seconds(), by.Seconds(), figure(float64(now)/1e6), figure(float64(most)/1e6), figure(float64(all)/1e6))})
	return nil
}

// fillUpTo registers what is missing for size registrations, as far as the file says
// which a run before may have left.
func (d *domain) fillUpTo(ctx context.Context, file string, size int) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = []byte("0"), nil
	}
	if err != nil {
		return err
	}
	had, err := strconv.Atoi(string(b))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	case had > size:
		return fmt.Errorf("%s: there are %d registrations and %d are to be measured", file, had, size)
	}
	if _, err := d.fill(ctx, "s", had, size, 604800); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(size)), 0o600)
}

// shows waits until a node of d has all that origin announced, and shows the last
// of what was registered there. Most is the highest of the node's own memory meanwhile.
func (d *domain) shows(ctx context.Context, origin *domain, size int, most *int64) error {
	ops, err := d.clientAs("/ops/operator")
	if err != nil {
		return err
	}
	defer ops.CloseIdleConnections()
	operator, reader := api.NewClient(d.Nodes[0].API, ops), api.NewClient(d.Nodes[0].API, d.client)
	return until(ctx, d.TrustDomain+" has what "+origin.TrustDomain+" announced", d.nodes[0], func() error {
		now, err := d.nodes[0].own()
		*most = max(*most, now)
		if err != nil {
			return err
		}
		peers, _, err := operator.Peers(ctx)
		if err != nil {
			return err
		}
		if len(peers) != 1 || peers[0].LagRevisions > 0 || peers[0].LastHeard.IsZero() {
			return fmt.Errorf("it is not there yet: %v", peers)
		}
		page, err := reader.Lookup(ctx, api.LookupOptions{Agent: name("s", size-1), Origin: origin.TrustDomain})
		if err == nil && len(page.Agents) != 1 {
			err = errors.New("it does not show the last registration")
		}
		return err
	})
}
