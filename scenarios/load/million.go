package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roster-mesh/roster/node/memory"
)

// The bars about 10^6 registrations. At another size, memory is extrapolated from the
// live heap, and times are reported as measured.
const wanted = 1_000_000

// million measures the memory of many registrations, and the collector's work.
func million(ctx context.Context, bench *bench) error {
	filled, err := bench.filled(ctx)
	if err != nil {
		return err
	}

	if err := filled.settled(ctx, filled.size); err != nil {
		return err
	}

	collection, err := filled.collected(ctx, bench)
	if err != nil {
		return err
	}

	now, err1 := filled.nodes[0].memory(resident)

	highest, err2 := filled.nodes[0].memory(highestResident)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}

	live, err := filled.live(ctx, 0)
	if err != nil {
		return err
	}

	each := (live - filled.empty) / float64(filled.size)

	w := row{Section: "million", What: "resident with 10^6 of 1.4 KB", Value: gigabytes(float64(now)), Unit: "GB",
		Bar:  atMost(3),
		Note: fmt.Sprintf("highest %.2f GB; live heap %.2f GB", gigabytes(float64(highest)), gigabytes(live))}
	if filled.size != wanted { // with few registrations most resident memory is constant
		// The collector lets the heap grow by a share before it begins, many by
		// memory.GrowthPercent.
		grown := 1 + memory.GrowthPercent/100.
		w.Value = gigabytes((filled.empty + each*wanted) * grown)
		w.Note = fmt.Sprintf("reckoned: %.2f times the live heap, of which each of %s takes %.0f bytes", grown,
			count(filled.size), each)
	}

	bench.report.add(w)
	bench.report.add(row{Section: "million",
		What: "the collector's share of CPU under load, with " + count(filled.size),
		Unit: "%", Bar: atMost(5),
		Value: 100 * collection.share, Note: fmt.Sprintf("lookups and refreshes by 16 clients, %.0f collections in %s",
			collection.cycles, collection.took.Round(time.Second))})

	return nil
}

// A collection is the collector's work while a node was under load.
type collection struct {
	cycles float64 // whole ones
	share  float64 // of the processor time that the node used
	took   time.Duration
}

// collectedFor bounds how long a whole collection is waited for.
const collectedFor = 3 * time.Minute

// collected lets clients look up and refresh until the collector has finished at least
// once more. The runtime updates its times only then. So the measurement begins with a
// collection, and covers whole cycles with all allocations between them.
func (f *filled) collected(ctx context.Context, bench *bench) (*collection, error) {
	if _, err := f.live(ctx, 0); err != nil {
		return nil, err
	}

	before, err := f.metrics(ctx, 0)
	if err != nil {
		return nil, err
	}

	c, began := &collection{}, time.Now()
	for c.cycles < 1 {
		if time.Since(began) > collectedFor {
			return nil, fmt.Errorf("no collection ended within %s", collectedFor)
		}

		sample := measure(ctx, 16, max(bench.turn*time.Duration(bench.rounds), 10*time.Second), 0,
			func(ctx context.Context, w, i int) error {
				if w%2 == 0 {
					return f.get(ctx, 0, twoFilters)
				}

				return f.refresh(ctx, 0, f.path(w*7919+i), 604800)
			})
		if err := sample.check(); err != nil {
			return nil, err
		}

		after, err := f.metrics(ctx, 0)
		if err != nil {
			return nil, err
		}

		// The runtime measures the collector's time by the clock, also while other
		// processes have the processors. So it is a share of the other times, which are
		// measured likewise.
		spent := func(class string) float64 {
			name := "go_cpu_classes_" + class + "_cpu_seconds_total"
			return after[name] - before[name]
		}
		c.cycles, c.took = after[cyclesMetric]-before[cyclesMetric], time.Since(began)
		c.share = spent("gc_total") / (spent("total") - spent("idle"))
	}

	return c, nil
}

const cyclesMetric = "go_gc_duration_seconds_count"

func gigabytes(bytes float64) float64 { return bytes / 1e9 }

// path returns the path of f's i-th registration, by its name.
func (f *filled) path(i int) string { return "/ad/r/" + name("m", i%f.size) }

// restart measures how long a node is away: from its start until it is ready and
// has answered a lookup.
func restart(ctx context.Context, bench *bench) error {
	filled, err := bench.filled(ctx)
	if err != nil {
		return err
	}

	for _, way := range []struct {
		what string
		stop func(*process)
	}{{"stopped in good order", (*process).end}, {"killed", (*process).kill}} {
		way.stop(filled.nodes[0])
		filled.client.CloseIdleConnections()
		began := time.Now()

		if err := filled.serve(0); err != nil {
			return err
		}

		if err := filled.ready(ctx, 0); err != nil {
			return err
		}

		if err := filled.get(ctx, 0, twoFilters); err != nil {
			return err
		}

		took := time.Since(began).Seconds()

		cpu, err := filled.nodes[0].cpu()
		if err != nil {
			return err
		}

		bench.report.add(row{Section: "restart", What: "serving again with " + count(filled.size) + ", " + way.what,
			Value: took, Unit: "s", Bar: atMost(30),
			Note: fmt.Sprintf("%.0f s of processor time by then", cpu.Seconds())})
	}

	return nil
}
