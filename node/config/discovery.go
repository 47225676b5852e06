package config

import (
	"errors"
	"fmt"

	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/gateway"
)

const maxTaxonomies = 16

// Discovery configures the answers to discovery queries.
type Discovery struct {
	// Strict refuses queries with a filter that can't be applied, instead of reporting it.
	Strict bool `yaml:"strict"`
	// Weights are of a score's components, and add up to 1.
	Weights Weights `yaml:"weights"`
	// Taxonomies are files that say which tags are narrower than which.
	Taxonomies []string `yaml:"taxonomies"`
	// Embeddings is the source of vectors; without a URL there are none.
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

func (d *Discovery) validate() error {
	if err := discovery.Weights(d.Weights).Check(); err != nil {
		return fmt.Errorf("discovery.weights: %w", err)
	}

	if n := len(d.Taxonomies); n > maxTaxonomies {
		return fmt.Errorf("discovery.taxonomies: at most %d are allowed, got %d", maxTaxonomies, n)
	}

	return d.Embeddings.validate()
}

func (e *Embeddings) validate() error {
	if e.URL == "" {
		if e.Model != "" || e.KeyFile != "" {
			return errors.New("discovery.embeddings.url: missing: model and key_file need it")
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
