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
	mesh, err := bench.meshWith(ctx, "sync", 3, 1, true)
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

// siblings measures the first sync of a node from other nodes of its own domain, while
// the origin is away.
func siblings(ctx context.Context, bench *bench) error {
	mesh, err := bench.meshWith(ctx, "siblings", 2, 3, true)
	if err != nil {
		return err
	}

	origin, domain := mesh[0], mesh[1]
	defer origin.close()
	defer domain.close()

	const synced = 2 // of its nodes, which is enough of them for it to work
	for i := range synced {
		if err := domain.serve(i); err != nil {
			return err
		}
	}

	for i := range synced {
		if err := domain.ready(ctx, i); err != nil {
			return err
		}

		if err := domain.shows(ctx, i, origin, bench.size, new(int64)); err != nil {
			return err
		}
	}

	origin.close()

	if err := domain.settled(ctx, bench.size); err != nil {
		return err
	}

	return bench.arrival(ctx, arrival{what: " from siblings", from: domain, to: domain, at: synced, origin: origin})
}

// meshWith lays out domains, or takes those that were kept, of which the first has been
// started and has b.size registrations. If fresh, the others forget its records of an earlier run.
func (b *bench) meshWith(ctx context.Context, name string, domains, nodes int, fresh bool) ([]*domain, error) {
	dir := filepath.Join(b.dir, name)
	if b.keep != "" {
		dir = filepath.Join(b.keep, name)
	}

	mesh, err := b.layOutMesh(ctx, dir, domains, nodes)
	if err != nil {
		return nil, err
	}

	for _, d := range mesh[1:] {
		for _, n := range d.Nodes {
			if fresh {
				err = errors.Join(err, os.RemoveAll(filepath.Join(n.Data, "federation")))
			}
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
	at       int // the node of to
	origin   *domain
}

func (b *bench) arrival(ctx context.Context, a arrival) error {
	givers := slices.DeleteFunc(slices.Clone(a.from.nodes), func(p *process) bool { return p == nil })

	for _, giver := range givers {
		if err := giver.idle(ctx); err != nil {
			return err
		}
	}

	before, err := cpuOf(givers)
	if err != nil {
		return err
	}

	if err := os.RemoveAll(filepath.Join(a.to.Nodes[a.at].Data, "federation")); err != nil {
		return err
	}

	began := time.Now()

	if err := a.to.serve(a.at); err != nil {
		return err
	}

	if err := a.to.ready(ctx, a.at); err != nil {
		return err
	}

	most := int64(0)
	if err := a.to.shows(ctx, a.at, a.origin, b.size, &most); err != nil {
		return err
	}

	took := time.Since(began)

	newcomer := a.to.nodes[a.at]
	of, err1 := cpuOf(givers)
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
		Note: fmt.Sprintf("%.1f s of the givers' CPU and %.1f s of the newcomer's, which has %s MB and had %s of "+
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

// shows waits until a node of d has all announcements of origin and shows the last
// registration. Most is the maximum of the node's own memory meanwhile.
func (d *domain) shows(ctx context.Context, at int, origin *domain, size int, most *int64) error {
	ops, err := d.clientAs("/ops/operator")
	if err != nil {
		return err
	}
	defer ops.CloseIdleConnections()
	operator := apiclient.NewDirect(d.Nodes[at].API, ops)
	reader := apiclient.NewDirect(d.Nodes[at].API, d.client)

	return until(ctx, d.TrustDomain+" has "+origin.TrustDomain+"'s announcements", d.nodes[at], func() error {
		now, err := d.nodes[at].memory(unmapped)
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
