package agents

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// texts appends an array of strings as a member.
func texts(b []byte, name string, list []string) []byte {
	return objects(b, name, list, strictjson.AppendString)
}

// objects appends an array as a member.
func objects[T any](data []byte, name string, list []T, one func([]byte, T) []byte) []byte {
	data = append(strictjson.AppendRaw(data, name, nil), '[')
	for i, v := range list {
		if i > 0 {
			data = append(data, ',')
		}

		data = one(data, v)
	}

	return append(data, ']')
}

// union returns the elements of all lists without duplicates.
func union(lists ...[]string) []string {
	all := []string{}
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}

	return all
}

// a2a writes an agent card of A2A 1.0.
func (conv *conversion) a2a() ([]byte, error) {
	projection := conv.projection

	bindings, err := conv.bindingsOf("a2a", len(projection.Bindings))
	if err != nil {
		return nil, err
	}

	conv.loseCommon()

	return conv.card(bindings), nil
}

// card writes an agent card with the given interfaces.
func (conv *conversion) card(bindings []directory.Binding) []byte {
	projection := conv.projection
	data := strictjson.AppendText([]byte{'{'}, "name", cmp.Or(projection.Name, conv.agent))
	data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, projection.Name, conv.agent))
	data = objects(data, "supportedInterfaces", bindings, func(b []byte, v directory.Binding) []byte {
		b = strictjson.AppendText(append(b, '{'), "url", v.Endpoint)
		b = strictjson.AppendText(b, "protocolBinding", cmp.Or(v.Transport, "JSONRPC"))

		return append(strictjson.AppendText(b, "protocolVersion", "1.0"), '}')
	})
	conv.lose(true, "A2A version of the interfaces (the directory does not record it; 1.0 is assumed)")

	conv.lose(projection.Vendor != "", "vendor (a provider needs a URL, too)")

	data = strictjson.AppendText(data, "version", conv.version)
	data = strictjson.AppendRaw(data, "capabilities", []byte("{}"))
	data = texts(data, "defaultInputModes", []string{"text/plain"})
	data = texts(data, "defaultOutputModes", []string{"text/plain"})
	conv.lose(projection.Authentication != nil, "authentication")
	data = objects(data, "skills", projection.Capabilities, func(b []byte, capability directory.Capability) []byte {
		conv.lose(capability.Type != "skill", "type of capabilities that are not skills")
		conv.lose(capability.InputSchema != nil || capability.OutputSchema != nil, "schemas of capabilities")
		b = strictjson.AppendText(append(b, '{'), "id", capability.Name)
		b = strictjson.AppendText(b, "name", capability.Name)
		b = strictjson.AppendText(b, "description", cmp.Or(capability.Description, capability.Name))

		// A card has no tags of its own, so each skill carries the agent's.
		b = texts(b, "tags", union(capability.Tags, projection.Tags))
		if of := conv.examplesOf(capability.Name); len(of) > 0 {
			b = texts(b, "examples", of)
		}

		return append(b, '}')
	})
	conv.lose(len(projection.Tags) > 0 && len(projection.Capabilities) == 0, "agent's tags")

	return append(data, '}')
}

// examplesOf returns the examples of one capability, whose ids begin with its name. Examples
// without a capability are lost.
func (conv *conversion) examplesOf(capability string) (of []string) {
	named := func(e directory.Example, name string) bool { return strings.HasPrefix(e.ID, name+"-") }
	for _, example := range conv.projection.Examples {
		switch {
		case named(example, capability):
			of = append(of, example.Text)
		case !slices.ContainsFunc(conv.projection.Capabilities, func(c directory.Capability) bool {
			return named(example, c.Name)
		}):
			conv.lose(true, "examples without a capability")
		}
	}

	return of
}

// mcp writes a server.json of the MCP registry.
func (conv *conversion) mcp() ([]byte, error) {
	projection := conv.projection

	bindings, err := conv.bindingsOf("mcp", len(projection.Bindings))
	if err != nil {
		return nil, err
	}

	conv.loseCommon()
	data := strictjson.AppendText([]byte{'{'}, "$schema",
		"https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json")

	// A member that the schema refuses is written all the same, and noted.
	conv.refuse(!mcpName.MatchString(conv.agent),
		"name (a server's name is NAMESPACE/NAME, such as com.example/weather)")
	conv.refuse(mcpName.MatchString(conv.agent) && len(conv.agent) > maxMCPName,
		"name (it has over "+strconv.Itoa(maxMCPName)+" characters)")
	conv.refuse(utf8.RuneCountInString(conv.version) > maxMCPVersion,
		"version (it has over "+strconv.Itoa(maxMCPVersion)+" characters)")

	data = strictjson.AppendText(data, "name", conv.agent)
	if projection.Name != "" && projection.Name != conv.agent {
		data = strictjson.AppendText(data, "title", conv.shorten("title", projection.Name))
	}

	data = strictjson.AppendText(data, "description",
		conv.shorten("description", cmp.Or(projection.Description, projection.Name, conv.agent)))
	data = strictjson.AppendText(data, "version", conv.version)
	data = objects(data, "remotes", bindings, func(b []byte, v directory.Binding) []byte {
		conv.refuse(!isMCPTransport(v.Transport),
			"remotes (type "+v.Transport+" is neither streamable-http nor sse)")
		conv.refuse(!mcpURL.MatchString(v.Endpoint), "remotes (url "+v.Endpoint+" is neither http nor https)")

		b = strictjson.AppendText(append(b, '{'), "type", cmp.Or(v.Transport, "streamable-http"))

		return append(strictjson.AppendText(b, "url", v.Endpoint), '}')
	})
	conv.lose(projection.Vendor != "", "vendor")
	conv.lose(len(projection.Tags) > 0, "tags")
	conv.lose(len(projection.Examples) > 0, "examples")
	conv.lose(projection.Authentication != nil, "authentication")

	var tools []directory.Capability
	for _, capability := range projection.Capabilities {
		conv.lose(len(capability.Tags) > 0, "tags of capabilities")
		conv.lose(capability.InputSchema != nil || capability.OutputSchema != nil, "schemas of capabilities")

		if capability.Type == directory.CapabilityTool && kinds.IsTool(capability.Name) {
			tools = append(tools, capability)
		} else {
			conv.lose(true, "capability "+capability.Name+" (not a tool)")
		}
	}

	data = append(data, '}')
	if len(tools) == 0 {
		return data, nil
	}

	return kinds.WithTools(directory.LoadDocument(directory.KindMCP, data), tools)
}

