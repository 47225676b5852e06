package api

import (
	"cmp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// appendFronted appends a registration of any kind as an agent of our Web of
// Agents document (draft-gaikwad-woa, 4.1): what an anonymous caller may know, under
// its rid, reached by this node's own transport (spec/views.md, 11, 12).
func (s *Server) appendFronted(b []byte, e *directory.Entry) []byte {
	p := projection(e)
	tools := toolsOf(p)
	inputs, outputs := anyObject, anyObject
	if len(tools) == 1 {
		inputs, outputs = schemaOr(tools[0].InputSchema), schemaOr(tools[0].OutputSchema)
	}
	b = strictjson.AppendText(append(b, '{'), "id", e.RID.String())
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = appendOptional(b, "version", p.Version)
	if listed := kinds.ListedCapabilities(e.Document, p); len(listed) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "capabilities", nil), listed)
	}
	b = strictjson.AppendRaw(strictjson.AppendRaw(b, "inputs", inputs), "outputs", outputs)
	b = strictjson.AppendRaw(b, "transports", []byte(`["rest"]`))
	switch len(tools) {
	case 0:
	case 1:
		b = list(strictjson.AppendRaw(b, "operations", nil), tools, appendOperationName)
	default:
		b = list(strictjson.AppendRaw(b, "operations", nil), tools, appendOperation)
	}
	return s.appendMarks(b, e, look{timeless: true}, directory.KindWoA)
}

// appendOperationName appends an operation whose schemas are the agent's own.
func appendOperationName(b []byte, c directory.Capability) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", operationName(c))
	return append(strictjson.AppendText(b, "description", cmp.Or(c.Description, operationName(c))), '}')
}
