package kinds

import (
	"strings"
	"unicode"

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
	p := &directory.Projection{
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
	p.Capabilities = capabilitiesOfAD(doc)
	p.Examples = examplesOfAD(doc)
	p.Bindings = bindingsOfAD(doc, p)
	return p
}

func capabilitiesOfAD(doc *object) []directory.Capability {
	var cs []directory.Capability
	seen := uniqueNames{}
	for _, o := range doc.objects("capabilities") {
		c := directory.Capability{
			Name:         o.need("name"),
			Type:         o.need("type"),
			Description:  o.short("description", directory.MaxDescription),
			Tags:         o.tags("tags"),
			InputSchema:  o.schema("input_schema"),
			OutputSchema: o.schema("output_schema"),
			Raw:          o.raw,
		}
		if len(c.Type) > directory.MaxCapabilityType || strings.ContainsFunc(c.Type, unicode.IsControl) {
			o.refuse("type", "a capability's type has at most %d bytes and no control characters", directory.MaxCapabilityType)
		}
		o.checkName("name", c.Name)
		seen.add(o, "name", c.Name)
		cs = append(cs, c)
	}
	doc.limit("capabilities", len(cs))
	return cs
}

// limit refuses more capabilities than an agent may have (AD-042).
func (o *object) limit(member string, n int) {
	if n > directory.MaxCapabilities {
		o.reading.refuse(directory.TooManyCapabilities, o.pointer(member), "there are %d capabilities; at most %d are allowed", n, directory.MaxCapabilities)
	}
}

// uniqueNames are the names of a registration's capabilities, in NFC.
type uniqueNames map[string]bool

// add refuses a name that another capability has (AD-013).
func (u uniqueNames) add(o *object, member, name string) {
	name = norm.NFC.String(name)
	if u[name] {
		o.refuse(member, "two capabilities are called %q; their names must differ", name)
	}
	u[name] = true
}

func examplesOfAD(doc *object) []directory.Example {
	var es []directory.Example
	for _, o := range doc.objects("examples") {
		es = append(es, directory.Example{ID: o.text("id"), Text: o.need("text"), Language: o.text("language"), Tags: o.tags("tags")})
	}
	return es
}

// bindingsOfAD returns the bindings that a document names, else one for each of
// its protocols at its base, else one of the base's own scheme, since the
// profile needs one (spec/views.md, 14).
func bindingsOfAD(doc *object, p *directory.Projection) []directory.Binding {
	var bs []directory.Binding
	for _, o := range doc.objects("bindings") {
		bs = append(bs, directory.Binding{
			Protocol:         o.need("protocol"),
			Endpoint:         o.need("endpoint"),
			MediaTypes:       o.texts("media_types"),
			InteractionModel: o.text("interaction_model"),
			Transport:        o.text("transport"),
		})
	}
	if len(bs) > 0 {
		return bs
	}
	for _, protocol := range p.Protocols {
		bs = append(bs, directory.Binding{Protocol: protocol, Endpoint: p.Base})
	}
	if scheme, _, ok := strings.Cut(p.Base, ":"); ok && len(bs) == 0 {
		bs = append(bs, directory.Binding{Protocol: strings.ToLower(scheme), Endpoint: p.Base})
	}
	return bs
}
