package main

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
)

// linearizable measures reads that are confirmed by a majority.
func linearizable(ctx context.Context, bench *bench) error {
	domain, etcd, err := bench.startBoth(ctx, "linearizable")
	if err != nil {
		return err
	}
	defer domain.close()
	defer etcd.close()

	const held, clients = 1000, 64
	if _, err := domain.fill(ctx, "l", 0, held, 86400); err != nil {
		return err
	}

	read := func(ctx context.Context, w, i int) error {
		return domain.get(ctx, w%len(domain.Nodes), "/ad/l?consistency=linearizable&agent="+name("l", (w*7919+i)%held))
	}
	if err := read(ctx, 0, 0); err != nil {
		var a *answered
		if errors.As(err, &a) && a.status == http.StatusBadRequest {
			bench.note("linearizable: this release refuses such reads")
			return nil
		}

		return err
	}

	w := row{Section: "linearizable", What: "linearizable lookups by name, 64 clients", Unit: "/s"}
	if etcd == nil {
		sample := measure(ctx, clients, bench.turn, 0, read)
		w.Value, w.Note = sample.rate(), errNoEtcd.Error()
		bench.report.add(w)

		return sample.check()
	}

	put := measure(ctx, 32, bench.turn*10, held, func(ctx context.Context, w, i int) error {
		n := i*32 + w
		return etcd.put(ctx, w%len(etcd.members), name("l", n), document(n))
	})
	if err := put.check(); err != nil {
		return err
	}

	theirs := side{name: etcdName, op: func(ctx context.Context, w, i int) error {
		return etcd.get(ctx, w%len(etcd.members), name("l", (w*7919+i)%held))
	}, processes: etcd.members}

	pairing, err := bench.pair(ctx, clients, domain.side("linearizable lookups", read), theirs, rate)
	if err != nil {
		return err
	}

	w.Bar = atLeast(1)
	bench.report.add(pairing.row(w))

	return nil
}

// lookups measures lookups with two filters in a large directory, against a
// handler that does nothing but answer, and against a small directory.
func lookups(ctx context.Context, bench *bench) error {
	many, err := bench.filled(ctx)
	if err != nil {
		return err
	}

	few, err := bench.layOut(ctx, filepath.Join(bench.dir, "few"), 1)
	if err != nil {
		return err
	}
	defer few.close()

	if err := few.start(ctx); err != nil {
		return err
	}

	if _, err := few.fill(ctx, "m", 0, 1000, 86400); err != nil {
		return err
	}

	body, err := many.body(ctx, 0, twoFilters)
	if err != nil {
		return err
	}

	bare, url, err := bench.startBare(ctx, many.domain, twoFilters, body)
	if err != nil {
		return err
	}
	defer bare.end()

	const clients = 16
	ours := many.side("lookups", func(ctx context.Context, _, _ int) error { return many.get(ctx, 0, twoFilters) })
	small := few.side("among 1,000", func(ctx context.Context, _, _ int) error { return few.get(ctx, 0, twoFilters) })
	plain := side{name: bareName, op: func(ctx context.Context, _, _ int) error {
		_, err := many.do(ctx, http.MethodGet, url, nil)
		return err
	}, processes: []*process{bare}}

	pairing, err := bench.pair(ctx, clients, ours, plain, rate)
	if err != nil {
		return err
	}

	bench.report.add(pairing.row(row{Section: "lookups", What: "lookup by two filters among " + count(many.size),
		Unit: "/s",
		Bar:  atLeast(0.6)}))

	if pairing, err = bench.pair(ctx, clients, ours, small, milliseconds(0.99)); err != nil {
		return err
	}

	bench.report.add(pairing.row(row{Section: "lookups", What: "… p99 among " + count(many.size), Unit: "ms",
		Bar: atMost(1.5)}))

	return nil
}