// mcpName is the form of a server's name and mcpURL that of a remote, by the registry's schema.
var (
	mcpName = regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`)
	mcpURL  = regexp.MustCompile(`^https?://[^\s]+$`)
)

// isMCPTransport reports whether a transport is one of remote servers, or the default.
func isMCPTransport(transport string) bool {
	return transport == "" || transport == "streamable-http" || transport == "sse"
}

// Bounds of a server's members in characters, by the registry's schema.
const (
	maxMCPName    = 200
	maxMCPVersion = 255
	maxMCPText    = 100
)

// shorten returns a text within the bound of the MCP registry, and loses the rest.
func (conv *conversion) shorten(member, text string) string {
	runes := []rune(text)
	if len(runes) <= maxMCPText {
		return text
	}

	conv.lose(true, member+" beyond "+strconv.Itoa(maxMCPText)+" characters")

	return string(runes[:maxMCPText-1]) + "…"
}

// woa writes a Web of Agents document of one agent (draft-gaikwad-woa, 4).
func (conv *conversion) woa() ([]byte, error) {
	projection := conv.projection

	// An agent of the document has one endpoint, so further bindings are lost.
	bindings, err := conv.bindingsOf("https", 1)
	if err != nil {
		return nil, err
	}

	conv.loseCommon()
	conv.lose(projection.Vendor != "", "vendor")
	conv.lose(len(projection.Tags) > 0, "tags")
	conv.lose(len(projection.Examples) > 0, "examples")
	conv.lose(projection.Authentication != nil, "authentication")
	conv.lose(bindings[0].Envelope == "",
		"input format: the endpoint expects the bare input, but Web of Agents clients send an envelope")
	data := strictjson.AppendText([]byte(`{"woa_version":"1","agents":[{`), "id", conv.agentID())
	data = strictjson.AppendText(data, "name", cmp.Or(projection.Name, conv.agent))
	data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, projection.Name, conv.agent))
	data = strictjson.AppendText(data, "version", conv.version)
	data = append(texts(conv.operations(data), "transports", []string{"rest"}), "}]"...)
	base, path := splitEndpoint(bindings[0].Endpoint)
	data = strictjson.AppendText(append(data, `,"transports":{"rest":{`...), "base", base)

	return append(strictjson.AppendText(data, "invoke_path", path), "}}}"...), nil
}

// agentID returns the agent's name with the characters that an agent id allows. Others become
// a hyphen.
func (conv *conversion) agentID() string {
	id := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}

		return '-'
	}, conv.agent)
	conv.lose(id != conv.agent, "name "+conv.agent+" (not valid as an agent id; written as "+id+")")

	return id
}

// operations appends the members for the agent's capabilities: tools become operations, the
// others capabilities. The schemas of a single tool become those of the agent.
func (conv *conversion) operations(data []byte) []byte {
	skills, tools := []string{}, []directory.Capability{}
	for _, capability := range conv.projection.Capabilities {
		conv.lose(len(capability.Tags) > 0, "tags of capabilities")

		if capability.Type == "tool" {
			tools = append(tools, capability)
			continue
		}

		conv.lose(capability.Description != "", "descriptions of capabilities that are not operations")
		skills = append(skills, capability.Name)
	}

	var only directory.Capability
	if len(tools) == 1 {
		only = tools[0]
	}

	schemas := func(b []byte, capability directory.Capability, otherwise string) []byte {
		for _, s := range []struct {
			name   string
			schema []byte
		}{{"inputs", capability.InputSchema}, {"outputs", capability.OutputSchema}} {
			if text := cmp.Or(string(s.schema), otherwise); text != "" {
				b = strictjson.AppendRaw(b, s.name, []byte(text))
			}
		}

		return b
	}
	data = schemas(texts(data, "capabilities", skills), only, `{"type":"object"}`)

	return objects(data, "operations", tools, func(b []byte, capability directory.Capability) []byte {
		b = strictjson.AppendText(append(b, '{'), "name", cmp.Or(capability.Operation, capability.Name))

		b = strictjson.AppendText(b, "description", cmp.Or(capability.Description, capability.Name))
		if len(tools) > 1 {
			b = schemas(b, capability, "")
		}

		return append(b, '}')
	})
}

// splitEndpoint returns an endpoint's origin and the rest of it.
func splitEndpoint(endpoint string) (base, path string) {
	i := strings.Index(endpoint, "://")
	if i < 0 {
		return endpoint, "/"
	}

	if j := strings.IndexAny(endpoint[i+3:], "/?#"); j >= 0 {
		base, path = endpoint[:i+3+j], endpoint[i+3+j:]
	} else {
		base = endpoint
	}

	// An endpoint may have a query without a path.
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}

	return base, path
}
