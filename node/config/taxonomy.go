package config

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/content"
)

const (
	maxTaxonomy   = 4 << 20 // bytes of a file
	maxBroader    = 64      // broader tags of one tag
	maxTaxonomyID = 256     // bytes
)

// LoadTaxonomy reads a taxonomy in YAML or JSON: {id, broader: {TAG: [TAG, …]}}.
func LoadTaxonomy(file string) (content.Taxonomy, error) {
	text, err := readAtMost(file, maxTaxonomy)
	if err != nil {
		return content.Taxonomy{}, err
	}

	var written struct {
		ID      string              `yaml:"id"`
		Broader map[string][]string `yaml:"broader"`
	}

	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)

	if err := decoder.Decode(&written); err != nil {
		return content.Taxonomy{}, fmt.Errorf("%s: %w", file, err)
	}

	// Answers name the taxonomy by its id.
	if written.ID == "" || len(written.ID) > maxTaxonomyID {
		return content.Taxonomy{}, fmt.Errorf("%s: id must have 1 to %d bytes, got %d", file, maxTaxonomyID,
			len(written.ID))
	}

	for tag, broader := range written.Broader {
		if len(broader) > maxBroader {
			return content.Taxonomy{}, fmt.Errorf("%s: %.40q has %d broader tags; at most %d are allowed",
				file, tag, len(broader), maxBroader)
		}

		// The capacity is cut, so that append copies the list and writes nothing behind it.
		for _, each := range append(broader[:len(broader):len(broader)], tag) {
			if len(each) > directory.MaxTag || content.NormalTag(each) == "" {
				return content.Taxonomy{}, fmt.Errorf("%s: %.40q is not a tag: it must have 1 to %d bytes",
					file, each, directory.MaxTag)
			}
		}
	}

	return content.Taxonomy{ID: written.ID, Broader: written.Broader}, nil
}

func readAtMost(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has over %d bytes", file, limit)
	}

	return text, err
}
