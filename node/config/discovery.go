package config

import (
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

func (d *Discovery) validate(r *report) {
	r.check("discovery.weights", discovery.Weights(d.Weights).Check())
	r.require(len(d.Taxonomies) <= maxTaxonomies, "discovery.taxonomies", "at most %d are allowed, got %d",
		maxTaxonomies, len(d.Taxonomies))
	d.Embeddings.validate(r)
}

func (e *Embeddings) validate(r *report) {
	if e.URL == "" {
		r.require(e.Model == "" && e.KeyFile == "", "discovery.embeddings.url", "missing: model and key_file need it")
		return
	}

	client, err := gateway.NewEmbeddings(e.URL, e.Model, e.KeyFile)
	if err != nil {
		r.check("discovery.embeddings", err)
		return
	}

	client.Close()
}
