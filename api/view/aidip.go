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
func PublicID(e *directory.Entry) string {
	if kind := e.Document.Kind(); kind == directory.KindAIDIP || kind == directory.KindProfile {
		return e.Agent
	}

	return e.RID.String()
}

// title is an agent's name for people; without one, the name that it is registered by.
func title(e *directory.Entry, p *directory.Projection) string { return cmp.Or(p.Name, e.Agent) }

// endpoint is the URI that an agent is invoked at.
func endpoint(p *directory.Projection) string {
	if len(p.Bindings) > 0 {
		return p.Bindings[0].Endpoint
	}

	return p.Base
}

// anyObject is the schema of inputs and outputs that have none.
var anyObject = []byte(`{"type":"object"}`)

// appendAgent appends an agent's metadata in full (cui 3).
func (r *Renderer) appendAgent(b []byte, e *directory.Entry, opt Options) []byte {
	b = strictjson.AppendText(append(b, '{'), "id", PublicID(e))
	if e.Document.Kind() == directory.KindAIDIP {
		b = appendMembers(b, e.Document, "id")
	} else {
		b = appendAsAgent(b, e, Projection(e))
	}

	return r.appendMarks(r.appendGateway(b, e), e, opt, directory.KindAIDIP)
}

// appendGateway appends the path at which this node's gateway invokes an agent, if it
// does.
func (r *Renderer) appendGateway(b []byte, e *directory.Entry) []byte {
	if r.cfg.Invocable == nil || !r.cfg.Invocable(e) {
		return b
	}

	return strictjson.AppendText(b, "gateway", AgentHref(e)+"/invoke")
}

// appendAsAgent appends the members of a document of another kind.
func appendAsAgent(b []byte, e *directory.Entry, p *directory.Projection) []byte {
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = strictjson.AppendText(b, "version", cmp.Or(p.Version, strconv.FormatUint(e.Statement, 10)))
	b = strictjson.AppendText(b, "publisher", cmp.Or(p.Vendor, e.Origin.Name()))
	b = response.AppendStrings(strictjson.AppendRaw(b, "capabilities", nil), kinds.ListedCapabilities(e.Document, p))
	b = response.AppendStrings(strictjson.AppendRaw(b, "tags", nil), allTags(p))
	b = strictjson.AppendText(b, "endpoint", endpoint(p))
	if len(p.Languages) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "supported_languages", nil), p.Languages)
	}
	b = response.AppendOptionalRaw(b, "authentication", p.Authentication)
	b = strictjson.AppendText(b, "status", p.Status)

	if tools := toolsOf(p); len(tools) > 0 {
		return response.AppendList(strictjson.AppendRaw(b, "operations", nil), tools, appendOperation)
	}

	return strictjson.AppendRaw(strictjson.AppendRaw(b, "inputs", anyObject), "outputs", anyObject)
}

// allTags are the tags of an agent and of its capabilities.
func allTags(p *directory.Projection) []string {
	tags := response.Union(nil, p.Tags)
	for i := range p.Capabilities {
		tags = response.Union(tags, p.Capabilities[i].Tags)
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

func appendOperation(b []byte, c directory.Capability) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", operationName(c))
	b = strictjson.AppendText(b, "description", cmp.Or(c.Description, operationName(c)))
	b = strictjson.AppendRaw(b, "inputs", schemaOr(c.InputSchema))

	return append(strictjson.AppendRaw(b, "outputs", schemaOr(c.OutputSchema)), '}')
}

func schemaOr(schema []byte) []byte {
	if schema == nil {
		return anyObject
	}

	return schema
}

// A Match is what a list says about an agent as the answer to a query.
type Match struct {
	Score    float64
	Ranked   bool // there was a query, so there is a score
	Language bool // the query asked for languages
}

// AppendSummary appends an agent as lists show it (cui 4.3), with its status if that is
// not active.
func (r *Renderer) AppendSummary(b []byte, e *directory.Entry, opt Options, match Match) []byte {
	p := Projection(e)
	b = strictjson.AppendText(append(b, '{'), "id", PublicID(e))
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = strictjson.AppendText(b, "endpoint", endpoint(p))
	b = response.AppendStrings(strictjson.AppendRaw(b, "capabilities", nil), kinds.ListedCapabilities(e.Document, p))
	if p.Status != Active {
		b = strictjson.AppendText(b, "status", p.Status)
	}
	if match.Ranked {
		b = response.AppendNumber(b, "score", match.Score)
	}
	b = appendDeclared(b, p, match.Language)

	return r.appendMarks(b, e, opt, directory.KindAIDIP)
}

// AppendSummaries appends a bare array of agents (AI-029).
func (r *Renderer) AppendSummaries(b []byte, entries []*directory.Entry, opt Options, match Match) []byte {
	return response.AppendList(b, entries, func(b []byte, e *directory.Entry) []byte {
		return r.AppendSummary(b, e, opt, match)
	})
}

// appendDeclared says that an agent lists no languages, if the query asked for
// languages: such an agent is not filtered out (AI-028).
func appendDeclared(b []byte, p *directory.Projection, asked bool) []byte {
	if asked && len(p.Languages) == 0 {
		b = strictjson.AppendRaw(b, "language_declared", []byte("false"))
	}

	return b
}
