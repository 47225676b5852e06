package view

import (
	"slices"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AD is the surface of draft-jimenez-agent-directory-01.
func (r *Renderer) AD() Surface { return Surface{Href: r.Href, Append: r.appendRegistration} }

// appendRegistration appends the full registration (jimenez 4.3).
func (r *Renderer) appendRegistration(data []byte, entry *directory.Entry, opt Options) []byte {
	data = strictjson.AppendText(append(data, '{'), "agent", entry.Agent)
	if entry.Document.Kind() == directory.KindAD {
		data = appendMembers(data, entry.Document)
	} else {
		data = appendProjection(data, Projection(entry))
	}

	data = strictjson.AppendText(data, "href", r.Href(entry))
	data = strictjson.AppendUint(data, "lt", uint64(entry.Lifetime))
	data = response.AppendTime(data, "expires_at", entry.ExpiresAt)
	data = response.AppendTime(data, "registered_at", entry.RegisteredAt)
	data = response.AppendTime(data, "updated_at", entry.UpdatedAt)

	return r.appendMarks(data, entry, opt, directory.KindAD)
}

// appendMembers appends a document's own members as they were written, except some. A
// member's name may be empty.
func appendMembers(data []byte, d directory.Document, except ...string) []byte {
	for _, member := range d.Members() {
		if slices.Contains(except, member.Name) {
			continue
		}

		if data[len(data)-1] != '{' {
			data = append(data, ',')
		}

		data = append(strictjson.AppendString(data, member.Name), ':')
		data = append(data, member.Value...)
	}

	return data
}

// AppendItem appends one item of a lookup's answer (jimenez 5.2), with its status if
// that is not active (AD-025).
func (r *Renderer) AppendItem(data []byte, entry *directory.Entry, opt Options) []byte {
	projection := Projection(entry)
	data = strictjson.AppendText(append(data, '{'), "agent", entry.Agent)
	data = strictjson.AppendText(data, "base", projection.Base)
	data = response.AppendOptional(data, "description", projection.Description)
	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "protocols", nil), projection.Protocols)

	data = strictjson.AppendList(strictjson.AppendRaw(data, "capabilities", nil), projection.Capabilities,
		appendCapabilityName)
	if projection.Status != Active {
		data = strictjson.AppendText(data, "status", projection.Status)
	}

	data = strictjson.AppendText(data, "href", r.Href(entry))

	return r.appendMarks(data, entry, opt, directory.KindAD)
}

func appendCapabilityName(b []byte, c directory.Capability) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", c.Name)
	return append(strictjson.AppendText(b, "type", c.Type), '}')
}

// appendProjection appends the members of a document of another kind.
func appendProjection(data []byte, projection *directory.Projection) []byte {
	data = response.AppendOptional(data, "name", projection.Name)
	data = strictjson.AppendText(data, "base", projection.Base)
	data = response.AppendOptional(data, "description", projection.Description)
	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "protocols", nil), projection.Protocols)
	data = strictjson.AppendList(strictjson.AppendRaw(data, "capabilities", nil), projection.Capabilities,
		func(b []byte, c directory.Capability) []byte { return appendCapability(b, c, projection.Tags) })
	data = response.AppendOptional(data, "version", projection.Version)

	data = response.AppendOptional(data, "vendor", projection.Vendor)
	if len(projection.Languages) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "supported_languages", nil), projection.Languages)
	}

	data = response.AppendOptionalRaw(data, "authentication", projection.Authentication)

	data = response.AppendOptionalRaw(data, "constraints", projection.Constraints)
	if len(projection.Examples) > 0 {
		data = strictjson.AppendList(strictjson.AppendRaw(data, "examples", nil), projection.Examples, appendExample)
	}

	return strictjson.AppendText(data, "status", projection.Status)
}

// appendCapability appends a capability with its tags and the agent's own, which count
// as each capability's.
func appendCapability(data []byte, capability directory.Capability, own []string) []byte {
	data = strictjson.AppendText(append(data, '{'), "name", capability.Name)
	data = strictjson.AppendText(data, "type", capability.Type)
	data = response.AppendOptional(data, "description", capability.Description)
	data = response.AppendOptionalRaw(data, "input_schema", capability.InputSchema)

	data = response.AppendOptionalRaw(data, "output_schema", capability.OutputSchema)
	if tags := response.Union(capability.Tags, own); len(tags) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "tags", nil), tags)
	}

	return append(data, '}')
}

func appendExample(data []byte, example directory.Example) []byte {
	data = append(data, '{')
	data = response.AppendOptional(data, "id", example.ID)
	data = strictjson.AppendText(data, "text", example.Text)

	data = response.AppendOptional(data, "language", example.Language)
	if len(example.Tags) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "tags", nil), example.Tags)
	}

	data = response.AppendOptionalRaw(data, "input_schema", example.InputSchema)
	data = response.AppendOptionalRaw(data, "output_schema", example.OutputSchema)

	return append(data, '}')
}
