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
func (r *Renderer) appendRegistration(b []byte, e *directory.Entry, opt Options) []byte {
	b = strictjson.AppendText(append(b, '{'), "agent", e.Agent)
	if e.Document.Kind() == directory.KindAD {
		b = appendMembers(b, e.Document)
	} else {
		b = appendProjection(b, Projection(e))
	}

	b = strictjson.AppendText(b, "href", r.Href(e))
	b = strictjson.AppendUint(b, "lt", uint64(e.Lifetime))
	b = response.AppendTime(b, "expires_at", e.ExpiresAt)
	b = response.AppendTime(b, "registered_at", e.RegisteredAt)
	b = response.AppendTime(b, "updated_at", e.UpdatedAt)

	return r.appendMarks(b, e, opt, directory.KindAD)
}

// appendMembers appends a document's own members as they were written, except some. A
// member's name may be empty.
func appendMembers(b []byte, d directory.Document, except ...string) []byte {
	for _, m := range d.Members() {
		if slices.Contains(except, m.Name) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(strictjson.AppendString(b, m.Name), ':')
		b = append(b, m.Value...)
	}

	return b
}

// AppendItem appends one item of a lookup's answer (jimenez 5.2), with its status if
// that is not active (AD-025).
func (r *Renderer) AppendItem(b []byte, e *directory.Entry, opt Options) []byte {
	p := Projection(e)
	b = strictjson.AppendText(append(b, '{'), "agent", e.Agent)
	b = strictjson.AppendText(b, "base", p.Base)
	b = response.AppendOptional(b, "description", p.Description)
	b = response.AppendStrings(strictjson.AppendRaw(b, "protocols", nil), p.Protocols)
	b = response.AppendList(strictjson.AppendRaw(b, "capabilities", nil), p.Capabilities, appendCapabilityName)
	if p.Status != Active {
		b = strictjson.AppendText(b, "status", p.Status)
	}
	b = strictjson.AppendText(b, "href", r.Href(e))

	return r.appendMarks(b, e, opt, directory.KindAD)
}

func appendCapabilityName(b []byte, c directory.Capability) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", c.Name)
	return append(strictjson.AppendText(b, "type", c.Type), '}')
}

// appendProjection appends the members of a document of another kind.
func appendProjection(b []byte, p *directory.Projection) []byte {
	b = response.AppendOptional(b, "name", p.Name)
	b = strictjson.AppendText(b, "base", p.Base)
	b = response.AppendOptional(b, "description", p.Description)
	b = response.AppendStrings(strictjson.AppendRaw(b, "protocols", nil), p.Protocols)
	b = response.AppendList(strictjson.AppendRaw(b, "capabilities", nil), p.Capabilities,
		func(b []byte, c directory.Capability) []byte { return appendCapability(b, c, p.Tags) })
	b = response.AppendOptional(b, "version", p.Version)
	b = response.AppendOptional(b, "vendor", p.Vendor)
	if len(p.Languages) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "supported_languages", nil), p.Languages)
	}
	b = response.AppendOptionalRaw(b, "authentication", p.Authentication)
	b = response.AppendOptionalRaw(b, "constraints", p.Constraints)
	if len(p.Examples) > 0 {
		b = response.AppendList(strictjson.AppendRaw(b, "examples", nil), p.Examples, appendExample)
	}

	return strictjson.AppendText(b, "status", p.Status)
}

// appendCapability appends a capability with its tags and the agent's own, which count
// as each capability's.
func appendCapability(b []byte, c directory.Capability, own []string) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", c.Name)
	b = strictjson.AppendText(b, "type", c.Type)
	b = response.AppendOptional(b, "description", c.Description)
	b = response.AppendOptionalRaw(b, "input_schema", c.InputSchema)
	b = response.AppendOptionalRaw(b, "output_schema", c.OutputSchema)
	if tags := response.Union(c.Tags, own); len(tags) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "tags", nil), tags)
	}

	return append(b, '}')
}

func appendExample(b []byte, x directory.Example) []byte {
	b = append(b, '{')
	b = response.AppendOptional(b, "id", x.ID)
	b = strictjson.AppendText(b, "text", x.Text)
	b = response.AppendOptional(b, "language", x.Language)
	if len(x.Tags) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "tags", nil), x.Tags)
	}
	b = response.AppendOptionalRaw(b, "input_schema", x.InputSchema)
	b = response.AppendOptionalRaw(b, "output_schema", x.OutputSchema)

	return append(b, '}')
}
