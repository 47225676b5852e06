package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A taxonomy is read strictly: what it can't mean is refused by the file's name.
func TestTaxonomies(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"one": {"id: https://alpha.test/tags\nbroader: {Hiking: [out_doors], climbing: [out_doors, sport]}",
			""},
		"JSON":         {`{"id": "https://alpha.test/tags", "broader": {"Hiking": ["out_doors"]}}`, ""},
		"no id":        {"broader: {a: [b]}", "id must have"},
		"unknown key":  {"id: x\nnarrower: {a: [b]}", "narrower not found"},
		"an empty tag": {"id: x\nbroader: {a: ['']}", "is not a tag"},
		"a long tag":   {"id: x\nbroader: {a: [" + strings.Repeat("b", 2000) + "]}", "is not a tag"},
		"too many":     {"id: x\nbroader: {a: [b" + strings.Repeat(", b", 64) + "]}", "at most 64"},
		"too large":    {"id: x\n#" + strings.Repeat("x", maxTaxonomy), "has over"},
		"nothing":      {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tags.yaml")
			must(t, os.WriteFile(file, []byte(c.text), 0o600))

			got, err := LoadTaxonomy(file)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
					t.Errorf("%v, want %q", err, c.want)
				}

				return
			}

			if err != nil || got.ID != "https://alpha.test/tags" ||
				!slices.Contains(got.Broader["Hiking"], "out_doors") {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// The files that discovery names are relative to the configuration.
func TestDiscoveryFilesAreRelative(t *testing.T) {
	text := strings.Replace(Sample, "taxonomies: []", "taxonomies: [tags.yaml]", 1)
	text = strings.Replace(text, `key_file: ""`, "key_file: model.key", 1)
	text = strings.Replace(text, `url: ""`, "url: http://127.0.0.1:9/v1/embeddings", 1)
	path := writeConfig(t, strings.Replace(text, `model: ""`, "model: toy", 1))

	cfg, err := Load(path)
	must(t, err)

	if d, dir := cfg.Discovery, filepath.Dir(path); d.Taxonomies[0] != filepath.Join(dir, "tags.yaml") ||
		d.Embeddings.KeyFile != filepath.Join(dir, "model.key") {
		t.Errorf("%+v", d)
	}
}
