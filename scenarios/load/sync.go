package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roster-mesh/roster/api"
)

// firstSync measures how long a domain that comes new to another's registrations
// takes from its start until it shows them all: the pages, the records, the disk
// and the index, with both ends on this machine.
func firstSync(ctx context.Context, b *bench) error {
	mesh, err := b.layOutMesh(ctx, filepath.Join(b.dir, "sync"), 2, 1)
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
	if _, err := origin.fill(ctx, "s", 0, size, 604800); err != nil {
		return err
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
	both, err := cpuOf([]*process{origin.nodes[0], newcomer.nodes[0]})
	if err != nil {
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
		Note: fmt.Sprintf("%.1f s of CPU, both ends; the newcomer has %s MB and had %s of its own at most, %s with its store's file",
			(both - before).Seconds(), figure(float64(now)/1e6), figure(float64(most)/1e6), figure(float64(all)/1e6))})
	return nil
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
