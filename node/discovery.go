package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/gateway"
)

// Discovery is how queries are answered. A strict node refuses those that have a
// filter that it can't apply, and else reports it.
type Discovery struct {
	Strict bool `yaml:"strict"`
	// Weights are of a score's components, and add up to 1.
	Weights Weights `yaml:"weights"`
	// Taxonomies are files, each of which says which tags are kinds of which.
	Taxonomies []string `yaml:"taxonomies"`
	// Embeddings is where vectors come from; nowhere if it has no URL.
	Embeddings Embeddings `yaml:"embeddings"`
}

// Weights are discovery.Weights.
type Weights struct {
	Tag      float64 `yaml:"tag"`
	Context  float64 `yaml:"context"`
	Example  float64 `yaml:"example"`
	Protocol float64 `yaml:"protocol"`
}

// Embeddings is an OpenAI-compatible endpoint for vectors.
type Embeddings struct {
	URL     string `yaml:"url"`
	Model   string `yaml:"model"`
	KeyFile string `yaml:"key_file"`
}

// Bounds of taxonomies.
const (
	maxTaxonomies    = 16
	maxTaxonomy      = 4 << 20 // bytes of a file
	maxBroader       = 64      // of a tag
	maxTaxonomyIDLen = 256     // bytes
)

func (c *Config) validateDiscovery() error {
	d := &c.Discovery
	if err := discovery.Weights(d.Weights).Check(); err != nil {
		return fmt.Errorf("discovery.weights: %w", err)
	}
	if n := len(d.Taxonomies); n > maxTaxonomies {
		return fmt.Errorf("discovery.taxonomies: %d are given; at most %d are allowed", n, maxTaxonomies)
	}
	e := d.Embeddings
	if e.URL == "" {
		if e.Model != "" || e.KeyFile != "" {
			return errors.New("discovery.embeddings.url: missing: without it the model and the key are for nothing")
		}
		return nil
	}
	client, err := gateway.NewEmbeddings(e.URL, e.Model, e.KeyFile)
	if err != nil {
		return fmt.Errorf("discovery.embeddings: %w", err)
	}
	client.Close()
	return nil
}

// wireDiscovery starts the index that registrations are found by.
func (n *Node) wireDiscovery() error {
	d := &n.cfg.Discovery
	cfg := discovery.Config{View: n.view, Panics: n.panics, Class: n.policy.Class, Generation: n.policy.Generation, Weights: discovery.Weights(d.Weights)}
	for i, file := range d.Taxonomies {
		t, err := loadTaxonomy(file)
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

// loadTaxonomy reads a taxonomy, YAML or JSON: {id, broader: {TAG: [TAG, …]}}.
func loadTaxonomy(file string) (t discovery.Taxonomy, err error) {
	f, err := os.Open(file)
	if err != nil {
		return t, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTaxonomy+1))
	switch {
	case err != nil:
		return t, err
	case len(b) > maxTaxonomy:
		return t, fmt.Errorf("%s has over %d bytes", file, maxTaxonomy)
	}
	var written struct {
		ID      string              `yaml:"id"`
		Broader map[string][]string `yaml:"broader"`
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&written); err != nil {
		return t, fmt.Errorf("%s: %w", file, err)
	}
	if written.ID == "" || len(written.ID) > maxTaxonomyIDLen {
		return t, fmt.Errorf("%s: id must have 1 to %d bytes: it is how answers name the taxonomy", file, maxTaxonomyIDLen)
	}
	for tag, broader := range written.Broader {
		if len(broader) > maxBroader {
			return t, fmt.Errorf("%s: %.40q is a kind of %d tags; at most %d are allowed", file, tag, len(broader), maxBroader)
		}
		for _, s := range append(broader[:len(broader):len(broader)], tag) {
			if len(s) > directory.MaxTag || discovery.NormalTag(s) == "" {
				return t, fmt.Errorf("%s: %.40q is no tag: it has 1 to %d bytes", file, s, directory.MaxTag)
			}
		}
	}
	return discovery.Taxonomy{ID: written.ID, Broader: written.Broader}, nil
}
