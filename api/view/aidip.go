package view

import (
	"cmp"
	"strconv"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AIDIP is the surface of draft-cui-ai-agent-discovery-invocation.
func (r *Renderer) AIDIP() Surface { return Surface{Href: AgentHref, Append: r.appendAgent} }

// AgentHref is the path of a registration on the AIDIP surface.
func AgentHref(e *directory.Entry) string { return "/agents/" + e.RID.String() }

// PublicID is the id of a registration on surfaces where documents have ids: the
// document's own, else the rid.
func PublicID(entry *directory.Entry) string {
	if kind := entry.Document.Kind(); kind == directory.KindAIDIP || kind == directory.KindProfile {
		return entry.Agent
	}

	return entry.RID.String()
}

// title is an agent's name for people; without one, the name that it is registered by.
func title(e *directory.Entry, p *directory.Projection) string { return cmp.Or(p.Name, e.Agent) }

// endpoint is the URI that an agent is invoked at.
func endpoint(projection *directory.Projection) string {
	if len(projection.Bindings) > 0 {
		return projection.Bindings[0].Endpoint
	}

	return projection.Base
}

// anyObject is the schema of inputs and outputs that have none.
var anyObject = []byte(`{"type":"object"}`)

// appendAgent appends an agent's metadata in full (cui 3).
func (r *Renderer) appendAgent(data []byte, entry *directory.Entry, opt Options) []byte {
	data = strictjson.AppendText(append(data, '{'), "id", PublicID(entry))
	if entry.Document.Kind() == directory.KindAIDIP {
		data = appendMembers(data, entry.Document, "id")
	} else {
		data = appendAsAgent(data, entry, Projection(entry))
	}

	return r.appendMarks(r.appendGateway(data, entry), entry, opt, directory.KindAIDIP)
}

// appendGateway appends the path at which this node's gateway invokes an agent, if it
// does.
func (r *Renderer) appendGateway(data []byte, entry *directory.Entry) []byte {
	if r.cfg.Invocable == nil || !r.cfg.Invocable(entry) {
		return data
	}

	return strictjson.AppendText(data, "gateway", AgentHref(entry)+"/invoke")
}

// appendAsAgent appends the members of a document of another kind.
func appendAsAgent(data []byte, entry *directory.Entry, projection *directory.Projection) []byte {
	data = strictjson.AppendText(data, "name", title(entry, projection))
	data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, title(entry, projection)))
	data = strictjson.AppendText(data, "version", cmp.Or(projection.Version, strconv.FormatUint(entry.Statement, 10)))
	data = strictjson.AppendText(data, "publisher", cmp.Or(projection.Vendor, entry.Origin.Name()))
	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "capabilities", nil),
		kinds.ListedCapabilities(entry.Document, projection))
	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "tags", nil), allTags(projection))

	data = strictjson.AppendText(data, "endpoint", endpoint(projection))
	if len(projection.Languages) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "supported_languages", nil), projection.Languages)
	}

	data = response.AppendOptionalRaw(data, "authentication", projection.Authentication)
	data = strictjson.AppendText(data, "status", projection.Status)

	if tools := toolsOf(projection); len(tools) > 0 {
		return strictjson.AppendList(strictjson.AppendRaw(data, "operations", nil), tools, appendOperation)
	}

	return strictjson.AppendRaw(strictjson.AppendRaw(data, "inputs", anyObject), "outputs", anyObject)
}

// allTags are the tags of an agent and of its capabilities.
func allTags(projection *directory.Projection) []string {
	tags := response.Union(nil, projection.Tags)
	for i := range projection.Capabilities {
		tags = response.Union(tags, projection.Capabilities[i].Tags)
	}

	return tags
}

// toolsOf returns the capabilities that can be called.
func toolsOf(p *directory.Projection) []directory.Capability {
	var tools []directory.Capability
	for _, c := range p.Capabilities {
		if c.Type == "tool" {
			tools = append(tools, c)
		}
	}

	return tools
}

// operationName is the agent's own name of an operation.
func operationName(c directory.Capability) string { return cmp.Or(c.Operation, c.Name) }

func appendOperation(data []byte, capability directory.Capability) []byte {
	data = strictjson.AppendText(append(data, '{'), "name", operationName(capability))
	data = strictjson.AppendText(data, "description", cmp.Or(capability.Description, operationName(capability)))
	data = strictjson.AppendRaw(data, "inputs", schemaOr(capability.InputSchema))

	return append(strictjson.AppendRaw(data, "outputs", schemaOr(capability.OutputSchema)), '}')
}

func schemaOr(schema []byte) []byte {
	if schema == nil {
		return anyObject
	}

	return schema
}

// A Match has the members of a list item that belong to the query.
type Match struct {
	Score    float64
	Ranked   bool // there was a query, so there is a score
	Language bool // the query asked for languages
}

// AppendSummary appends an agent as lists show it (cui 4.3), with its status if that is
// not active.
func (r *Renderer) AppendSummary(data []byte, entry *directory.Entry, opt Options, match Match) []byte {
	projection := Projection(entry)
	data = strictjson.AppendText(append(data, '{'), "id", PublicID(entry))
	data = strictjson.AppendText(data, "agent", entry.Agent)
	data = strictjson.AppendText(data, "name", title(entry, projection))
	data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, title(entry, projection)))
	data = strictjson.AppendText(data, "endpoint", endpoint(projection))

	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "capabilities", nil),
		kinds.ListedCapabilities(entry.Document, projection))
	if projection.Status != Active {
		data = strictjson.AppendText(data, "status", projection.Status)
	}

	if match.Ranked {
		data = response.AppendNumber(data, "score", match.Score)
	}

	data = appendDeclared(data, projection, match.Language)

	return r.appendMarks(data, entry, opt, directory.KindAIDIP)
}

// AppendSummaries appends a bare array of agents (AI-029).
func (r *Renderer) AppendSummaries(b []byte, entries []*directory.Entry, opt Options, match Match) []byte {
	return strictjson.AppendList(b, entries, func(b []byte, e *directory.Entry) []byte {
		return r.AppendSummary(b, e, opt, match)
	})
}

// appendDeclared says that an agent lists no languages, if the query asked for
// languages: such an agent is not filtered out (AI-028).
func appendDeclared(data []byte, p *directory.Projection, asked bool) []byte {
	if asked && len(p.Languages) == 0 {
		data = strictjson.AppendRaw(data, "language_declared", []byte("false"))
	}

	return data
}
