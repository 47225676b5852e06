package api

import (
	"cmp"
	"strconv"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AIDIP's out-functions: a registration of any kind as draft-cui shows it, in
// full and in a list (spec/views.md).

// agentHref is the path of a registration on this surface.
func agentHref(e *directory.Entry) string { return "/agents/" + e.RID.String() }

// publicID is the id that a registration has where ids are given: that one, else
// its rid (spec/views.md, 1).
func publicID(e *directory.Entry) string {
	if k := e.Document.Kind(); k == directory.KindAIDIP || k == directory.KindProfile {
		return e.Agent
	}
	return e.RID.String()
}

// title is an agent's name for people; the one that it is registered by where it
// has none.
func title(e *directory.Entry, p *directory.Projection) string { return cmp.Or(p.Name, e.Agent) }

// endpoint is where an agent is invoked.
func endpoint(p *directory.Projection) string {
	if len(p.Bindings) > 0 {
		return p.Bindings[0].Endpoint
	}
	return p.Base
}

// anyObject is the schema of what nothing is known of.
var anyObject = []byte(`{"type":"object"}`)

// appendAgent appends an agent's metadata in full (cui 3).
func (s *Server) appendAgent(b []byte, e *directory.Entry, l look) []byte {
	b = strictjson.AppendText(append(b, '{'), "id", publicID(e))
	if e.Document.Kind() == directory.KindAIDIP {
		for _, m := range e.Document.Members() {
			if m.Name != "id" {
				b = append(strictjson.AppendString(append(b, ','), m.Name), ':')
				b = append(b, m.Value...)
			}
		}
	} else {
		b = appendAsAgent(b, e, projection(e))
	}
	return s.appendMarks(s.appendGateway(b, e), e, l, directory.KindAIDIP)
}

// appendAsAgent appends the members of a document of another kind.
func appendAsAgent(b []byte, e *directory.Entry, p *directory.Projection) []byte {
	tags := union(nil, p.Tags)
	for i := range p.Capabilities {
		tags = union(tags, p.Capabilities[i].Tags)
	}
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = strictjson.AppendText(b, "version", cmp.Or(p.Version, strconv.FormatUint(e.Statement, 10)))
	b = strictjson.AppendText(b, "publisher", cmp.Or(p.Vendor, e.Origin.Name()))
	b = appendStrings(strictjson.AppendRaw(b, "capabilities", nil), kinds.ListedCapabilities(e.Document, p))
	b = appendStrings(strictjson.AppendRaw(b, "tags", nil), tags)
	b = strictjson.AppendText(b, "endpoint", endpoint(p))
	if len(p.Languages) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "supported_languages", nil), p.Languages)
	}
	b = appendOptionalRaw(b, "authentication", p.Authentication)
	b = strictjson.AppendText(b, "status", p.Status)
	if tools := toolsOf(p); len(tools) > 0 {
		return list(strictjson.AppendRaw(b, "operations", nil), tools, appendOperation)
	}
	return strictjson.AppendRaw(strictjson.AppendRaw(b, "inputs", anyObject), "outputs", anyObject)
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

// operationName is what the agent itself calls an operation.
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

// A hit is what a list says of an agent besides what it is.
type hit struct {
	score    float64
	ranked   bool // there was a query, so there is a score
	language bool // languages were asked for
}

// appendSummary appends an agent as lists show it (cui 4.3), with its status where
// it isn't the usual one.
func (s *Server) appendSummary(b []byte, e *directory.Entry, l look, h hit) []byte {
	p := projection(e)
	b = strictjson.AppendText(append(b, '{'), "id", publicID(e))
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = strictjson.AppendText(b, "endpoint", endpoint(p))
	b = appendStrings(strictjson.AppendRaw(b, "capabilities", nil), kinds.ListedCapabilities(e.Document, p))
	if p.Status != active {
		b = strictjson.AppendText(b, "status", p.Status)
	}
	if h.ranked {
		b = appendNumber(b, "score", h.score)
	}
	b = appendDeclared(b, p, h.language)
	return s.appendMarks(b, e, l, directory.KindAIDIP)
}

// appendDeclared says of an agent that it lists no languages, where languages were
// asked for: it is not filtered out (AI-028).
func appendDeclared(b []byte, p *directory.Projection, asked bool) []byte {
	if asked && len(p.Languages) == 0 {
		b = strictjson.AppendRaw(b, "language_declared", []byte("false"))
	}
	return b
}

func appendNumber(b []byte, name string, n float64) []byte {
	return strictjson.AppendRaw(b, name, strconv.AppendFloat(nil, n, 'g', -1, 64))
}
