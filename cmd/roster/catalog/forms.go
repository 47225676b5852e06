package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// texts appends an array of strings as a member.
func texts(b []byte, name string, list []string) []byte {
	return objects(b, name, list, strictjson.AppendString)
}

// objects appends an array as a member.
func objects[T any](b []byte, name string, list []T, one func([]byte, T) []byte) []byte {
	b = append(strictjson.AppendRaw(b, name, nil), '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, v)
	}
	return append(b, ']')
}

// union returns what is in any of the lists, once.
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
	p := conv.projection
	bindings, err := conv.bindingsOf("a2a", len(p.Bindings))
	if err != nil {
		return nil, err
	}
	conv.loseCommon()
	b := strictjson.AppendText([]byte{'{'}, "name", cmp.Or(p.Name, conv.agent))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, p.Name, conv.agent))
	b = objects(b, "supportedInterfaces", bindings, func(b []byte, v directory.Binding) []byte {
		b = strictjson.AppendText(append(b, '{'), "url", v.Endpoint)
		b = strictjson.AppendText(b, "protocolBinding", cmp.Or(v.Transport, "JSONRPC"))
		return append(strictjson.AppendText(b, "protocolVersion", "1.0"), '}')
	})
	conv.lose(true, "A2A version of the interfaces (the directory does not record it; 1.0 is assumed)")
	if p.Vendor != "" {
		b = strictjson.AppendRaw(b, "provider", append(strictjson.AppendText([]byte{'{'}, "organization", p.Vendor), `,"url":""}`...))
	}
	b = strictjson.AppendText(b, "version", conv.version)
	b = strictjson.AppendRaw(b, "capabilities", []byte("{}"))
	b = texts(b, "defaultInputModes", []string{"text/plain"})
	b = texts(b, "defaultOutputModes", []string{"text/plain"})
	conv.lose(p.Authentication != nil, "authentication")
	b = objects(b, "skills", p.Capabilities, func(b []byte, c directory.Capability) []byte {
		conv.lose(c.Type != "skill", "type of capabilities that are not skills")
		conv.lose(c.InputSchema != nil || c.OutputSchema != nil, "schemas of capabilities")
		b = strictjson.AppendText(append(b, '{'), "id", c.Name)
		b = strictjson.AppendText(b, "name", c.Name)
		b = strictjson.AppendText(b, "description", cmp.Or(c.Description, c.Name))
		b = texts(b, "tags", union(c.Tags, p.Tags))
		if of := conv.examplesOf(c.Name); len(of) > 0 {
			b = texts(b, "examples", of)
		}
		return append(b, '}')
	})
	conv.lose(len(p.Tags) > 0 && len(p.Capabilities) == 0, "agent's tags")
	return append(b, '}'), nil
}

// examplesOf returns the examples of one capability, as their ids tell; the
// others are lost.
func (conv *conversion) examplesOf(capability string) (of []string) {
	named := func(e directory.Example, name string) bool { return strings.HasPrefix(e.ID, name+"-") }
	for _, e := range conv.projection.Examples {
		switch {
		case named(e, capability):
			of = append(of, e.Text)
		case !slices.ContainsFunc(conv.projection.Capabilities, func(c directory.Capability) bool { return named(e, c.Name) }):
			conv.lose(true, "examples without a capability")
		}
	}
	return of
}

// mcp writes a server.json of the MCP registry.
func (conv *conversion) mcp() ([]byte, error) {
	p := conv.projection
	bindings, err := conv.bindingsOf("mcp", len(p.Bindings))
	if err != nil {
		return nil, err
	}
	conv.loseCommon()
	b := strictjson.AppendText([]byte{'{'}, "$schema", "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json")
	b = strictjson.AppendText(b, "name", conv.agent)
	if p.Name != "" && p.Name != conv.agent {
		b = strictjson.AppendText(b, "title", p.Name)
	}
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, p.Name, conv.agent))
	b = strictjson.AppendText(b, "version", conv.version)
	b = objects(b, "remotes", bindings, func(b []byte, v directory.Binding) []byte {
		b = strictjson.AppendText(append(b, '{'), "type", cmp.Or(v.Transport, "streamable-http"))
		return append(strictjson.AppendText(b, "url", v.Endpoint), '}')
	})
	conv.lose(p.Vendor != "", "vendor")
	conv.lose(len(p.Capabilities) > 0, "capabilities")
	conv.lose(len(p.Tags) > 0, "tags")
	conv.lose(len(p.Examples) > 0, "examples")
	conv.lose(p.Authentication != nil, "authentication")
	return append(b, '}'), nil
}

