package view

import (
	"cmp"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AppendHosted appends a registration as an agent of this node's Web of Agents document
// (draft-gaikwad-woa, 4.1): what an anonymous caller may see, under its rid, reached
// through this node's gateway.
func (r *Renderer) AppendHosted(b []byte, e *directory.Entry) []byte {
	p := Projection(e)
	tools := toolsOf(p)
	inputs, outputs := anyObject, anyObject
	if len(tools) == 1 {
		inputs = schemaOr(tools[0].InputSchema)
		outputs = schemaOr(tools[0].OutputSchema)
	}

	b = strictjson.AppendText(append(b, '{'), "id", e.RID.String())
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = response.AppendOptional(b, "version", p.Version)
	if listed := kinds.ListedCapabilities(e.Document, p); len(listed) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "capabilities", nil), listed)
	}
	b = strictjson.AppendRaw(strictjson.AppendRaw(b, "inputs", inputs), "outputs", outputs)
	b = strictjson.AppendRaw(b, "transports", []byte(`["rest"]`))

	switch len(tools) {
	case 0:
	case 1:
		b = response.AppendList(strictjson.AppendRaw(b, "operations", nil), tools, appendOperationName)
	default:
		b = response.AppendList(strictjson.AppendRaw(b, "operations", nil), tools, appendOperation)
	}

	return r.appendMarks(b, e, Options{Timeless: true}, directory.KindWoA)
}

// appendOperationName appends an operation whose schemas are the agent's own.
func appendOperationName(b []byte, c directory.Capability) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", operationName(c))
	return append(strictjson.AppendText(b, "description", cmp.Or(c.Description, operationName(c))), '}')
}
