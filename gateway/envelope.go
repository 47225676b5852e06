package gateway

import (
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// A woaAgent is what a WoA document says of how its one agent is called, beyond
// its binding.
type woaAgent struct {
	id               string
	namespace, field string // of the mcp transport (gaikwad 4.3.2)
}

// woaOf reads a WoA document; of other kinds, all is empty but the id, which is the
// registered name.
func woaOf(e *directory.Entry) woaAgent {
	if e.Document.Kind() != directory.KindWoA {
		return woaAgent{id: e.Agent}
	}
	var doc struct {
		Agents []struct {
			ID string `json:"id"`
		} `json:"agents"`
		Transports struct {
			MCP struct {
				Namespace string `json:"tool_namespace"`
				Field     string `json:"tool_field"`
			} `json:"mcp"`
		} `json:"transports"`
	}
	if err := json.Unmarshal(e.Document.Bytes(), &doc); err != nil || len(doc.Agents) == 0 {
		return woaAgent{id: e.Agent}
	}
	return woaAgent{doc.Agents[0].ID, doc.Transports.MCP.Namespace, doc.Transports.MCP.Field}
}
