package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// An operation is the repeated work of one client; i counts its turns.
type operation func(ctx context.Context, worker, i int) error

// A sample is the result of one turn of one side.
type sample struct {
	done    int
	failed  int
	reason  error // of the first failure
	elapsed time.Duration
	cpu     time.Duration   // of the processes that served it
	took    []time.Duration // ascending
}

func (s *sample) rate() float64 { return float64(s.done) / s.elapsed.Seconds() }

// at returns the latency that a share p of all operations stayed within.
func (s *sample) at(p float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}

	return s.took[min(len(s.took)-1, int(p*float64(len(s.took))))]
}

// measure lets so many clients repeat op for a while, or until count operations
// are done where count isn't 0.
func measure(ctx context.Context, workers int, d time.Duration, count int, op operation) *sample {
	s := &sample{}

	var mu sync.Mutex // guards s

	var all sync.WaitGroup

	began := time.Now()
	for w := range workers {
		all.Go(func() {
			mine := sample{}
			for i := 0; time.Since(began) < d && ctx.Err() == nil && (count == 0 || i*workers+w < count); i++ {
				start := time.Now()

				if err := op(ctx, w, i); err != nil {
					mine.failed++

					mine.reason = errors.Join(err, nil)
					if mine.failed > 100 {
						break
					}

					continue
				}

				mine.done++
				mine.took = append(mine.took, time.Since(start))
			}

			mu.Lock()
			defer mu.Unlock()

			s.done += mine.done
			s.failed += mine.failed

			s.took = append(s.took, mine.took...)
			if s.reason == nil {
				s.reason = mine.reason
			}
		})
	}

	all.Wait()
	s.elapsed = time.Since(began)
	slices.Sort(s.took)

	return s
}

// check returns why a sample says nothing: too much of it failed.
func (s *sample) check() error {
	if s.done == 0 || s.failed*100 > s.done {
		return fmt.Errorf("%d of %d operations failed: %w", s.failed, s.done+s.failed, s.reason)
	}

	return nil
}

// A side is one of the two that are compared.
type side struct {
	name      string
	op        operation
	processes []*process // that serve it
}

// turn measures s once, with the processor time of its processes.
func (s *side) turn(ctx context.Context, workers int, d time.Duration) (*sample, error) {
	before, err1 := cpuOf(s.processes)
	sample := measure(ctx, workers, d, 0, s.op)
	after, err2 := cpuOf(s.processes)

	sample.cpu = after - before
	if err := errors.Join(sample.check(), err1, err2); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}

	return sample, nil
}

// A pairing is the result of rounds of A and B.
type pairing struct {
	name   string // of B
	a, b   float64
	ratio  float64
	rounds []float64
	cpu    [2]time.Duration // each side's for one operation
}

// pair measures ours and theirs in turns, and compares the picked figure of each round
// by medians.
func (b *bench) pair(ctx context.Context, workers int, ours, theirs side, pick func(*sample) float64) (*pairing,
	error) {
	p := &pairing{name: theirs.name}

	var (
		as, bs []float64
		done   [2]int
	)
	for round := range b.rounds + 1 {
		turn := b.turn
		if round == 0 {
			turn = min(turn, time.Second) // connections, caches: not counted
		}

		var last [2]*sample
		for i, s := range []side{ours, theirs} {
			var err error
			if last[i], err = s.turn(ctx, workers, turn); err != nil {
				return nil, err
			}
		}

		if round == 0 {
			continue
		}

		for i, s := range last {
			p.cpu[i], done[i] = p.cpu[i]+s.cpu, done[i]+s.done
		}

		x, y := pick(last[0]), pick(last[1])
		as = append(as, x)
		bs = append(bs, y)
		p.rounds = append(p.rounds, x/y)
	}

	for i := range p.cpu {
		p.cpu[i] /= time.Duration(max(1, done[i]))
	}

	p.a, p.b, p.ratio = median(as), median(bs), median(p.rounds)

	return p, ctx.Err()
}

// row fills in the pairing's results.
func (p *pairing) row(w row) row {
	w.Value = p.a
	w.Against = p.b
	w.Ratio = p.ratio
	w.Rounds = p.rounds

	w.Yardstick = p.name
	for i, used := range p.cpu {
		w.CPU[i] = float64(used.Microseconds())
	}

	if p.cpu[0] > 0 && p.cpu[1] > 0 {
		w.Note = strings.TrimPrefix(fmt.Sprintf("%s; CPU of the servers %d µs each, theirs %d µs", w.Note,
			p.cpu[0].Microseconds(), p.cpu[1].Microseconds()), "; ")
	}

	return w
}

func median(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}

	vs = slices.Sorted(slices.Values(vs))
	if n := len(vs); n%2 == 0 {
		return (vs[n/2-1] + vs[n/2]) / 2
	}

	return vs[len(vs)/2]
}

func rate(s *sample) float64 { return s.rate() }

// milliseconds returns the latency that a share p of a sample's operations stayed
// within.
func milliseconds(p float64) func(*sample) float64 {
	return func(s *sample) float64 { return s.at(p).Seconds() * 1000 }
}
