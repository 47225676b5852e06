package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/roster-mesh/roster/api"
)

// The bars about 10^6 registrations. At another size, memory is reckoned from
// the live heap; what is about time is told as it is.
const wanted = 1_000_000

// million measures what a node does with many registrations: what they weigh,
// how soon it serves again, and that storms do not make it pause.
func million(ctx context.Context, b *bench) error {
	f, err := b.filled(ctx)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context, *bench, *filled) error{memory, restart, refreshStorm, expiryStorm} {
		if err := part(ctx, b, f); err != nil {
			return err
		}
	}
	return nil
}

// memory measures what is resident, and what the collector takes of the
// processor while lookups and refreshes go on.
func memory(ctx context.Context, b *bench, f *filled) error {
	p := f.nodes[0]
	before, err := f.metrics(ctx, 0)
	if err != nil {
		return err
	}
	s := measure(ctx, 16, max(b.turn*time.Duration(b.rounds), 10*time.Second), 0, func(ctx context.Context, w, i int) error {
		if w%2 == 0 {
			return f.get(ctx, 0, twoFilters)
		}
		return f.refresh(ctx, 0, f.path(w*7919+i), 604800)
	})
	if err := s.check(); err != nil {
		return err
	}
	after, err := f.metrics(ctx, 0)
	if err != nil {
		return err
	}
	// The runtime reckons the collector's time by the clock, also while others have
	// the processors; so it is a share of what it reckons of the rest likewise.
	spent := func(class string) float64 {
		name := "go_cpu_classes_" + class + "_cpu_seconds_total"
		return after[name] - before[name]
	}
	now, highest, err := p.resident()
	if err != nil {
		return err
	}
	live, err := f.live(ctx, 0)
	if err != nil {
		return err
	}
	each := (live - f.empty) / float64(f.size)
	w := row{Section: "million", What: "resident with 10^6 of 1.4 KB", Value: gigabytes(float64(now)), Unit: "GB", Bar: atMost(3),
		Note: fmt.Sprintf("highest %.2f GB; live heap %.2f GB", gigabytes(float64(highest)), gigabytes(live))}
	if f.size != wanted { // what is resident of few is mostly what doesn't grow with them
		// The collector lets the heap grow by a share before it begins. What is live
		// of an empty node is mostly a ballast, which counts and is not resident.
		grown := 1 + after["go_gc_gogc_percent"]/100
		w.Value = gigabytes((f.empty+each*wanted)*grown - f.empty)
		w.Note = fmt.Sprintf("reckoned: %.2f times the live heap, of which each of %s takes %.0f bytes", grown, count(f.size), each)
	}
	b.report.add(w)
	b.report.add(row{Section: "million", What: "the collector's share of CPU under load, with " + count(f.size), Unit: "%", Bar: atMost(5),
		Value: 100 * spent("gc_total") / (spent("total") - spent("idle")), Note: "lookups and refreshes by 16 clients"})
	return nil
}

func gigabytes(bytes float64) float64 { return bytes / 1e9 }

// path is where f's i-th registration is, by its name.
func (f *filled) path(i int) string { return "/ad/r/" + name("m", i%f.size) }

// restart measures how long a node is away: from its start until it is ready and
// has answered a lookup.
func restart(ctx context.Context, b *bench, f *filled) error {
	for _, way := range []struct {
		what string
		stop func(*process)
	}{{"stopped in good order", (*process).end}, {"killed", (*process).kill}} {
		way.stop(f.nodes[0])
		f.client.CloseIdleConnections()
		began := time.Now()
		if err := f.serve(0); err != nil {
			return err
		}
		if err := f.ready(ctx, 0); err != nil {
			return err
		}
		if err := f.get(ctx, 0, twoFilters); err != nil {
			return err
		}
		took := time.Since(began).Seconds()
		cpu, err := f.nodes[0].cpu()
		if err != nil {
			return err
		}
		b.report.add(row{Section: "million", What: "serving again with " + count(f.size) + ", " + way.what, Value: took, Unit: "s", Bar: atMost(30),
			Note: fmt.Sprintf("%.0f s of processor time by then", cpu.Seconds())})
	}
	return nil
}

// A probe is a client that reads and one that writes, each again and again; what
// they wait at most is the pause that others notice.
type probe struct {
	stop context.CancelFunc
	all  sync.WaitGroup
	took [2]*sample // reads, writes
}

// pauseBar is the longest pause that is allowed, in milliseconds.
const pauseBar = 100

