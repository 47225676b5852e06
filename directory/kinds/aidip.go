package kinds

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

const protocolHTTPS = "https"

// takenIDs are the segments behind /agents/ that are routes (AI-021).
var takenIDs = []string{"search", "resolve"}

// nameOfAIDIP is a document's id; "" if it leaves that to the directory
// (AI-021).
func nameOfAIDIP(doc *object) string { return doc.text("id") }

// projectAIDIP projects an agent's metadata as draft-cui-ai-agent-discovery-
// invocation, 3, describes them. The agent's name is "" as long as the directory
// has yet to give it an id.
func projectAIDIP(agent string, doc *object) *directory.Projection {
	checkID(agent, doc)
	projection := &directory.Projection{
		Name:           doc.need("name"),
		Description:    doc.need("description"),
		Base:           doc.uri("endpoint", doc.need("endpoint")),
		Protocols:      doc.texts("protocols"),
		Tags:           doc.tags("tags"),
		Languages:      doc.texts("supported_languages"),
		Authentication: authenticationOfAIDIP(doc),
		Status:         doc.text("status"),
		Version:        doc.text("version"),
		Vendor:         doc.text("publisher"),
	}

	// The text was read above; this bounds it.
	doc.short("description", directory.MaxDescription)

	if len(projection.Protocols) == 0 {
		projection.Protocols = []string{protocolHTTPS}
	}

	for _, protocol := range projection.Protocols {
		projection.Bindings = append(projection.Bindings,
			directory.Binding{Protocol: protocol, Endpoint: projection.Base})
	}

	operations, examples := operationsOfAIDIP(doc)

	projection.Examples = examples
	for i, name := range doc.texts("capabilities") {
		at := doc.pointer("capabilities") + "/" + strconv.Itoa(i)
		switch named := func(c directory.Capability) bool { return c.Name == name }; {
		case name == "":
			doc.reading.refuse(directory.BadDocument, at, "a capability has no name")
		case strings.Contains(name, "*"):
			doc.reading.refuse(directory.BadDocument, at, "the capability %q has a *, which lookups use for prefixes",
				name)
		case slices.ContainsFunc(operations, named): // spec/views.md, 5
			if !slices.Contains(projection.Tags, name) {
				projection.Tags = append(projection.Tags, name)
			}
		case !slices.ContainsFunc(projection.Capabilities, named):
			projection.Capabilities = append(projection.Capabilities,
				directory.Capability{Name: name, Type: directory.CapabilitySkill})
		}
	}

	projection.Capabilities = append(projection.Capabilities, operations...)
	doc.limit("capabilities", len(projection.Capabilities))

	return projection
}

// checkID refuses an id that is not the name that the agent has or may get.
func checkID(agent string, doc *object) {
	id := norm.NFC.String(doc.text("id"))

	_, err := directory.ParseName(id)

	// A name that the directory gave has the form of a rid, which ParseName refuses, so it is compared first.
	switch {
	case slices.Contains(takenIDs, id):
		doc.refuse("id", "the id %q is a route of the directory's own; choose another", id)
	case id == "" || id == agent:
	case err != nil:
		doc.refuse("id", "%v", err)
	case agent != "":
		doc.refuse("id", "the id is %.300q, and this registration's is %.300q", id, agent)
	}
}

