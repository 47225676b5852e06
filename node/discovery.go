package node

import (
	"context"
	"fmt"

	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/node/config"
)

// wireDiscovery starts the index that registrations are found by.
func (n *Node) wireDiscovery() error {
	d := &n.cfg.Discovery
	cfg := discovery.Config{View: n.view, Panics: n.panics, Class: n.policy.Class, Generation: n.policy.Generation, Weights: discovery.Weights(d.Weights)}
	for i, file := range d.Taxonomies {
		t, err := config.LoadTaxonomy(file)
		if err != nil {
			return fmt.Errorf("discovery.taxonomies[%d]: %w", i, err)
		}
		for _, other := range cfg.Taxonomies {
			if other.ID == t.ID {
				return fmt.Errorf("discovery.taxonomies[%d]: %s has the id %q of another", i, file, t.ID)
			}
		}
		cfg.Taxonomies = append(cfg.Taxonomies, t)
	}
	if e := d.Embeddings; e.URL != "" {
		client, err := gateway.NewEmbeddings(e.URL, e.Model, e.KeyFile)
		if err != nil {
			return fmt.Errorf("discovery.embeddings: %w", err)
		}
		cfg.Embedder = client
		n.life.onStop("embeddings", func(context.Context) error { client.Close(); return nil })
	}
	finder, err := discovery.New(cfg)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	n.finder = finder
	n.life.onStop("discovery", func(context.Context) error { finder.Close(); return nil })
	n.life.loop("discovery index", func(ctx context.Context) {
		if err := finder.Run(ctx); ctx.Err() == nil {
			n.log.Error("the discovery index follows no more", "err", err)
		}
	})
	return nil
}
