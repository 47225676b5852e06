package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
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

	b.report.add(row{Section: "refreshes", What: "cores for 10^6 refreshed every 30 s, one request each",
		Value: median(cores), Unit: "cores",
		Note: "all three processes"})
	b.report.add(row{Section: "refreshes", What: "refreshes, 128 clients", Value: median(rates), Unit: "/s",
		Note: "on this machine with its clients"})

	return b.refreshLists(ctx, d, paths)
}

// listClients and listSize are who refreshes in lists: few, each on behalf of
// many agents, as who runs a million of them would.
const (
	listClients = 8
	listSize    = directory.MaxRenewals
)

// refreshLists measures refreshes that come in lists, at all three nodes, as many
// as the bar names; where this machine does not get so far, its rate says so.
func (b *bench) refreshLists(ctx context.Context, d *domain, paths []string) error {
	all := make([]apiclient.Renewal, len(paths))
	for i, path := range paths {
		all[i].ID = path[strings.LastIndexByte(path, '/')+1:]
	}

	var clients []*apiclient.Client
	for _, n := range d.Nodes {
		clients = append(clients, apiclient.NewDirect(n.API, d.client))
	}

	var cores, rates []float64
	for round := range b.rounds + 1 {
		began := time.Now()
		side := d.side("refresh-lists", func(ctx context.Context, w, i int) error {
			due := time.Duration(i*listClients+w) * time.Second * listSize / refreshesWanted
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(began.Add(due))):
			}

			at := (w*7919 + i*listSize) % (len(all) - listSize)

			told, err := clients[w%len(clients)].RefreshMany(ctx, all[at:at+listSize])
			for _, one := range told {
				if one.Err != nil {
					return fmt.Errorf("%s: %w", one.ID, one.Err)
				}
			}

			return err
		})

		s, err := side.turn(ctx, listClients, b.turn)
		if err != nil {
			return err
		}

		if round > 0 {
			done := float64(s.done) * listSize
			cores = append(cores, refreshesWanted*s.cpu.Seconds()/done)
			rates = append(rates, done/s.elapsed.Seconds())
		}
	}

	b.report.add(row{Section: "refreshes", What: "… in lists of 1000", Value: median(cores), Unit: "cores",
		Bar:  atMost(1),
		Note: fmt.Sprintf("all three processes, at %s/s", figure(median(rates)))})

	return nil
}
