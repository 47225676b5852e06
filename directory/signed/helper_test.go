package signed_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// update writes the golden files anew. A format that peers have seen never
// changes: a changed golden file is a new format.
var update = flag.Bool("update", false, "write the golden files anew")

var (
	alpha        = directorytest.Alpha
	beta         = directorytest.Beta
	gamma        = directorytest.Gamma
	rid          = directorytest.RID
	hash         = directorytest.Hash
	mustIdentity = directorytest.Identity
	mustDocument = directorytest.Document
)

const noon = directorytest.Noon

// manyMembers returns an object with n members.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":%d`, i, i)
	}

	return "{" + b.String()[1:] + "}"
}

// golden compares got with a file of testdata, byte for byte.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	directorytest.Golden(t, *update, name, got)
}

// Documents of several kinds, to begin fuzzing with.
// jimenez41 is the example of draft-jimenez-agent-directory-01, 4.1.
const jimenez41 = `{
  "base": "https://agents.example.com/summarizer-v2",
  "description": "Summarizes documents and extracts named entities",
  "protocols": ["a2a"],
  "capabilities": [
    {
      "name": "summarize",
      "type": "tool",
      "description": "Summarize a document or text passage",
      "input_schema": {"type": "object", "properties": {"text": {"type": "string"}, "max_length": {"type": "integer"}}, "required": ["text"]}
    },
    {"name": "extract_entities", "type": "tool", "description": "Extract named entities from text"}
  ],
  "version": "2.1.0",
  "vendor": "Example Corp",
  "identity": "https://registry.example.com/agents/summarizer-v2",
  "identity_type": "aip"
}`

// card is an A2A agent card with all that is projected.
const card = `{"protocolVersion":"0.3.0","name":"Route Planner","description":"Plans routes.","url":"https://Planner.test:8443/a2a/v1/",
	"preferredTransport":"GRPC","additionalInterfaces":[{"url":"https://Planner.test:8443/a2a/v1/","transport":"GRPC"},{"url":"https://planner.test/json","transport":"HTTP+JSON"}],
	"version":"3.1","provider":{"organization":"Planner Ltd","url":"https://planner.test"},"capabilities":{"streaming":true},
	"defaultInputModes":["text/plain"],"securitySchemes":{"bearer":{"type":"http"}},"security":[{"bearer":[]}],
	"skills":[{"id":"plan","name":"Plan a route","description":"From A to B","tags":["maps","travel"],"examples":["From Ulm to Bern"]},{"id":"avoid","name":"Avoid","tags":[]}],
	"registryTags":["demo"]}`

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

// gaikwadB is the example of draft-gaikwad-woa, appendix B.
const gaikwadB = `{"woa_version":"1","agents":[{"id":"summarizer","name":"Document Summarizer","description":"Summarizes English text.","version":"1.0.0",
	"capabilities":["https://example.com/capability/summarization"],
	"inputs":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"text":{"type":"string"},"max_words":{"type":"integer","minimum":10}},"required":["text"]},
	"outputs":{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"]},
	"transports":["rest"],"operations":[{"name":"default","description":"Default summarization operation."}]}],
	"transports":{"rest":{"base":"https://api.example.com","invoke_path":"/agents/{agent_id}/invoke"}}}`
