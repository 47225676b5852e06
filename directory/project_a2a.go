package directory

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const protocolA2A = "a2a"

// nameOfA2A is the host, and the path if any, of an agent card's url.
func nameOfA2A(doc *object) string {
	u, err := url.Parse(doc.uri("url", doc.need("url")))
	if err != nil {
		return ""
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return host + strings.TrimRight(u.EscapedPath(), "/")
}

// projectA2A projects an A2A agent card of protocol 0.3.
func projectA2A(_ string, doc *object) *Projection {
	p := &Projection{
		Name:           doc.need("name"),
		Description:    doc.short("description", MaxDescription),
		Base:           doc.uri("url", doc.need("url")),
		Protocols:      []string{protocolA2A},
		Authentication: securityOfA2A(doc),
		Version:        doc.text("version"),
		Vendor:         doc.child("provider").text("organization"),
	}
	p.Bindings = bindingsOfA2A(doc, p.Base)
	seen := uniqueNames{}
	skills := doc.objects("skills")
	doc.limit("skills", len(skills))
	for _, o := range skills {
		c := Capability{
			Name:        o.need("id"),
			Type:        typeSkill,
			Description: o.short("description", MaxDescription),
			Tags:        o.tags("tags"),
		}
		o.text("name")
		o.checkName("id", c.Name)
		seen.add(o, "id", c.Name)
		p.Capabilities = append(p.Capabilities, c)
		for i, text := range o.texts("examples") {
			p.Examples = append(p.Examples, Example{ID: c.Name + "-" + strconv.Itoa(i+1), Text: text, Tags: c.Tags})
		}
	}
	return p
}

// bindingsOfA2A returns a binding for the card's url and one for each further
// interface. A card that names no transport means JSONRPC (A2A 0.3, 5.5).
func bindingsOfA2A(doc *object, base string) []Binding {
	media := doc.texts("defaultInputModes")
	transport := doc.text("preferredTransport")
	if transport == "" {
		transport = "JSONRPC"
	}
	bs := []Binding{{Protocol: protocolA2A, Endpoint: base, MediaTypes: media, Transport: transport}}
	for _, o := range doc.objects("additionalInterfaces") {
		b := Binding{Protocol: protocolA2A, Endpoint: o.uri("url", o.need("url")), MediaTypes: media, Transport: o.text("transport")}
		if !slices.ContainsFunc(bs, func(had Binding) bool { return had.Endpoint == b.Endpoint && had.Transport == b.Transport }) {
			bs = append(bs, b) // cards often repeat their main interface
		}
	}
	return bs
}

// securityOfA2A returns what a card says of authentication, as one object.
func securityOfA2A(doc *object) []byte {
	schemes := doc.member("securitySchemes", "{", "an object")
	security := doc.member("security", "[", "an array")
	if schemes == nil && security == nil {
		return nil
	}
	b := []byte{'{'}
	if schemes != nil {
		b = AppendRaw(b, "securitySchemes", schemes)
	}
	if security != nil {
		b = AppendRaw(b, "security", security)
	}
	return append(b, '}')
}
