package agents

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/kinds"
)

// exportedAs returns the conversion of an AD document, and its output.
func exportedAs(t *testing.T, as directory.Kind, agent, document string) (*conversion, []byte) {
	t.Helper()

	parsed, err := directory.ParseDocument(directory.KindAD, []byte(document))
	must(t, err)

	projection, err := kinds.Reproject(agent, parsed)
	must(t, err)

	version := projection.Version
	if version == "" {
		version = "17"
	}

	conv := &conversion{agent: agent, projection: projection, version: version, registered: time.Unix(0, 0)}

	body, err := exportForms[as](conv)
	must(t, err)

	return conv, body
}

// An exported server.json is valid by the registry's own schema, or the members that are not are
// named; no others are.
//
// Requirement: CAT-006
func TestExportedServersAreValidInTheirRegistry(t *testing.T) {
	schema := schemaIn(t, "server.schema.json")

	const base = `"base":"https://weather.example/mcp","protocols":["mcp"]`

	long := strings.Repeat("天气", 120)

	for _, x := range []struct {
		agent, document string
		invalid         []string // members
	}{
		{"com.example/weather", `{` + base + `}`, nil},
		{"com.example/weather", `{` + base + `,"description":"` + long + `","version":"1.0.0","vendor":"E"}`, nil},
		{"com.example/weather", `{` + base + `,"capabilities":[{"name":"forecast","type":"tool"}]}`, nil},
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
		checkExport(t, schema, directory.KindMCP, x.agent, x.document, x.invalid)
	}
}

// schemaIn returns the schema in a file of testdata.
func schemaIn(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()

	text, err := os.ReadFile("testdata/" + name)
	must(t, err)

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)

	compiler := jsonschema.NewCompiler()
	must(t, compiler.AddResource(name, value))

	compiler.AssertFormat()

	schema, err := compiler.Compile(name)
	must(t, err)

	return schema
}

// checkExport converts an AD document. The members that the command names as invalid have to be
// the given ones, and those that the schema refuses.
func checkExport(t *testing.T, schema *jsonschema.Schema, as directory.Kind, agent, document string,
	invalid []string,
) {
	t.Helper()

	conv, body := exportedAs(t, as, agent, document)

	exported, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	must(t, err)

	var named []string
	for _, member := range conv.invalid {
		name, _, _ := strings.Cut(member, " ")
		named = append(named, name)
	}

	slices.Sort(named)

	if !slices.Equal(named, invalid) {
		t.Errorf("%s %.200s: named are %q, want %q", agent, document, named, invalid)
	}

	err = schema.Validate(exported)
	if (err == nil) != (len(named) == 0) {
		t.Errorf("%s %.200s: named are %q, and the schema says %v", agent, document, named, err)
	}

	for _, name := range named {
		if err != nil && !strings.Contains(err.Error(), "/"+name) {
			t.Errorf("%s %.200s: %s is named, and the schema says %v", agent, document, name, err)
		}
	}
}

// An exported OASF record is valid by the schema of OASF 1.0, or the members that are not are
// named.
//
// Requirement: CAT-006
func TestExportedRecordsAreValidInOASF(t *testing.T) {
	schema := schemaIn(t, "record.schema.json")

	const (
		base  = `{"base":"https://x.example/x","vendor":"Example","protocols":["a2a","mcp","https"]`
		skill = `{"name":"agent_orchestration/task_decomposition","type":"skill"}`
	)

	for _, x := range []struct {
		document string
		invalid  []string // members
	}{
		{base + `,"capabilities":[` + skill + `]}`, nil},
		{base + `,"name":"X","description":"Plans.","version":"1","tags":["education/pedagogy","fun"],` +
			`"capabilities":[` + skill + `]}`, nil},
		{base + `,"capabilities":[` + skill + `,{"name":"forecast","type":"tool","description":"F.",` +
			`"input_schema":{"type":"object"}}]}`, []string{"skills"}},
		{base + `}`, []string{"skills"}},
		{`{"base":"pkg:npm/weather","protocols":["mcp"],"capabilities":[` + skill + `]}`, []string{"authors"}},
		{`{"base":"pkg:npm/weather","protocols":["mcp"]}`, []string{"authors", "skills"}},
		{`{"base":"https://x.example","vendor":"E","protocols":["mcp"],"capabilities":[` + skill + `],"bindings":[` +
			`{"protocol":"mcp","transport":"stdio","endpoint":"https://x.example/mcp"},` +
			`{"protocol":"container_image","endpoint":"https://ghcr.io/x"}]}`, nil},
	} {
		checkExport(t, schema, directory.KindOASF, "com.example/weather", x.document, x.invalid)
	}

	for _, family := range []string{"skill", "domain"} {
		for line := range strings.Lines(oasfClasses) {
			name, found := strings.CutPrefix(strings.TrimSpace(line), family+" ")
			if !found {
				continue
			}

			class := map[string]any{"name": name}
			record := map[string]any{"name": "x", "version": "1", "schema_version": "1.0.0", "description": "X.",
				"authors": []any{"X"}, "created_at": "2026-01-02T03:04:05Z",
				"skills": []any{map[string]any{"name": "agent_orchestration/task_decomposition"}}}

			record[family+"s"] = []any{class}
			if err := schema.Validate(record); err != nil {
				t.Errorf("%s %s: %v", family, name, err)
			}
		}
	}
}

// An exported agent card is valid by A2A 1.0.
//
// Requirement: CAT-006
func TestExportedCardsAreValidInA2A(t *testing.T) {
	schema := schemaIn(t, "agent-card.schema.json")

	for _, document := range []string{
		`{"base":"https://x.example/a2a","protocols":["a2a"]}`,
		`{"base":"https://x.example/a2a","protocols":["a2a","https"],"vendor":"E","version":"2","name":"X",` +
			`"description":"Plans.","tags":["a"],"authentication":{"type":"bearer"},"capabilities":[{"name":"p",` +
			`"type":"skill","tags":["b"]},{"name":"q","type":"tool","input_schema":{"type":"object"}}],` +
			`"bindings":[{"protocol":"a2a","endpoint":"https://x.example/rest","transport":"HTTP+JSON"}]}`,
	} {
		checkExport(t, schema, directory.KindA2A, "planner", document, nil)
	}
}

// An exported server.json has the server's tools in the place where they are read, and says which
// capabilities it leaves out.
//
// Requirement: CAT-006
func TestExportedServersHaveTools(t *testing.T) {
	conv, body := exportedAs(t, directory.KindMCP, "com.example/weather", `{"base":"https://weather.example/mcp",`+
		`"protocols":["mcp"],"capabilities":[{"name":"forecast","type":"tool","description":"Tells rain.",`+
		`"input_schema":{"type":"object"}},{"name":"plan","type":"skill"},{"name":"now","type":"tool"}]}`)

	parsed, err := directory.ParseDocument(directory.KindMCP, body)
	must(t, err)

	projection, err := kinds.Project("com.example/weather", parsed)
	must(t, err)

	var tools []string
	for _, capability := range projection.Capabilities {
		tools = append(tools, capability.Type+" "+capability.Name+" "+capability.Description)
	}

	if want := []string{"tool forecast Tells rain.", "tool now "}; !slices.Equal(tools, want) {
		t.Errorf("tools are %q, want %q; %s", tools, want, body)
	}

	for _, lost := range []string{"schemas of capabilities", "capability plan (not a tool)"} {
		if !slices.Contains(conv.lost, lost) {
			t.Errorf("lost are %q, want %q", conv.lost, lost)
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

var must = directorytest.Must
