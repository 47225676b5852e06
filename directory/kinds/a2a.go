package kinds

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

const protocolA2A = "a2a"

// nameOfA2A is the host, and the path if any, of where an agent card says that
// its agent is reached.
func nameOfA2A(doc *object) string {
	bindings := bindingsOfA2A(doc)
	if len(bindings) == 0 {
		return ""
	}
	u, err := url.Parse(bindings[0].Endpoint)
	if err != nil || u.Host == "" {
		return bindings[0].Endpoint // host:port of gRPC
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

// projectA2A projects an A2A agent card of protocol 0.3 or 1.0.
func projectA2A(_ string, doc *object) *directory.Projection {
	p := &directory.Projection{
		Name:           doc.need("name"),
		Description:    doc.short("description", directory.MaxDescription),
		Protocols:      []string{protocolA2A},
		Authentication: securityOfA2A(doc),
		Version:        doc.text("version"),
		Vendor:         doc.child("provider").text("organization"),
	}
	if p.Bindings = bindingsOfA2A(doc); len(p.Bindings) > 0 {
		p.Base = p.Bindings[0].Endpoint
	}
	seen := uniqueNames{}
	skills := doc.objects("skills")
	doc.limit("skills", len(skills))
	for _, o := range skills {
		c := directory.Capability{
			Name:        o.need("id"),
			Type:        directory.CapabilitySkill,
			Description: o.short("description", directory.MaxDescription),
			Tags:        o.tags("tags"),
		}
		o.text("name")
		o.checkName("id", c.Name)
		seen.add(o, "id", c.Name)
		p.Capabilities = append(p.Capabilities, c)
		for i, text := range o.texts("examples") {
			p.Examples = append(p.Examples, directory.Example{ID: c.Name + "-" + strconv.Itoa(i+1), Text: text, Tags: c.Tags})
		}
	}
	return p
}

// bindingsOfA2A returns a binding for each interface of a card, the preferred one
// first: supportedInterfaces since 1.0; the card's url and additionalInterfaces
// before, which a card may have for older clients still. A card of 0.3 that names
// no transport means JSONRPC (A2A 0.3, 5.5).
func bindingsOfA2A(doc *object) (bs []directory.Binding) {
	media := doc.texts("defaultInputModes")
	add := func(endpoint, transport string) {
		b := directory.Binding{Protocol: protocolA2A, Endpoint: endpoint, MediaTypes: media, Transport: transport}
		if !slices.ContainsFunc(bs, func(had directory.Binding) bool { return had.Endpoint == b.Endpoint && had.Transport == b.Transport }) {
			bs = append(bs, b) // cards often repeat their main interface
		}
	}
	for _, o := range doc.objects("supportedInterfaces") {
		o.text("protocolVersion")
		add(o.uri("url", o.need("url")), o.either("protocolBinding", "transport"))
	}
	transport := doc.text("preferredTransport")
	if transport == "" {
		transport = "JSONRPC"
	}
	if url := doc.text("url"); url != "" {
		add(doc.uri("url", url), transport)
	}
	for _, o := range doc.objects("additionalInterfaces") {
		add(o.uri("url", o.need("url")), o.text("transport"))
	}
	if len(bs) == 0 {
		doc.refuse("url", "the card has neither \"url\" nor \"supportedInterfaces\", so nobody could reach the agent: add one of them")
	}
	return bs
}

// securityMembers are what a card says of authentication: the last since 1.0, the
// one before it until then.
var securityMembers = []string{"securitySchemes", "security", "securityRequirements"}

// securityOfA2A returns what a card says of authentication, as one object; nil
// where it says nothing.
func securityOfA2A(doc *object) []byte {
	b := []byte{'{'}
	for i, name := range securityMembers {
		begins, what := "[", "an array"
		if i == 0 {
			begins, what = "{", "an object"
		}
		if value := doc.member(name, begins, what); value != nil {
			b = strictjson.AppendRaw(b, name, value)
		}
	}
	if len(b) == 1 {
		return nil
	}
	return append(b, '}')
}
