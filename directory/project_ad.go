package directory

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

func nameOfAD(doc *object) string {
	doc.reading.refuse(BadName, "", "the agent name is missing: give it as agent=NAME")
	return ""
}

// projectAD projects a registration of draft-jimenez-agent-directory, 4.1. The
// members that the draft doesn't know are those of model.md's table.
func projectAD(agent string, doc *object) *Projection {
	p := &Projection{
		Name:           agent,
		Base:           doc.uri("base", doc.need("base")),
		Description:    doc.short("description", MaxDescription),
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

func capabilitiesOfAD(doc *object) []Capability {
	var cs []Capability
	seen := uniqueNames{}
	for _, o := range doc.objects("capabilities") {
		c := Capability{
			Name:         o.need("name"),
			Type:         o.need("type"),
			Description:  o.short("description", MaxDescription),
			Tags:         o.tags("tags"),
			InputSchema:  o.schema("input_schema"),
			OutputSchema: o.schema("output_schema"),
			Raw:          o.raw,
		}
		if len(c.Type) > MaxCapabilityType || strings.ContainsFunc(c.Type, isControl) {
			o.refuse("type", "a capability's type has at most %d bytes and no control characters", MaxCapabilityType)
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
	if n > MaxCapabilities {
		o.reading.refuse(TooManyCapabilities, o.pointer(member), "there are %d capabilities; at most %d are allowed", n, MaxCapabilities)
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

func examplesOfAD(doc *object) []Example {
	var es []Example
	for _, o := range doc.objects("examples") {
		es = append(es, Example{ID: o.text("id"), Text: o.need("text"), Language: o.text("language"), Tags: o.tags("tags")})
	}
	return es
}

// bindingsOfAD returns the bindings that a document names, else one for each of
// its protocols at its base, else one of the base's own scheme, since the
// profile needs one (spec/views.md, 14).
func bindingsOfAD(doc *object, p *Projection) []Binding {
	var bs []Binding
	for _, o := range doc.objects("bindings") {
		bs = append(bs, Binding{
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
		bs = append(bs, Binding{Protocol: protocol, Endpoint: p.Base})
	}
	if scheme, _, ok := strings.Cut(p.Base, ":"); ok && len(bs) == 0 {
		bs = append(bs, Binding{Protocol: strings.ToLower(scheme), Endpoint: p.Base})
	}
	return bs
}
