package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// storms shows that a node goes on while very many registrations are refreshed, and end,
// at once. Nothing is left of the filled domain then.
func storms(ctx context.Context, bench *bench) error {
	filled, err := bench.filled(ctx)
	if err != nil {
		return err
	}

	if err := filled.settled(ctx, filled.size); err != nil {
		return err
	}

	if err := refreshStorm(ctx, bench, filled); err != nil {
		return err
	}

	return expiryStorm(ctx, bench, filled)
}

// A probe is a client that reads and one that writes, again and again. Their longest
// wait is the pause that others notice.
type probe struct {
	stop context.CancelFunc
	all  sync.WaitGroup
	took [2]*sample // reads, writes
}

// pauseBar is the longest pause that is allowed, in milliseconds.
const pauseBar = 100

func (f *filled) watch(bound context.Context) *probe {
	ctx, stop := context.WithCancel(bound)
	p := &probe{stop: stop}
	pause := func(ctx context.Context) { // so that the probe itself is no load
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	reads := func(ctx context.Context, _, _ int) error { return f.get(ctx, 0, twoFilters) }

	writes := func(ctx context.Context, _, i int) error {
		_, err := f.register(ctx, 0, name("probe", i%100), 86400, document(i))
		return err
	}
	for i, op := range []operation{reads, writes} {
		p.all.Go(func() {
			p.took[i] = measure(ctx, 1, time.Hour, 0, func(ctx context.Context, w, n int) error {
				defer pause(ctx)
				return op(bound, w, n) // the last is waited for
			})
		})
	}

	return p
}

// end returns the latencies of the probe's reads and writes. Failed requests weren't
// waited for, so with too many of them there is no maximum.
func (p *probe) end() ([2]*sample, error) {
	p.stop()
	p.all.Wait()

	return p.took, errors.Join(p.took[0].check(), p.took[1].check())
}

// quiet is the same probe's result without a storm.
func (f *filled) quiet(ctx context.Context, d time.Duration) ([2]*sample, error) {
	probe := f.watch(ctx)
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}

	return probe.end()
}

// refreshStorm lets as many refreshes come as the bar names, as fast as this
// machine makes them.
func refreshStorm(ctx context.Context, bench *bench, filled *filled) error {
	n := min(100_000, filled.size)

	// a handshake is no part of a refresh
	connect := func(ctx context.Context, w, i int) error { return filled.get(ctx, 0, filled.path(w)) }
	if err := measure(ctx, manyClients, time.Minute, 4*manyClients, connect).check(); err != nil {
		return err
	}

	before, err := filled.quiet(ctx, 3*time.Second)
	if err != nil {
		return err
	}

	probe := filled.watch(ctx)
	sample := measure(ctx, manyClients, 2*time.Minute, n, func(ctx context.Context, w, i int) error {
		return filled.refresh(ctx, 0, filled.path(i*manyClients+w), 604800)
	})

	during, err := probe.end()
	if err := errors.Join(err, sample.check()); err != nil {
		return err
	}

	bench.storm(fmt.Sprintf("%s refreshes in %.1f s", count(n), sample.elapsed.Seconds()), before, during)

	return nil
}

// storm adds a probe's results.
func (b *bench) storm(what string, before, during [2]*sample) {
	longest, most := milliseconds(1), milliseconds(0.99)
	for i, op := range []string{"read", "write"} {
		b.report.add(row{Section: "storms", What: "longest " + op + " while " + what, Value: longest(during[i]),
			Unit: "ms", Bar: atMost(pauseBar),
			Note: fmt.Sprintf("of %d; p99 %.0f ms; longest before, with nothing going on, %.0f ms", during[i].done,
				most(during[i]), longest(before[i]))})
	}
}

// expiryStorm gives all registrations deadlines within one second and looks on
// as they come.
func expiryStorm(ctx context.Context, bench *bench, filled *filled) error {
	// The shortest lifetime, and as long as it takes to say so.
	deadline := time.Now().Add(75*time.Second + time.Duration(filled.size)*60*time.Microsecond).Truncate(time.Second)
	lists := (filled.size + listSize - 1) / listSize
	client := apiclient.NewDirect(filled.Nodes[0].API, filled.client)

	sample := measure(ctx, listClients, time.Until(deadline)-61*time.Second, lists,
		func(ctx context.Context, w, i int) error {
			first := (i*listClients + w) * listSize

			all := make([]apiclient.Renewal, min(listSize, filled.size-first))
			for j := range all {
				all[j] = apiclient.Renewal{ID: name("m", first+j), Lifetime: time.Until(deadline)}
			}

			for again := 4; ; again-- { // a busy machine may not answer in time, and to repeat it is safe
				if _, err := client.RefreshMany(ctx, all); err == nil || again == 0 {
					return err
				}
			}
		})
	if err := sample.check(); err != nil {
		return err
	}

	ending := min(filled.size, sample.done*listSize)

	select {
	case <-time.After(time.Until(deadline) - 4*time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}

	before, err := filled.quiet(ctx, 2*time.Second)
	if err != nil {
		return err
	}

	probe := filled.watch(ctx)
	bound, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	left := 0.0
	freed := until(bound, "all have expired", filled.nodes[0], func() error {
		m, err := filled.metrics(ctx, 0)
		if err != nil {
			return err
		}

		if left = m["roster_registrations"]; left > float64(filled.size-ending)+100 {
			return fmt.Errorf("%.0f are left", left)
		}

		return nil
	})
	took := time.Since(deadline)

	during, err := probe.end()
	if err := errors.Join(filled.nodes[0].running(), err); err != nil {
		return err
	}

	bench.storm(fmt.Sprintf("%s expire in a second", count(ending)), before, during)

	all := row{Section: "storms", What: "until all of them are freed", Value: took.Seconds(), Unit: "s"}
	if freed != nil {
		all.Note = fmt.Sprintf("not yet: %.0f are left", left)
	}

	bench.report.add(all)

	return nil
}