func (f *filled) watch(ctx context.Context) *probe {
	ctx, stop := context.WithCancel(ctx)
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
			p.took[i] = measure(context.WithoutCancel(ctx), 1, time.Hour, 0, func(inner context.Context, w, n int) error {
				if ctx.Err() != nil {
					return errProbeDone
				}
				defer pause(ctx)
				return op(inner, w, n)
			})
		})
	}
	return p
}

var errProbeDone = errors.New("the probe is done")

// end returns the longest read and write, in milliseconds.
func (p *probe) end() (read, write float64) {
	p.stop()
	p.all.Wait()
	return milliseconds(1)(p.took[0]), milliseconds(1)(p.took[1])
}

// quiet is how long the same probe waits at most while nothing else happens.
func (f *filled) quiet(ctx context.Context, d time.Duration) (read, write float64) {
	p := f.watch(ctx)
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return p.end()
}

// refreshStorm lets as many refreshes come as the bar names, as fast as this
// machine makes them.
func refreshStorm(ctx context.Context, b *bench, f *filled) error {
	n := min(100_000, f.size)
	connect := func(ctx context.Context, w, i int) error { return f.get(ctx, 0, f.path(w)) } // a handshake is no part of a refresh
	if err := measure(ctx, manyClients, time.Minute, 4*manyClients, connect).check(); err != nil {
		return err
	}
	read0, write0 := f.quiet(ctx, 3*time.Second)
	p := f.watch(ctx)
	s := measure(ctx, manyClients, 2*time.Minute, n, func(ctx context.Context, w, i int) error {
		return f.refresh(ctx, 0, f.path(i*manyClients+w), 604800)
	})
	read, write := p.end()
	if err := s.check(); err != nil {
		return err
	}
	b.storm(fmt.Sprintf("%s refreshes in %.1f s", count(n), s.elapsed.Seconds()), read, write, read0, write0)
	return nil
}

// storm adds what a probe has seen.
func (b *bench) storm(what string, read, write, read0, write0 float64) {
	b.report.add(row{Section: "million", What: "longest read while " + what, Value: read, Unit: "ms", Bar: atMost(pauseBar),
		Note: fmt.Sprintf("%.0f ms before, with nothing going on", read0)})
	b.report.add(row{Section: "million", What: "longest write while " + what, Value: write, Unit: "ms", Bar: atMost(pauseBar),
		Note: fmt.Sprintf("%.0f ms before", write0)})
}

// expiryStorm gives all registrations deadlines within one second and looks on
// as they come. It is the last that happens to f.
func expiryStorm(ctx context.Context, b *bench, f *filled) error {
	// The shortest lifetime, and as long as it takes to say so.
	deadline := time.Now().Add(75*time.Second + time.Duration(f.size)*150*time.Microsecond).Truncate(time.Second)
	lists := (f.size + listSize - 1) / listSize
	client := api.NewClient(f.Nodes[0].API, f.client)
	s := measure(ctx, listClients, time.Until(deadline)-61*time.Second, lists, func(ctx context.Context, w, i int) error {
		first := (i*listClients + w) * listSize
		all := make([]api.Renewal, min(listSize, f.size-first))
		for j := range all {
			all[j] = api.Renewal{ID: name("m", first+j), Lifetime: uint32(time.Until(deadline).Seconds() + 0.999)}
		}
		for again := 4; ; again-- { // a busy machine may not answer in time, and to repeat it is safe
			if _, err := client.RefreshMany(ctx, all); err == nil || again == 0 {
				return err
			}
		}
	})
	if err := s.check(); err != nil {
		return err
	}
	ending := min(f.size, s.done*listSize)
	select {
	case <-time.After(time.Until(deadline) - 4*time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	read0, write0 := f.quiet(ctx, 2*time.Second)
	p := f.watch(ctx)
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	left := 0.0
	freed := until(bound, "all have expired", f.nodes[0], func() error {
		m, err := f.metrics(ctx, 0)
		if err != nil {
			return err
		}
		if left = m["roster_registrations"]; left > float64(f.size-ending)+100 {
			return fmt.Errorf("%.0f are left", left)
		}
		return nil
	})
	read, write := p.end()
	if err := f.nodes[0].running(); err != nil {
		return err
	}
	b.storm(fmt.Sprintf("%s expire in a second", count(ending)), read, write, read0, write0)
	all := row{Section: "million", What: "until all of them are freed", Value: time.Since(began).Seconds(), Unit: "s"}
	if freed != nil {
		all.Note = fmt.Sprintf("not yet: %.0f are left", left)
	}
	b.report.add(all)
	f.domain.close()
	b.many = nil
	return nil
}