// operationsOfAIDIP returns the operations as tools, and their examples (AI-020).
// An agent that has none has inputs and outputs of its own.
func operationsOfAIDIP(doc *object) (tools []directory.Capability, examples []directory.Example) {
	inputs, outputs := doc.schema("inputs"), doc.schema("outputs")

	operations := doc.objects("operations")
	switch {
	case len(operations) > 0:
	case inputs == nil && outputs == nil:
		doc.refuse("operations", "the agent's input and output are missing: give operations, or inputs "+
			"and outputs")
	case inputs == nil:
		doc.refuse("inputs", "inputs are missing: without operations, an agent has inputs and outputs")
	case outputs == nil:
		doc.refuse("outputs", "outputs are missing: without operations, an agent has inputs and outputs")
	}

	seen := uniqueNames{}
	for _, obj := range operations {
		capability := directory.Capability{
			Name: obj.need("name"), Type: directory.CapabilityTool, Description: obj.need("description"),
			InputSchema: obj.needSchema("inputs"), OutputSchema: obj.needSchema("outputs"), Raw: obj.raw,
		}
		obj.short("description", directory.MaxDescription)

		if !isSegment(capability.Name) {
			obj.refuse("name", "the operation %.100q can't be a segment of a URL: letters, digits, and - . _ ~ "+
				"are allowed, and it is not invoke", capability.Name)
		}

		seen.add(obj, "name", capability.Name)

		tools = append(tools, capability)
		for i, x := range obj.objects("examples") {
			input := x.any("input")
			x.any("output")

			if input == nil {
				x.refuse("input", "the example has no input")
				continue
			}

			examples = append(examples, directory.Example{
				ID: capability.Name + "-" + strconv.Itoa(i+1), Text: compact(input), Tags: []string{capability.Name},
				InputSchema: capability.InputSchema, OutputSchema: capability.OutputSchema,
			})
		}
	}

	return tools, examples
}

// needSchema returns a JSON Schema that must be there.
func (o *object) needSchema(name string) []byte {
	raw := o.schema(name)
	if raw == nil {
		o.refuse(name, "%q is missing: a JSON Schema object is needed, such as {\"type\":\"object\"}", name)
	}

	return raw
}

// isSegment reports whether an operation can be called by that name: at
// /agents/{id}/{name}, where invoke is the directory's.
func isSegment(name string) bool {
	return name != "invoke" && strings.Trim(name, ".") != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-._~", r))
	})
}

// compact returns JSON without white space, in written order.
func compact(raw []byte) string {
	v := jsontext.Value(slices.Clone(raw))
	if err := v.Compact(); err != nil {
		return string(raw)
	}

	return string(v)
}

// secrets are members of an authentication object that would hold the secret
// itself, which every reader could use (AI-022).
var secrets = []string{"value", "secret", "client_secret", "password", "api_key", "token", "access_token",
	"refresh_token", "private_key"}

// authenticationOfAIDIP returns how to authenticate to the agent, as written.
func authenticationOfAIDIP(doc *object) []byte {
	obj := doc.child("authentication")
	obj.text("type")
	obj.text("instructions")
	obj.texts("scopes")

	for _, m := range obj.members {
		// An object or array of such a name describes a secret; only a text or a number can be one.
		if strings.IndexByte(`"-0123456789`, m.Value[0]) >= 0 && slices.Contains(secrets, strings.ToLower(m.Name)) {
			obj.refuse(m.Name, "%q looks like a secret, which every reader of the registration "+
				"would see: describe in instructions how to get one", m.Name)
		}
	}

	return obj.raw
}

// ListedCapabilities returns the capabilities of a document as AIDIP shows them: those that
// it lists, where it has such a list beside its operations, and else the names of
// all (spec/views.md, 5 and 7).
func ListedCapabilities(doc directory.Document, projection *directory.Projection) []string {
	kind := doc.Kind()
	if kind == directory.KindAIDIP && slices.ContainsFunc(projection.Capabilities, func(c directory.Capability) bool {
		return c.Type == directory.CapabilityTool && slices.Contains(projection.Tags, c.Name)
	}) {
		// The projection has some of them as tags, so the list is read from the document.
		return readDocument(doc).texts("capabilities")
	}

	names := make([]string, 0, len(projection.Capabilities))
	for i := range projection.Capabilities {
		if c := &projection.Capabilities[i]; c.Type == directory.CapabilitySkill ||
			kind != directory.KindAIDIP && kind != directory.KindWoA {
			names = append(names, c.Name)
		}
	}

	return names
}
