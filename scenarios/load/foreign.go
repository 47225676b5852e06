package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// pulledAgain bounds the bytes of a peer's answers after a restart: heads and key documents.
const pulledAgain = 64 << 10

// foreign measures how long a node that holds a peer's registrations is away: from its start
// until it is ready and shows the last of them. The records must come from its disk.
func foreign(ctx context.Context, bench *bench) error {
	mesh, err := bench.held(ctx)
	if err != nil {
		return err
	}

	origin, holder := mesh[0], mesh[1]
	defer origin.close()
	defer holder.close()

	for _, way := range []struct {
		what string
		stop func(*process)
	}{{"stopped in good order", (*process).end}, {"killed", (*process).kill}} {
		way.stop(holder.nodes[0])
		holder.client.CloseIdleConnections()

		if err := bench.reopening(ctx, origin, holder, way.what); err != nil {
			return err
		}
	}

	return nil
}

// reopening starts the node of holder and adds the rows about its start.
func (b *bench) reopening(ctx context.Context, origin, holder *domain, what string) error {
	began := time.Now()

	if err := holder.serve(0); err != nil {
		return err
	}

	if err := holder.ready(ctx, 0); err != nil {
		return err
	}

	if err := holder.shows(ctx, origin, b.size, new(int64)); err != nil {
		return err
	}

	took := time.Since(began).Seconds()

	cpu, err := holder.nodes[0].cpu()
	if err != nil {
		return err
	}

	if err := holder.settled(ctx, b.size); err != nil { // until then a pull might still begin
		return err
	}

	pulled, err := holder.pulledFrom(ctx, origin)
	if err != nil {
		return err
	}

	own, err := holder.nodes[0].memory(unmapped)
	if err != nil {
		return err
	}

	what = count(b.size) + " of a peer, " + what
	b.report.add(row{Section: "foreign", What: "serving again with " + what, Value: took, Unit: "s", Bar: atMost(30),
		Note: fmt.Sprintf("%.1f s of processor time by then; %s MB of own memory in the end", cpu.Seconds(),
			figure(float64(own)/1e6))})
	b.report.add(row{Section: "foreign", What: "pulled after the restart with " + what, Value: float64(pulled) / 1024,
		Unit: "KiB", Bar: atMost(pulledAgain / 1024)})

	return nil
}

// held returns a mesh of two domains that run, of which the second has all registrations of
// the first on its disk. With -keep a later run uses the same disk.
func (b *bench) held(ctx context.Context) ([]*domain, error) {
	mesh, err := b.meshWith(ctx, fmt.Sprintf("foreign-%d", b.size), 2, false)
	if err != nil {
		return nil, err
	}

	origin, holder := mesh[0], mesh[1]

	err = holder.start(ctx)
	if err == nil {
		err = holder.shows(ctx, origin, b.size, new(int64))
	}

	if err == nil {
		err = holder.settled(ctx, b.size)
	}

	if err != nil {
		origin.close()
		holder.close()

		return nil, err
	}

	return mesh, nil
}

// pulledFrom returns the bytes that the first node of d received in the answers of a peer's nodes.
func (d *domain) pulledFrom(ctx context.Context, origin *domain) (uint64, error) {
	ops, err := d.clientAs("/ops/operator")
	if err != nil {
		return 0, err
	}
	defer ops.CloseIdleConnections()

	peers, _, err := apiclient.NewDirect(d.Nodes[0].API, ops).Operator().Peers(ctx)
	if err != nil {
		return 0, err
	}

	of := slices.IndexFunc(peers, func(p apiclient.Peer) bool { return p.Domain == origin.TrustDomain })
	if of < 0 {
		return 0, errors.New("the node does not list the peer")
	}

	return peers[of].BytesIn, nil
}
