package catalog

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// exportedAs returns the conversion of an AD document, and what it wrote.
func exportedAs(t *testing.T, as directory.Kind, agent, document string) (*conversion, []byte) {
	t.Helper()

	parsed, err := directory.ParseDocument(directory.KindAD, []byte(document))
	if err != nil {
		t.Fatal(err)
	}

	projection, err := kinds.Reproject(agent, parsed)
	if err != nil {
		t.Fatal(err)
	}

	version := projection.Version
	if version == "" {
		version = "17"
	}

	conv := &conversion{agent: agent, projection: projection, version: version, registered: time.Unix(0, 0)}

	body, err := exportForms[as](conv)
	if err != nil {
		t.Fatal(err)
	}

	return conv, body
}

// An exported server.json is valid by the registry's own schema, or the members that are not are
// named; no others are.
//
// Requirement: CAT-006
func TestExportedServersAreValidInTheirRegistry(t *testing.T) {
	text, err := os.ReadFile("testdata/server.schema.json")
	if err != nil {
		t.Fatal(err)
	}

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}

	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("server.schema.json", value); err != nil {
		t.Fatal(err)
	}

	schema, err := compiler.Compile("server.schema.json")
	if err != nil {
		t.Fatal(err)
	}

	const base = `"base":"https://weather.example/mcp","protocols":["mcp"]`

	long := strings.Repeat("天气", 120)

	for _, x := range []struct {
		agent, document string
		invalid         []string // members
	}{
		{"com.example/weather", `{` + base + `}`, nil},
		{"com.example/weather", `{` + base + `,"description":"` + long + `","version":"1.0.0","vendor":"E"}`, nil},
		{"weather", `{` + base + `}`, []string{"name"}},
		{"com.example/a/b", `{` + base + `}`, []string{"name"}},
		{"com.example/" + strings.Repeat("a", 200), `{` + base + `}`, []string{"name"}},
		{"com.example/weather", `{` + base + `,"version":"` + strings.Repeat("1", 300) + `"}`, []string{"version"}},
		{"com.example/weather", `{` + base + `,"bindings":[{"protocol":"mcp","transport":"stdio",` +
			`"endpoint":"https://weather.example/mcp"}]}`, []string{"remotes"}},
		{"com.example/weather", `{"base":"pkg:npm/weather","protocols":["mcp"]}`, []string{"remotes"}},
		{"天气", `{"base":"urn:weather","protocols":["mcp"],"version":"` + strings.Repeat("1", 300) + `"}`,
			[]string{"name", "remotes", "version"}},
	} {
		conv, body := exportedAs(t, directory.KindMCP, x.agent, x.document)

		exported, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}

		var named []string
		for _, member := range conv.invalid {
			name, _, _ := strings.Cut(member, " ")
			named = append(named, name)
		}

		slices.Sort(named)

		if !slices.Equal(named, x.invalid) {
			t.Errorf("%s %.200s: named are %q, want %q", x.agent, x.document, named, x.invalid)
		}

		err = schema.Validate(exported)
		if (err == nil) != (len(named) == 0) {
			t.Errorf("%s %.200s: named are %q, and the schema says %v", x.agent, x.document, named, err)
		}

		for _, name := range named {
			if err != nil && !strings.Contains(err.Error(), "/"+name) {
				t.Errorf("%s %.200s: %s is named, and the schema says %v", x.agent, x.document, name, err)
			}
		}
	}
}

// Exported cards, records and Web of Agents documents are what the importer of their kind takes.
//
// Requirement: CAT-006
func TestExportsAreImported(t *testing.T) {
	for kind, protocol := range map[directory.Kind]string{
		directory.KindA2A: "a2a", directory.KindMCP: "mcp", directory.KindOASF: "a2a", directory.KindWoA: "https",
	} {
		_, body := exportedAs(t, kind, "com.example/weather", `{"base":"https://weather.example/x","protocols":["`+
			protocol+`"],"description":"Weather.","vendor":"Example","version":"1","tags":["weather"],`+
			`"capabilities":[{"name":"forecast","type":"skill"},{"name":"report","type":"tool"}]}`)

		parsed, err := directory.ParseDocument(kind, body)
		if err != nil {
			t.Errorf("%s: %v; %s", kind, err, body)
			continue
		}

		projection, err := kinds.Project("com.example/weather", parsed)
		if err != nil {
			t.Errorf("%s: %v; %s", kind, err, body)
			continue
		}

		if projection.Description != "Weather." || len(projection.Bindings) != 1 ||
			projection.Bindings[0].Endpoint != "https://weather.example/x" {
			t.Errorf("%s is read as %+v", kind, projection)
		}
	}
}