// oasf writes a record of OASF 1.0.
func (conv *conversion) oasf() ([]byte, error) {
	p := conv.projection
	conv.loseCommon()
	b := strictjson.AppendText([]byte{'{'}, "name", conv.agent)
	b = strictjson.AppendText(b, "version", conv.version)
	b = strictjson.AppendText(b, "schema_version", "1.0.0")
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, p.Name, conv.agent))
	var authors []string
	if p.Vendor != "" {
		authors = []string{p.Vendor}
	}
	b = texts(b, "authors", authors)
	named := func(b []byte, name string) []byte {
		return append(strictjson.AppendText(append(b, '{'), "name", name), '}')
	}
	b = objects(b, "skills", p.Capabilities, func(b []byte, c directory.Capability) []byte {
		conv.lose(c.Description != "", "descriptions of capabilities")
		conv.lose(c.Type != "skill", "type of capabilities that are not skills")
		conv.lose(c.InputSchema != nil || c.OutputSchema != nil, "schemas of capabilities")
		conv.lose(len(c.Tags) > 0, "tags of capabilities")
		return named(b, c.Name)
	})
	b = objects(b, "domains", p.Tags, named)
	b = objects(b, "locators", p.Bindings, func(b []byte, v directory.Binding) []byte {
		conv.lose(v.Transport != "", "transports of bindings")
		b = strictjson.AppendText(append(b, '{'), "type", v.Protocol)
		return append(texts(b, "urls", []string{v.Endpoint}), '}')
	})
	conv.lose(p.Name != "" && p.Name != conv.agent, "display name")
	conv.lose(len(p.Examples) > 0, "examples")
	conv.lose(p.Authentication != nil, "authentication")
	return append(b, '}'), nil
}

// woa writes a Web of Agents document of one agent (draft-gaikwad-woa, 4).
func (conv *conversion) woa() ([]byte, error) {
	p := conv.projection
	bindings, err := conv.bindingsOf("https", 1)
	if err != nil {
		return nil, err
	}
	conv.loseCommon()
	conv.lose(p.Vendor != "", "vendor")
	conv.lose(len(p.Tags) > 0, "tags")
	conv.lose(len(p.Examples) > 0, "examples")
	conv.lose(p.Authentication != nil, "authentication")
	conv.lose(bindings[0].Envelope == "", "input format: the endpoint expects the bare input, but Web of Agents clients send an envelope")
	b := strictjson.AppendText([]byte(`{"woa_version":"1","agents":[{`), "id", conv.agentID())
	b = strictjson.AppendText(b, "name", cmp.Or(p.Name, conv.agent))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, p.Name, conv.agent))
	b = strictjson.AppendText(b, "version", conv.version)
	b = append(texts(conv.operations(b), "transports", []string{"rest"}), "}]"...)
	base, path := splitEndpoint(bindings[0].Endpoint)
	b = strictjson.AppendText(append(b, `,"transports":{"rest":{`...), "base", base)
	return append(strictjson.AppendText(b, "invoke_path", path), "}}}"...), nil
}

// agentID returns the agent's name with nothing but what an agent id can have.
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

// operations appends what a WoA agent says of what it can do: tools as operations,
// the schemas of an only one for the agent, and all else as capabilities.
func (conv *conversion) operations(b []byte) []byte {
	skills, tools := []string{}, []directory.Capability{}
	for _, c := range conv.projection.Capabilities {
		conv.lose(len(c.Tags) > 0, "tags of capabilities")
		if c.Type == "tool" {
			tools = append(tools, c)
			continue
		}
		conv.lose(c.Description != "", "descriptions of capabilities that are not operations")
		skills = append(skills, c.Name)
	}
	var only directory.Capability
	if len(tools) == 1 {
		only = tools[0]
	}
	schemas := func(b []byte, c directory.Capability, otherwise string) []byte {
		for _, s := range []struct {
			name   string
			schema []byte
		}{{"inputs", c.InputSchema}, {"outputs", c.OutputSchema}} {
			if text := cmp.Or(string(s.schema), otherwise); text != "" {
				b = strictjson.AppendRaw(b, s.name, []byte(text))
			}
		}
		return b
	}
	b = schemas(texts(b, "capabilities", skills), only, `{"type":"object"}`)
	return objects(b, "operations", tools, func(b []byte, c directory.Capability) []byte {
		b = strictjson.AppendText(append(b, '{'), "name", cmp.Or(c.Operation, c.Name))
		b = strictjson.AppendText(b, "description", cmp.Or(c.Description, c.Name))
		if len(tools) > 1 {
			b = schemas(b, c, "")
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
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return base, path
}
