package kinds_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// oasfRecord is a record of OASF 1.0 with all that is projected.
const oasfRecord = `{"name":"directory.agntcy.org/example/planner","version":"v4.0.0","schema_version":"1.0.0","description":"Plans.","created_at":"2026-03-19T17:06:37Z",
	"authors":["Ada Lovelace <ada@example.com>","Bob"],"annotations":{"key":"value"},
	"skills":[{"name":"natural_language_processing/problem_solving","id":10702},{"id":1501},{"name":"natural_language_processing/problem_solving"}],
	"domains":[{"name":"life_science/biotechnology"}],
	"locators":[{"type":"container_image","urls":["https://ghcr.io/agntcy/planner","https://mirror.test/planner"]}],
	"modules":[{"name":"core/license","data":{"license":"Apache-2.0"}},
		{"name":"integration/a2a","data":{"card_schema_version":"1.0.0","card_data":{"name":"Planner","supportedInterfaces":[{"url":"https://planner.test/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
			"securitySchemes":{"bearer":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}},"securityRequirements":[{"schemes":{"bearer":{}}}]}}},
		{"name":"integration/mcp","data":{"name":"planner","connections":[{"type":"stdio","command":"docker"},{"type":"streamable-http","url":"https://planner.test/mcp","headers":{"Authorization":"{token}"}}]}}]}`

func TestProjectOASF(t *testing.T) {
	d := mustDocument(t, directory.KindOASF, oasfRecord)

	want := &directory.Projection{
		Name: "directory.agntcy.org/example/planner", Description: "Plans.", Base: "https://planner.test/a2a",
		Protocols: []string{"a2a", "mcp", "container_image"},
		Bindings: []directory.Binding{
			{Protocol: "a2a", Endpoint: "https://planner.test/a2a", Transport: "JSONRPC"},
			{Protocol: "mcp", Endpoint: "https://planner.test/mcp", Transport: "streamable-http"},
			{Protocol: "container_image", Endpoint: "https://ghcr.io/agntcy/planner"},
			{Protocol: "container_image", Endpoint: "https://mirror.test/planner"},
		},
		Capabilities: []directory.Capability{{Name: "natural_language_processing/problem_solving", Type: "skill"},
			{Name: "1501", Type: "skill"}},
		Tags:           []string{"life_science/biotechnology"},
		Authentication: []byte(`{"securitySchemes":{"bearer":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}},"securityRequirements":[{"schemes":{"bearer":{}}}]}`),
		Status:         "active", Version: "v4.0.0", Vendor: "Ada Lovelace <ada@example.com>",
	}
	if p := mustProject(t, "x", d); !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	if name, err := kinds.DefaultName(d); name != want.Name || err != nil {
		t.Errorf("its name is %q, %v", name, err)
	}
}

// Records of earlier versions differ in how they name things.
func TestOlderOASF(t *testing.T) {
	for from, want := range map[string]string{
		// 0.3.1
		`"skills":[{"category_name":"NLP","category_uid":1,"class_name":"Text Completion","class_uid":10201},{"class_uid":7}],"locators":[{"type":"docker-image","url":"https://ghcr.io/x"}],
		 "extensions":[{"name":"oasf.agntcy.org/features/runtime/mcp","version":"v0","data":{"servers":{}}}]`: "/extensions/0/data/servers",
		`"skills":[{"category_name":"NLP","category_uid":1,"class_name":"Text Completion","class_uid":10201},{"class_uid":7}],"locators":[{"type":"docker-image","url":"https://ghcr.io/x"}],
		 "extensions":[{"name":"oasf.agntcy.org/features/runtime/framework","version":"v0","data":{"sbom":"x"}}]`: "https://ghcr.io/x docker-image Text Completion,7",
		// 0.7
		`"skills":[{"id":10306,"name":"nlp/search"}],"locators":[{"url":"https://github.com/x/y","type":"source_code"}],
		 "modules":[{"name":"runtime/mcp","data":{"servers":[{"name":"s","type":"local","command":"uvx"},{"name":"r","type":"http","url":"https://r.test/mcp"}]}},
		 {"name":"runtime/a2a","data":{"protocol_version":"0.3.0","card_data":{"name":"r","url":"https://r.test/a2a"}}}]`: "https://r.test/mcp mcp,a2a,source_code nlp/search",
		// a module whose content is elsewhere
		`"locators":[{"type":"url","urls":["https://x.test"]}],"modules":[{"name":"integration/a2a","artifact":{"digest":"sha256:00"}}]`: "https://x.test url ",
	} {
		p, err := kinds.Project("x", mustDocument(t, directory.KindOASF, `{"name":"x",`+from+`}`))
		if err != nil {
			wantRefusal(t, err, directory.BadDocument, want)
			continue
		}

		var skills []string
		for _, c := range p.Capabilities {
			skills = append(skills, c.Name)
		}

		if got := p.Base + " " + strings.Join(p.Protocols, ",") + " " + strings.Join(skills, ","); got != want {
			t.Errorf("%s:\n got %s\nwant %s", from, got, want)
		}
	}
}

func TestProjectOASFRefuses(t *testing.T) {
	record := func(members string) string {
		return `{"name":"x","locators":[{"type":"url","urls":["https://x.test"]}],` + members + `}`
	}
	for _, c := range []struct{ body, pointer string }{
		{`{"locators":[{"type":"url","urls":["https://x.test"]}]}`, "/name"},
		{`{"name":"x"}`, ""},
		{`{"name":"x","locators":[{"type":"url","urls":[]}],"modules":[{"name":"integration/mcp","data":{"connections":[{"type":"stdio","command":"x"}]}}]}`, ""},
		{`{"name":"x","locators":[{"urls":["https://x.test"]}]}`, "/locators/0/type"},
		{`{"name":"x","locators":[{"type":"url","urls":["x.test/y"]}]}`, "/locators/0/urls"},
		{`{"name":"x","locators":[{"type":"url","url":7}]}`, "/locators/0/url"},
		{record(`"skills":[{"annotations":{}}]`), "/skills/0/name"},
		{record(`"skills":[{"name":"x*"}]`), "/skills/0/name"},
		{record(`"domains":"x"`), "/domains"},
		{record(`"authors":"Ada"`), "/authors"},
		{record(`"modules":[{"name":"integration/a2a","data":{"card_data":{"name":"x"}}}]`),
			"/modules/0/data/card_data/url"},
		{record(`"modules":[{"name":"integration/mcp","data":{"connections":[{"url":"{host}/mcp"}]}}]`),
			"/modules/0/data/connections/0/url"},
		{record(`"description":"` + strings.Repeat("x", 4097) + `"`), "/description"},
	} {
		_, err := kinds.Project("x", mustDocument(t, directory.KindOASF, c.body))
		wantRefusal(t, err, directory.BadDocument, c.pointer)
	}
}
