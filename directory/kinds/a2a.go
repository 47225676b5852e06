package kinds

import (
	"cmp"
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
	doc.reading.absentNull = true

	bindings := bindingsOfA2A(doc)
	if len(bindings) == 0 {
		return ""
	}

	target, err := url.Parse(bindings[0].Endpoint)
	if err != nil || target.Host == "" {
		return bindings[0].Endpoint // host:port of gRPC
	}

	// The default port is left out, so that one address gives one name.
	host := strings.ToLower(target.Host)
	switch target.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}

	return host + strings.TrimRight(target.EscapedPath(), "/")
}

// projectA2A projects an A2A agent card of protocol 0.3 or 1.0.
//
// Cards are ProtoJSON: null in an optional member means that it is absent.
func projectA2A(_ string, doc *object) *directory.Projection {
	doc.reading.absentNull = true
	doc.required("name", "description", "version", "capabilities", "defaultInputModes", "defaultOutputModes",
		"skills")
	doc.child("provider").required("organization", "url")

	projection := &directory.Projection{
		Name:           doc.need("name"),
		Description:    doc.short("description", directory.MaxDescription),
		Protocols:      []string{protocolA2A},
		Authentication: securityOfA2A(doc),
		Version:        doc.text("version"),
		Vendor:         doc.child("provider").text("organization"),
	}
	if projection.Bindings = bindingsOfA2A(doc); len(projection.Bindings) > 0 {
		projection.Base = projection.Bindings[0].Endpoint
	}

	seen := uniqueNames{}
	skills := doc.objects("skills")
	doc.limit("skills", len(skills))

	for _, obj := range skills {
		capability := directory.Capability{
			Name:        obj.need("id"),
			Type:        directory.CapabilitySkill,
			Description: obj.short("description", directory.MaxDescription),
			Tags:        obj.tags("tags"),
		}

		// Other members may be null, which stands for an absent one.
		obj.required("name", "description", "tags")
		obj.text("name")
		obj.checkName("id", capability.Name)
		seen.add(obj, "id", capability.Name)

		projection.Capabilities = append(projection.Capabilities, capability)
		for i, text := range obj.texts("examples") {
			projection.Examples = append(projection.Examples,
				directory.Example{ID: capability.Name + "-" + strconv.Itoa(i+1), Text: text, Tags: capability.Tags})
		}
	}

	return projection
}

// bindingsOfA2A returns a binding for each interface of a card, the preferred one
// first: supportedInterfaces since 1.0; the card's url and additionalInterfaces
// before, which a card may have for older clients still. A card of 0.3 that names
// no transport means JSONRPC (A2A 0.3, 5.5).
func bindingsOfA2A(doc *object) (bs []directory.Binding) {
	media := doc.texts("defaultInputModes")

	add := func(endpoint, transport string) {
		b := directory.Binding{Protocol: protocolA2A, Endpoint: endpoint, MediaTypes: media, Transport: transport}
		if !slices.ContainsFunc(bs, func(had directory.Binding) bool {
			return had.Endpoint == b.Endpoint && had.Transport == b.Transport
		}) {
			bs = append(bs, b) // cards often repeat their main interface
		}
	}
	for _, o := range doc.objects("supportedInterfaces") {
		o.required("protocolBinding", "protocolVersion")
		o.text("protocolVersion")
		add(o.uri("url", o.need("url")), o.either("protocolBinding", "transport"))
	}

	transport := doc.text("preferredTransport")
	transport = cmp.Or(transport, "JSONRPC")

	if url := doc.text("url"); url != "" {
		add(doc.uri("url", url), transport)
	}

	for _, o := range doc.objects("additionalInterfaces") {
		add(o.uri("url", o.need("url")), o.text("transport"))
	}

	if len(bs) == 0 {
		doc.refuse("url", "the card has neither \"url\" nor \"supportedInterfaces\", so the agent "+
			"can't be reached: add one of them")
	}

	return bs
}

// securityMembers are a card's members about authentication: the last since 1.0, the one before
// it until then.
var securityMembers = []string{"securitySchemes", "security", "securityRequirements"}

// securityOfA2A returns a card's members about authentication as one object, or nil.
func securityOfA2A(doc *object) []byte {
	data := []byte{'{'}
	for i, name := range securityMembers {
		begins, what := "[", "an array"
		if i == 0 {
			begins, what = "{", "an object"
		}

		if value := doc.member(name, begins, what); value != nil {
			data = strictjson.AppendRaw(data, name, value)
		}
	}

	// An empty object would claim that the card describes authentication.
	if len(data) == 1 {
		return nil
	}

	return append(data, '}')
}
