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

// refreshes measures the cost of refreshes as processor time of all three nodes, which a
// busy machine distorts less than rates.
func refreshes(ctx context.Context, bench *bench) error {
	domain, err := bench.layOut(ctx, filepath.Join(bench.dir, "refreshes"), 3)
	if err != nil {
		return err
	}
	defer domain.close()

	if err := domain.start(ctx); err != nil {
		return err
	}

	const held = 5000

	paths, err := domain.fill(ctx, "f", 0, held, 604800)
	if err != nil {
		return err
	}

	op := func(ctx context.Context, w, i int) error {
		return domain.refresh(ctx, w%len(domain.Nodes), paths[(w*7919+i)%held], 604800)
	}

	busy := domain.side("refreshes", op)
	if _, err := busy.turn(ctx, manyClients, time.Second); err != nil {
		return err
	}

	var cores, rates []float64
	for range bench.rounds {
		sample, err := busy.turn(ctx, manyClients, bench.turn)
		if err != nil {
			return err
		}

		cores = append(cores, refreshesWanted*sample.cpu.Seconds()/float64(sample.done))
		rates = append(rates, sample.rate())
	}

	bench.report.add(row{Section: "refreshes", What: "cores for 10^6 refreshed every 30 s, one request each",
		Value: median(cores), Unit: "cores",
		Note: "all three processes"})
	bench.report.add(row{Section: "refreshes", What: "refreshes, 128 clients", Value: median(rates), Unit: "/s",
		Note: "on this machine with its clients"})

	return bench.refreshLists(ctx, domain, paths)
}

// listClients and listSize are who refreshes in lists: few, each on behalf of
// many agents, as who runs a million of them would.
const (
	listClients = 8
	listSize    = directory.MaxRenewals
)

// refreshLists measures refreshes that come in lists, at all three nodes, as many
// as the bar names; where this machine does not get so far, its rate says so.
func (b *bench) refreshLists(ctx context.Context, domain *domain, paths []string) error {
	all := make([]apiclient.Renewal, len(paths))
	for i, path := range paths {
		all[i].ID = path[strings.LastIndexByte(path, '/')+1:]
	}

	var clients []*apiclient.Client
	for _, n := range domain.Nodes {
		clients = append(clients, apiclient.NewDirect(n.API, domain.client))
	}

	var cores, rates []float64
	for round := range b.rounds + 1 {
		began := time.Now()
		side := domain.side("refresh-lists", func(ctx context.Context, w, i int) error {
			due := time.Duration(i*listClients+w) * time.Second * listSize / refreshesWanted
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(began.Add(due))):
			}

			at := (w*7919 + i*listSize) % (len(all) - listSize)

			outcomes, err := clients[w%len(clients)].RefreshMany(ctx, all[at:at+listSize])
			for _, one := range outcomes {
				if one.Err != nil {
					return fmt.Errorf("%s: %w", one.ID, one.Err)
				}
			}

			return err
		})

		sample, err := side.turn(ctx, listClients, b.turn)
		if err != nil {
			return err
		}

		if round > 0 {
			done := float64(sample.done) * listSize
			cores = append(cores, refreshesWanted*sample.cpu.Seconds()/done)
			rates = append(rates, done/sample.elapsed.Seconds())
		}
	}

	b.report.add(row{Section: "refreshes", What: "… in lists of 1000", Value: median(cores), Unit: "cores",
		Bar:  atMost(1),
		Note: fmt.Sprintf("all three processes, at %s/s", figure(median(rates)))})

	return nil
}
