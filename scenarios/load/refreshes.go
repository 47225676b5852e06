package main

import (
	"context"
	"path/filepath"
	"time"
)

// Refreshes that a million registrations with a lifetime of a minute need each
// second.
const refreshesWanted = 1_000_000 / 30

// refreshes measures what refreshes cost: processor time of all three nodes,
// which a busy machine does not falsify as it does rates.
func refreshes(ctx context.Context, b *bench) error {
	d, err := b.layOut(ctx, filepath.Join(b.dir, "refreshes"), 3)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.start(ctx); err != nil {
		return err
	}
	const held = 5000
	paths, err := d.fill(ctx, "f", 0, held, 604800)
	if err != nil {
		return err
	}
	op := func(ctx context.Context, w, i int) error {
		return d.refresh(ctx, w%len(d.Nodes), paths[(w*7919+i)%held], 604800)
	}
	busy := d.side("refreshes", op)
	if _, err := busy.turn(ctx, manyClients, time.Second); err != nil {
		return err
	}
	var cores, rates []float64
	for range b.rounds {
		s, err := busy.turn(ctx, manyClients, b.turn)
		if err != nil {
			return err
		}
		cores = append(cores, refreshesWanted*s.cpu.Seconds()/float64(s.done))
		rates = append(rates, s.rate())
	}
	b.report.add(row{Section: "refreshes", What: "cores for 10^6 refreshed every 30 s, 3 nodes", Value: median(cores), Unit: "cores", Bar: atMost(1),
		Note: "one HTTPS request each; all three processes"})
	b.report.add(row{Section: "refreshes", What: "refreshes, 128 clients", Value: median(rates), Unit: "/s", Note: "on this machine with its clients"})
	return nil
}
