package kinds

import (
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

func nameOfAD(doc *object) string {
	doc.reading.refuse(directory.BadName, "", "the agent name is missing: give it as agent=NAME")
	return ""
}

// projectAD projects a registration of draft-jimenez-agent-directory, 4.1. The
// members that the draft doesn't know are those of the table in docs/spec/views.md.
func projectAD(agent string, doc *object) *directory.Projection {
	projection := &directory.Projection{
		Name:           agent,
		Base:           doc.uri("base", doc.need("base")),
		Description:    doc.short("description", directory.MaxDescription),
		Protocols:      doc.texts("protocols"),
		Tags:           doc.tags("tags"),
		Languages:      doc.texts("supported_languages"),
		Authentication: doc.any("authentication"),
		Constraints:    doc.any("constraints"),
		Status:         doc.text("status"),
		Version:        doc.text("version"),
		Vendor:         doc.text("vendor"),
	}
	doc.text("identity") // stored and returned, never interpreted (AD-016)
	doc.text("identity_type")
	projection.Capabilities = capabilitiesOfAD(doc)
	projection.Examples = examplesOfAD(doc)
	projection.Bindings = bindingsOfAD(doc, projection)

	return projection
}

func capabilitiesOfAD(doc *object) []directory.Capability {
	var cs []directory.Capability

	seen := uniqueNames{}
	for _, obj := range doc.objects("capabilities") {
		capability := directory.Capability{
			Name:         obj.need("name"),
			Type:         obj.need("type"),
			Description:  obj.short("description", directory.MaxDescription),
			Tags:         obj.tags("tags"),
			InputSchema:  obj.schema("input_schema"),
			OutputSchema: obj.schema("output_schema"),
			Raw:          obj.raw,
		}
		if len(capability.Type) > directory.MaxCapabilityType {
			obj.refuse("type", "a capability's type has at most %d bytes", directory.MaxCapabilityType)
		}

		// Lookups compare types, so each of its characters must be one that people see.
		obj.checkSeen("type", capability.Type)
		obj.checkName("name", capability.Name)
		seen.add(obj, "name", capability.Name)
		cs = append(cs, capability)
	}

	doc.limit("capabilities", len(cs))

	return cs
}

// limit refuses more capabilities than an agent may have (AD-042).
func (o *object) limit(member string, n int) {
	if n > directory.MaxCapabilities {
		o.reading.refuse(directory.TooManyCapabilities, o.pointer(member),
			"there are %d capabilities; at most %d are allowed", n, directory.MaxCapabilities)
	}
}

// uniqueNames are the names of a registration's capabilities, in NFC.
type uniqueNames map[string]bool

// add refuses a name that another capability has (AD-013).
func (u uniqueNames) add(obj *object, member, name string) {
	name = norm.NFC.String(name)
	if u[name] {
		obj.refuse(member, "two capabilities are called %q; their names must differ", name)
	}

	u[name] = true
}

func examplesOfAD(doc *object) []directory.Example {
	var es []directory.Example
	for _, o := range doc.objects("examples") {
		es = append(es, directory.Example{ID: o.text("id"), Text: o.need("text"), Language: o.text("language"),
			Tags: o.tags("tags")})
	}

	return es
}

// bindingsOfAD returns the bindings that a document names, else one for each of
// its protocols at its base, else one of the base's own scheme, since the
// profile needs one (spec/views.md, 14).
func bindingsOfAD(doc *object, projection *directory.Projection) []directory.Binding {
	var bs []directory.Binding
	for _, obj := range doc.objects("bindings") {
		bs = append(bs, directory.Binding{
			Protocol:         obj.need("protocol"),
			Endpoint:         obj.need("endpoint"),
			MediaTypes:       obj.texts("media_types"),
			InteractionModel: obj.text("interaction_model"),
			Transport:        obj.text("transport"),
		})
	}

	if len(bs) > 0 {
		return bs
	}

	for _, protocol := range projection.Protocols {
		bs = append(bs, directory.Binding{Protocol: protocol, Endpoint: projection.Base})
	}

	if scheme, _, ok := strings.Cut(projection.Base, ":"); ok && len(bs) == 0 {
		bs = append(bs, directory.Binding{Protocol: strings.ToLower(scheme), Endpoint: projection.Base})
	}

	return bs
}
