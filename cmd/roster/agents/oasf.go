package agents

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// oasfClasses has a line for each class of OASF: its family, a space, and its name.
//
//go:embed oasf.txt
var oasfClasses string

// isClass reports whether a name is that of a class of OASF.
func isClass(family, name string) bool {
	return !strings.Contains(name, "\n") && strings.Contains(oasfClasses, "\n"+family+" "+name+"\n")
}

// locatorTypes are the types of locators of OASF 1.0 that describe an endpoint's artifact.
var locatorTypes = []string{"helm_chart", "container_image", "package", "source_code", "binary", "url"}

// oasf writes a record of OASF 1.0. Its locators lead to artifacts, so agents and servers that
// are called are described by the modules of their protocols.
func (conv *conversion) oasf() ([]byte, error) {
	projection := conv.projection
	conv.loseCommon()
	data := strictjson.AppendText([]byte{'{'}, "name", conv.agent)
	data = strictjson.AppendText(data, "version", conv.version)
	data = strictjson.AppendText(data, "schema_version", "1.0.0")
	data = strictjson.AppendText(data, "created_at", cli.FormatTime(conv.registered))
	data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, projection.Name, conv.agent))

	var authors []string
	if projection.Vendor != "" {
		authors = []string{projection.Vendor}
	}

	conv.refuse(len(authors) == 0, "authors (a record has at least one, and the registration has no vendor)")

	data = conv.classes(texts(data, "authors", authors))

	interfaces, connections, others := conv.endpoints()
	data = objects(data, "locators", others, func(b []byte, locator directory.Binding) []byte {
		b = strictjson.AppendText(append(b, '{'), "type", locator.Protocol)

		return append(texts(b, "urls", []string{locator.Endpoint}), '}')
	})

	var modules [][]byte
	if len(interfaces) > 0 {
		modules = append(modules, conv.cardModule(interfaces))
	} else {
		conv.loseWithoutCard()
	}

	if len(connections) > 0 {
		modules = append(modules, conv.serverModule(connections))
	}

	data = objects(data, "modules", modules, func(b, module []byte) []byte { return append(b, module...) })

	return append(data, '}'), nil
}

// classes appends the skills and domains. All capabilities are written as skills, since a record
// without skills is refused as one with others is. Tags that are no domains are lost.
func (conv *conversion) classes(data []byte) []byte {
	named := func(b []byte, name string) []byte {
		return append(strictjson.AppendText(append(b, '{'), "name", name), '}')
	}

	var skills, unknown, domains []string
	for _, capability := range conv.projection.Capabilities {
		conv.lose(capability.Type != directory.CapabilitySkill, "type of capabilities that are not skills")
		conv.lose(capability.InputSchema != nil || capability.OutputSchema != nil, "schemas of capabilities")

		skills = append(skills, capability.Name)
		if !isClass("skill", capability.Name) {
			unknown = append(unknown, capability.Name)
		}
	}

	conv.refuse(len(skills) == 0, "skills (a record has at least one, and the registration has no capability)")
	conv.refuse(len(unknown) > 0, "skills (OASF has no skill named "+strings.Join(unknown, ", ")+")")

	for _, tag := range conv.projection.Tags {
		if isClass("domain", tag) {
			domains = append(domains, tag)
		} else {
			conv.lose(true, "tag "+tag+" (not a domain of OASF)")
		}
	}

	return objects(objects(data, "skills", skills, named), "domains", domains, named)
}

// endpoints returns the bindings for a card, for a server, and for locators, whose protocol is
// the locator's type.
func (conv *conversion) endpoints() (interfaces, connections, locators []directory.Binding) {
	for _, binding := range conv.projection.Bindings {
		switch {
		case binding.Protocol == "a2a":
			interfaces = append(interfaces, binding)
			continue

		// The module has remotes by http alone, so other servers become locators.
		case binding.Protocol == "mcp" && mcpURL.MatchString(binding.Endpoint) && isMCPTransport(binding.Transport):
			connections = append(connections, binding)
			continue
		}

		conv.lose(binding.Transport != "", "transports of bindings")

		if !slices.Contains(locatorTypes, binding.Protocol) {
			conv.lose(true, "protocol "+binding.Protocol+" of "+binding.Endpoint)

			binding.Protocol = "url"
			if strings.HasPrefix(binding.Endpoint, "pkg:") {
				binding.Protocol = "package"
			}
		}

		locators = append(locators, binding)
	}

	return interfaces, connections, locators
}

// cardModule writes the module with an agent card.
func (conv *conversion) cardModule(interfaces []directory.Binding) []byte {
	module := strictjson.AppendText([]byte{'{'}, "name", "integration/a2a")
	module = strictjson.AppendRaw(append(module, `,"data":{`...), "card_data", conv.card(interfaces))

	return append(strictjson.AppendText(module, "card_schema_version", "1.0"), "}}"...)
}

// serverModule writes the module with a server's endpoints.
func (conv *conversion) serverModule(connections []directory.Binding) []byte {
	module := strictjson.AppendText([]byte{'{'}, "name", "integration/mcp")
	module = strictjson.AppendText(append(module, `,"data":{`...), "name", conv.agent)
	module = objects(module, "connections", connections, func(b []byte, connection directory.Binding) []byte {
		b = strictjson.AppendText(append(b, '{'), "type", cmp.Or(connection.Transport, "streamable-http"))

		return append(strictjson.AppendText(b, "url", connection.Endpoint), '}')
	})

	return append(module, "}}"...)
}

// loseWithoutCard loses the parts that only an agent card can express.
func (conv *conversion) loseWithoutCard() {
	projection := conv.projection
	for _, capability := range projection.Capabilities {
		conv.lose(capability.Description != "", "descriptions of capabilities")
		conv.lose(len(capability.Tags) > 0, "tags of capabilities")
	}

	conv.lose(projection.Name != "" && projection.Name != conv.agent, "display name")
	conv.lose(len(projection.Examples) > 0, "examples")
	conv.lose(projection.Authentication != nil, "authentication")
}
