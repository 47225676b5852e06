package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// clients of the busiest rows.
const manyClients = 128

// registrations measures durable registrations against etcd's puts of the same
// size, both by clients that are spread over three members.
func registrations(ctx context.Context, bench *bench) error {
	domain, etcd, err := bench.startBoth(ctx, "registrations")
	if err != nil {
		return err
	}
	defer domain.close()
	defer etcd.close()

	leader, err := domain.leader(ctx)
	if err != nil {
		return err
	}

	var theirLeader int
	if etcd != nil {
		if theirLeader, err = etcd.leader(ctx); err != nil {
			return err
		}
	}

	var run atomic.Int64 // a series of names of its own for each pairing
	// The first client speaks to the member that is so far from the leader, on both sides:
	// one client's figures would else be those of who happens to lead.
	compare := func(clients, from int, pick func(*sample) float64, w row) error {
		series := fmt.Sprintf("r%d", run.Add(1))

		var next atomic.Int64

		ours := domain.side(fmt.Sprintf("registrations-%d-%d", clients, from),
			func(ctx context.Context, w, _ int) error {
				i := int(next.Add(1))
				_, err := domain.register(ctx, (leader+from+w)%len(domain.Nodes), name(series, i), 86400, document(i))

				return err
			})
		if etcd == nil {
			s := measure(ctx, clients, bench.turn, 0, ours.op)
			w.Value, w.Bar, w.Note = pick(s), nil, errNoEtcd.Error()
			bench.report.add(w)

			return s.check()
		}

		theirs := side{name: etcdName, op: func(ctx context.Context, w, _ int) error {
			i := int(next.Add(1))
			return etcd.put(ctx, (theirLeader+from+w)%len(etcd.members), name(series, i), document(i))
		}, processes: etcd.members}

		pairing, err := bench.pair(ctx, clients, ours, theirs, pick)
		if err != nil {
			return err
		}

		bench.report.add(pairing.row(w))

		return nil
	}

	return errors.Join(
		compare(manyClients, 0, rate, row{Section: "registrations", What: "durable registrations, 128 clients",
			Unit: "/s", Bar: atLeast(1), Note: "goal 2"}),
		compare(1, 0, rate, row{Section: "registrations", What: "… one client, at the leader", Unit: "/s",
			Bar: atLeast(1)}),
		compare(1, 1, rate, row{Section: "registrations", What: "… one client, at a follower", Unit: "/s",
			Bar: atLeast(1)}),
		compare(16, 0, milliseconds(0.99), row{Section: "registrations", What: "… p99 at 16 clients", Unit: "ms",
			Bar: atMost(1)}),
	)
}

// startBoth starts a domain of three nodes, and three etcd members if etcd is installed.
func (b *bench) startBoth(ctx context.Context, of string) (*domain, *etcd, error) {
	d, err := b.layOut(ctx, filepath.Join(b.dir, of), 3)
	if err != nil {
		return nil, nil, err
	}

	if err := d.start(ctx); err != nil {
		d.close()
		return nil, nil, err
	}

	etcd, err := startEtcd(ctx, filepath.Join(b.dir, of+"-etcd"))
	if errors.Is(err, errNoEtcd) {
		b.note("%v: its ratios are left out", err)
		return d, nil, nil
	}

	if err != nil {
		d.close()
	}

	return d, etcd, err
}
