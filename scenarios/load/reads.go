package main

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
)

// linearizable measures reads that are confirmed by a majority.
func linearizable(ctx context.Context, b *bench) error {
	d, e, err := b.startBoth(ctx, "linearizable")
	if err != nil {
		return err
	}
	defer d.close()
	defer e.close()

	const held, clients = 1000, 64
	if _, err := d.fill(ctx, "l", 0, held, 86400); err != nil {
		return err
	}

	read := func(ctx context.Context, w, i int) error {
		return d.get(ctx, w%len(d.Nodes), "/ad/l?consistency=linearizable&agent="+name("l", (w*7919+i)%held))
	}
	if err := read(ctx, 0, 0); err != nil {
		var a *answered
		if errors.As(err, &a) && a.status == http.StatusBadRequest {
			b.note("linearizable: this release refuses such reads")
			return nil
		}

		return err
	}

	w := row{Section: "linearizable", What: "linearizable lookups by name, 64 clients", Unit: "/s"}
	if e == nil {
		s := measure(ctx, clients, b.turn, 0, read)
		w.Value, w.Note = s.rate(), errNoEtcd.Error()
		b.report.add(w)

		return s.check()
	}

	put := measure(ctx, 32, b.turn*10, held, func(ctx context.Context, w, i int) error {
		n := i*32 + w
		return e.put(ctx, w%len(e.members), name("l", n), document(n))
	})
	if err := put.check(); err != nil {
		return err
	}

	theirs := side{name: e.name(), op: func(ctx context.Context, w, i int) error {
		return e.get(ctx, w%len(e.members), name("l", (w*7919+i)%held))
	}, processes: e.members}

	p, err := b.pair(ctx, clients, d.side("linearizable lookups", read), theirs, rate)
	if err != nil {
		return err
	}

	w.Bar = atLeast(1)
	b.report.add(p.row(w))

	return nil
}

// lookups measures lookups with two filters in a large directory, against a
// handler that does nothing but answer, and against a small directory.
func lookups(ctx context.Context, b *bench) error {
	many, err := b.filled(ctx)
	if err != nil {
		return err
	}

	few, err := b.layOut(ctx, filepath.Join(b.dir, "few"), 1)
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

	bare, url, err := b.startBare(ctx, many.domain, twoFilters, body)
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

	p, err := b.pair(ctx, clients, ours, plain, rate)
	if err != nil {
		return err
	}

	b.report.add(p.row(row{Section: "lookups", What: "lookup by two filters among " + count(many.size), Unit: "/s",
		Bar: atLeast(0.6)}))

	if p, err = b.pair(ctx, clients, ours, small, milliseconds(0.99)); err != nil {
		return err
	}

	b.report.add(p.row(row{Section: "lookups", What: "… p99 among " + count(many.size), Unit: "ms", Bar: atMost(1.5)}))

	return nil
}
