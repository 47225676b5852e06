package kinds

import (
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

func nameOfOASF(doc *object) string { return doc.need("name") }

// projectOASF projects a record of the Open Agentic Schema Framework, of any version from 0.3.1
// to 1.1. A record describes an artifact. The endpoints of a callable one are in the A2A card
// and the MCP servers in its modules, which precede the locators of downloads.
func projectOASF(_ string, doc *object) *directory.Projection {
	projection := &directory.Projection{
		Name:        doc.need("name"),
		Description: doc.short("description", directory.MaxDescription),
		Version:     doc.text("version"),
	}
	doc.text("schema_version")

	if authors := doc.texts("authors"); len(authors) > 0 {
		projection.Vendor = authors[0]
	}

	for _, m := range slices.Concat(doc.objects("modules"), doc.objects("extensions")) { // their name up to 0.6
		bindings, authentication := endpointsOfModule(m)

		projection.Bindings = append(projection.Bindings, bindings...)

		// An agent has one authentication: that of the first module which states one.
		if projection.Authentication == nil {
			projection.Authentication = authentication
		}
	}

	for _, o := range doc.objects("locators") {
		projection.Bindings = append(projection.Bindings, locationsOfOASF(o)...)
	}

	for _, b := range projection.Bindings {
		projection.Protocols = append(projection.Protocols, b.Protocol)
	}

	projection.Protocols = unique(projection.Protocols)
	if len(projection.Bindings) == 0 {
		doc.reading.refuse(directory.BadDocument, "",
			"the record has no locator with a URL, and no module with an A2A card or an MCP server, so it "+
				"can't be reached: add one of them")
	} else {
		projection.Base = projection.Bindings[0].Endpoint
	}

	for _, name := range classesOfOASF(doc, "skills") {
		projection.Capabilities = append(projection.Capabilities,
			directory.Capability{Name: name, Type: directory.CapabilitySkill})
	}

	doc.limit("skills", len(projection.Capabilities))

	projection.Tags = classesOfOASF(doc, "domains")
	if len(projection.Tags) > directory.MaxTags {
		doc.refuse("domains", "there are %d domains; at most %d are allowed", len(projection.Tags), directory.MaxTags)
	}

	return projection
}

// locationsOfOASF returns a binding for each place that a locator names: one in
// url up to 0.8, several in urls since.
func locationsOfOASF(obj *object) (bs []directory.Binding) {
	kind := obj.need("type")
	add := func(member, url string) {
		if url != "" {
			bs = append(bs, directory.Binding{Protocol: kind, Endpoint: obj.uri(member, url)})
		}
	}
	add("url", obj.text("url"))

	for _, url := range obj.texts("urls") {
		add("urls", url)
	}

	return bs
}

// classesOfOASF returns the names of skills or domains, each once: their classes have a name
// since 0.7, and a class_name in older versions. A number names a class that has neither.
func classesOfOASF(doc *object, member string) (names []string) {
	for _, obj := range doc.objects(member) {
		name := obj.either("name", "class_name")
		obj.checkName("name", name)

		for _, number := range []string{"id", "class_uid"} {
			if v := obj.member(number, "0123456789", "a number"); name == "" && v != nil {
				name = string(v)
			}
		}

		if name == "" {
			obj.refuse("name", "this one has neither a name nor an id")
			continue
		}

		names = append(names, name)
	}

	return unique(names)
}

// endpointsOfModule returns a module's endpoints and their authentication. It ignores modules
// other than A2A and MCP, and all other members of those two.
func endpointsOfModule(m *object) (bs []directory.Binding, authentication []byte) {
	data := m.child("data")
	switch name := m.text("name"); name[strings.LastIndexByte(name, '/')+1:] {
	case protocolA2A:
		if card := data.child("card_data"); card.raw != nil {
			bs = bindingsOfA2A(card)
			authentication = securityOfA2A(card)
		}
	case protocolMCP:
		// the latter up to 0.8
		for _, obj := range slices.Concat(data.objects("connections"), data.objects("servers")) {
			url := obj.text("url")
			if url == "" {
				continue // one that is started, not called
			}

			bs = append(bs, directory.Binding{Protocol: protocolMCP, Endpoint: obj.uri("url", url),
				Transport: obj.text("type")})
			if headers := obj.child("headers").members; authentication == nil && len(headers) > 0 {
				var names []string
				for _, h := range headers {
					names = append(names, h.Name)
				}

				authentication = namedHeaders(names)
			}
		}
	}

	return bs, authentication
}
