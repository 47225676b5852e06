package view

import (
	"cmp"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AppendHosted appends a registration as an agent of this node's Web of Agents document
// (draft-gaikwad-woa, 4.1): the part that an anonymous caller may see, under its rid, reached
// through this node's gateway.
func (r *Renderer) AppendHosted(data []byte, entry *directory.Entry) []byte {
	projection := Projection(entry)
	tools := toolsOf(projection)

	inputs, outputs := anyObject, anyObject
	if len(tools) == 1 {
		inputs = schemaOr(tools[0].InputSchema)
		outputs = schemaOr(tools[0].OutputSchema)
	}

	data = strictjson.AppendText(append(data, '{'), "id", entry.RID.String())
	data = strictjson.AppendText(data, "name", title(entry, projection))
	data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, title(entry, projection)))

	data = response.AppendOptional(data, "version", projection.Version)
	if listed := kinds.ListedCapabilities(entry.Document, projection); len(listed) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "capabilities", nil), listed)
	}

	data = strictjson.AppendRaw(strictjson.AppendRaw(data, "inputs", inputs), "outputs", outputs)
	data = strictjson.AppendRaw(data, "transports", []byte(`["rest"]`))

	switch len(tools) {
	case 0:
	case 1:
		data = strictjson.AppendList(strictjson.AppendRaw(data, "operations", nil), tools, appendOperationName)
	default:
		data = strictjson.AppendList(strictjson.AppendRaw(data, "operations", nil), tools, appendOperation)
	}

	return r.appendMarks(data, entry, Options{Timeless: true}, directory.KindWoA)
}

// appendOperationName appends an operation whose schemas are the agent's own.
func appendOperationName(b []byte, c directory.Capability) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", operationName(c))
	return append(strictjson.AppendText(b, "description", cmp.Or(c.Description, operationName(c))), '}')
}
