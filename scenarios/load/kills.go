package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// kills measures how soon writes come back after a leader's death, and after one is
// stopped and breaks no connection: from its kill -9 or SIGSTOP until the survivors name
// another leader, and until a write that was begun after it is acknowledged. Nodes have
// the timing that they have in production.
func kills(ctx context.Context, bench *bench) error {
	d, err := bench.layOut(ctx, filepath.Join(bench.dir, "kills"), 3)
	if err != nil {
		return err
	}
	defer d.close()

	if err := d.start(ctx); err != nil {
		return err
	}

	for _, by := range []struct {
		what, series string
		lose         func(*domain, int) (back func() error, err error)
	}{{"a kill -9", "k", (*domain).killed}, {"a SIGSTOP", "s", (*domain).suspended}} {
		var leaders, writes []time.Duration
		for k := range bench.kills {
			leader, write, err := d.loseLeader(ctx, name(by.series, k), by.lose)
			if err != nil {
				return fmt.Errorf("%s, %d: %w", by.what, k, err)
			}

			leaders, writes = append(leaders, leader), append(writes, write)
		}

		for _, l := range []struct {
			what string
			took []time.Duration
		}{{"new leader", leaders}, {"first write", writes}} {
			slices.Sort(l.took)
			s := &sample{took: l.took}
			bench.report.add(row{Section: "kills", What: l.what + " after " + by.what + ", p99",
				Value: s.at(0.99).Seconds(), Unit: "s", Bar: atMost(3),
				Note: fmt.Sprintf("p50 %.2f s, of %d", s.at(0.5).Seconds(), len(l.took))})
		}
	}

	return nil
}

// killed ends a node by kill -9; back starts it again.
func (d *domain) killed(i int) (back func() error, err error) {
	d.nodes[i].kill()
	d.nodes[i] = nil

	return func() error { return d.serve(i) }, nil
}

// suspended stops a node; back lets it go on.
func (d *domain) suspended(i int) (back func() error, err error) {
	process := d.nodes[i]
	d.nodes[i] = nil

	return func() error { d.nodes[i] = process; return process.resume() }, process.suspend()
}

// loseLeader loses the leader, waits for the next one and for a write, and brings
// the lost node back.
func (d *domain) loseLeader(ctx context.Context, agent string,
	lose func(*domain, int) (back func() error, err error)) (leader, write time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	old, err := d.leader(ctx)
	if err != nil {
		return 0, 0, err
	}

	began := time.Now()

	back, err := lose(d, old)
	if err != nil {
		return 0, 0, errors.Join(err, back())
	}

	var both sync.WaitGroup
	errs := make([]error, 2)
	both.Go(func() {
		errs[0] = until(ctx, "another leader", nil, func() error {
			if now, err := d.leader(ctx); err != nil || now == old {
				return errors.Join(err, errors.New("no other leader is known"))
			}

			return nil
		})
		leader = time.Since(began)
	})
	both.Go(func() {
		errs[1] = until(ctx, "a write", nil, func() error {
			_, err := d.register(ctx, (old+1)%len(d.nodes), agent, 86400, document(0))
			return err
		})
		write = time.Since(began)
	})
	both.Wait()

	if err := errors.Join(append(errs, back())...); err != nil {
		return 0, 0, err
	}

	// A stopped leader believes that it leads until it hears from the new one.
	return leader, write, errors.Join(d.ready(ctx, old),
		until(ctx, "the lost node follows", d.nodes[old], func() error {
			if now, err := d.leader(ctx); err != nil || now == old {
				return errors.Join(err, errors.New("it leads"))
			}

			return nil
		}))
}

// lost counts acknowledged registrations that are gone after nodes of a minority
// were killed again and again while clients registered.
func lost(ctx context.Context, bench *bench) error {
	domain, err := bench.layOut(ctx, filepath.Join(bench.dir, "lost"), 3)
	if err != nil {
		return err
	}
	defer domain.close()

	if err := domain.start(ctx); err != nil {
		return err
	}

	n := 5000
	if bench.full {
		n = 100_000
	}

	killing, enough := context.WithCancel(ctx)
	defer enough()

	var (
		killed  int
		failure error
		killer  sync.WaitGroup
	)
	killer.Go(func() { killed, failure = domain.killAgainAndAgain(killing) })

	all := domain.registerAll(ctx, n)

	enough()
	killer.Wait()

	if err := errors.Join(failure, ctx.Err()); err != nil {
		return err
	}

	var gone atomic.Int64

	sample := measure(ctx, lostClients, time.Hour, len(all), func(ctx context.Context, w, i int) error {
		at := i*lostClients + w
		err := domain.get(ctx, at%len(domain.Nodes), all[at])

		var a *answered
		if errors.As(err, &a) && a.status == 404 {
			gone.Add(1)
			return nil
		}

		return err
	})
	if sample.done != len(all) {
		return fmt.Errorf("read %d of %d back: %w", sample.done, len(all), errors.Join(sample.reason, ctx.Err()))
	}

	bench.report.add(row{Section: "lost", What: fmt.Sprintf("acknowledged registrations lost of %s", count(len(all))),
		Value: float64(gone.Load()), Bar: none(),
		Note: fmt.Sprintf("%d kill -9 of one node of three meanwhile", killed)})

	return nil
}

// lostClients is the number of clients that register while nodes are killed.
const lostClients = 32

// registerAll registers n agents by all clients, and returns the paths of the acknowledged
// registrations. A write without an acknowledgement is tried again at the next node, as a
// client would.
func (d *domain) registerAll(ctx context.Context, n int) (paths []string) {
	var (
		next    atomic.Int64
		writers sync.WaitGroup
	)
	acked := make([][]string, lostClients)

	for w := range lostClients {
		writers.Go(func() {
			for i := int(next.Add(1)); i <= n && ctx.Err() == nil; i = int(next.Add(1)) {
				for at := w; ctx.Err() == nil; at++ {
					path, err := d.register(ctx, at%len(d.Nodes), name("x", i), 86400, document(i))
					if err == nil {
						acked[w] = append(acked[w], path)
						break
					}
				}
			}
		})
	}

	writers.Wait()

	return slices.Concat(acked...)
}

// killAgainAndAgain kills one node after the other until ctx ends, each once all
// are up; then all are up again.
func (d *domain) killAgainAndAgain(ctx context.Context) (kills int, err error) {
	always := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		i := rand.IntN(len(d.nodes))
		d.nodes[i].kill()
		kills++

		select {
		case <-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond):
		case <-ctx.Done():
		}

		if err := d.serve(i); err != nil {
			return kills, err
		}

		bound, cancel := context.WithTimeout(always, time.Minute)
		err := d.ready(bound, i)
		cancel()

		if err != nil {
			return kills, err
		}
	}

	return kills, nil
}
