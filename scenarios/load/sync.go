package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// firstSync measures the time from the start of a new node until it shows all
// registrations of a domain: pages, records, disk and index, with both ends on this
// machine. The node pulls them from their origin, and from a relay while the origin is
// away.
func firstSync(ctx context.Context, bench *bench) error {
	mesh, err := bench.meshWith(ctx, "sync", 3, true)
	if err != nil {
		return err
	}

	origin := mesh[0]
	relay := mesh[1]

	newcomer := mesh[2]
	for _, d := range mesh {
		defer d.close()
	}

	if err := bench.arrival(ctx, arrival{from: origin, to: relay, origin: origin}); err != nil {
		return err
	}

	origin.close()

	if err := relay.settled(ctx, bench.size); err != nil {
		return err
	}

	return bench.arrival(ctx, arrival{what: " from a relay", from: relay, to: newcomer, origin: origin})
}

// meshWith lays out domains, or takes those that were kept, of which the first has been
// started and has b.size registrations. If fresh, the others forget its records of an earlier run.
func (b *bench) meshWith(ctx context.Context, name string, domains int, fresh bool) ([]*domain, error) {
	dir := filepath.Join(b.dir, name)
	if b.keep != "" {
		dir = filepath.Join(b.keep, name)
	}

	mesh, err := b.layOutMesh(ctx, dir, domains, 1)
	if err != nil {
		return nil, err
	}

	for _, d := range mesh[1:] {
		if fresh {
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.Nodes[0].Data, "federation")))
		}
	}

	if err != nil {
		return nil, err
	}

	origin := mesh[0]

	err = origin.start(ctx)
	if err == nil {
		err = origin.fillUpTo(ctx, filepath.Join(dir, "filled"), b.size)
	}

	if err == nil {
		err = origin.settled(ctx, b.size)
	}

	if err != nil {
		origin.close()
		return nil, err
	}

	return mesh, nil
}

// An arrival is that of a node of a domain at all that an origin announced.
type arrival struct {
	what     string // of the row
	from, to *domain
	origin   *domain
}

func (b *bench) arrival(ctx context.Context, a arrival) error {
	giver := a.from.nodes[0]
	if err := giver.idle(ctx); err != nil {
		return err
	}

	before, err := giver.cpu()
	if err != nil {
		return err
	}

	if err := os.RemoveAll(filepath.Join(a.to.Nodes[0].Data, "federation")); err != nil {
		return err
	}

	began := time.Now()

	if err := a.to.serve(0); err != nil {
		return err
	}

	if err := a.to.ready(ctx, 0); err != nil {
		return err
	}

	most := int64(0)
	if err := a.to.shows(ctx, a.origin, b.size, &most); err != nil {
		return err
	}

	took := time.Since(began)

	newcomer := a.to.nodes[0]
	of, err1 := giver.cpu()
	by, err2 := newcomer.cpu()
	all, err3 := newcomer.memory(resident)

	now, err4 := newcomer.memory(unmapped)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}

	limit := 20 * float64(b.size) / 100_000
	if b.size >= 1_000_000 {
		limit = 60
	}

	b.report.add(row{Section: "sync", What: fmt.Sprintf("first sync of %s records%s", count(b.size), a.what),
		Value: took.Seconds(), Unit: "s", Bar: atMost(limit),
		Note: fmt.Sprintf("%.1f s of the giver's CPU and %.1f s of the newcomer's, which has %s MB and had %s of "+
			"its own at most, %s with its store's file",
			(of - before).Seconds(), by.Seconds(), figure(float64(now)/1e6), figure(float64(most)/1e6),
			figure(float64(all)/1e6))})

	return nil
}

// fillUpTo registers up to size registrations, less those that a run before has left
// according to the file.
func (d *domain) fillUpTo(ctx context.Context, file string, size int) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("0"), nil
	}

	if err != nil {
		return err
	}

	present, err := strconv.Atoi(string(data))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	case present > size:
		return fmt.Errorf("%s: there are %d registrations and %d are to be measured", file, present, size)
	case present == size:
		return nil
	}

	if _, err := d.fill(ctx, "s", present, size, 604800); err != nil {
		return err
	}

	return os.WriteFile(file, []byte(strconv.Itoa(size)), 0o600)
}

// shows waits until the first node of d has all announcements of origin and shows the last
// registration. Most is the maximum of the node's own memory meanwhile.
func (d *domain) shows(ctx context.Context, origin *domain, size int, most *int64) error {
	ops, err := d.clientAs("/ops/operator")
	if err != nil {
		return err
	}
	defer ops.CloseIdleConnections()
	operator := apiclient.NewDirect(d.Nodes[0].API, ops)
	reader := apiclient.NewDirect(d.Nodes[0].API, d.client)

	return until(ctx, d.TrustDomain+" has "+origin.TrustDomain+"'s announcements", d.nodes[0], func() error {
		now, err := d.nodes[0].memory(unmapped)
		*most = max(*most, now)

		if err != nil {
			return err
		}

		peers, _, err := operator.Operator().Peers(ctx)
		if err != nil {
			return err
		}

		of := slices.IndexFunc(peers, func(p apiclient.Peer) bool { return p.Domain == origin.TrustDomain })
		if of < 0 || peers[of].LagRevisions > 0 || peers[of].LastHeard.IsZero() {
			return fmt.Errorf("it is not there yet: %v", peers)
		}

		page, err := reader.Lookup(ctx, apiclient.LookupOptions{Agent: name("s", size-1), Origin: origin.TrustDomain})
		if err == nil && len(page.Agents) != 1 {
			err = errors.New("it does not show the last registration")
		}

		return err
	})
}
