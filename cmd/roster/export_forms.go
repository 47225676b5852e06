package main

import (
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The forms that a registration is written in, from its projection. What a form
// demands and a registration lacks is completed as the directory's own views are:
// a description from the name, the version from the revision.

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

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

// spoken returns at most so many bindings of the protocol that a form is for, and
// loses the others. Without one, nobody could reach what is written.
func (x *exporting) spoken(protocol string, most int) (bs []directory.Binding, err error) {
	for _, b := range x.p.Bindings {
		if b.Protocol == protocol && len(bs) < most {
			bs = append(bs, b)
		} else {
			x.lose(true, "the binding "+b.Protocol+" at "+b.Endpoint)
		}
	}
	if len(bs) == 0 {
		return nil, failed(exitFailed, "%s can't be written so: it has no binding of the protocol %s", x.agent, protocol).
			because("It is reached by: %s.", strings.Join(x.p.Protocols, ", "))
	}
	return bs, nil
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

// common loses what none of the forms but AD and AIDIP has.
func (x *exporting) common() {
	x.lose(len(x.p.Constraints) > 0, "constraints")
	x.lose(len(x.p.Languages) > 0, "supported languages")
	x.lose(x.p.Status != "active", "the status "+x.p.Status)
}

// a2a writes an agent card of A2A 1.0.
func (x *exporting) a2a() ([]byte, error) {
	p := x.p
	bindings, err := x.spoken("a2a", len(p.Bindings))
	if err != nil {
		return nil, err
	}
	x.common()
	b := strictjson.AppendText([]byte{'{'}, "name", first(p.Name, x.agent))
	b = strictjson.AppendText(b, "description", first(p.Description, p.Name, x.agent))
	b = objects(b, "supportedInterfaces", bindings, func(b []byte, v directory.Binding) []byte {
		b = strictjson.AppendText(append(b, '{'), "url", v.Endpoint)
		b = strictjson.AppendText(b, "protocolBinding", first(v.Transport, "JSONRPC"))
		return append(strictjson.AppendText(b, "protocolVersion", "1.0"), '}')
	})
	x.lose(true, "the interfaces' version of A2A, which the directory does not know: 1.0 is written")
	if p.Vendor != "" {
		b = strictjson.AppendRaw(b, "provider", append(strictjson.AppendText([]byte{'{'}, "organization", p.Vendor), `,"url":""}`...))
	}
	b = strictjson.AppendText(b, "version", x.version)
	b = strictjson.AppendRaw(b, "capabilities", []byte("{}"))
	b = texts(b, "defaultInputModes", []string{"text/plain"})
	b = texts(b, "defaultOutputModes", []string{"text/plain"})
	x.lose(p.Authentication != nil, "how to authenticate")
	b = objects(b, "skills", p.Capabilities, func(b []byte, c directory.Capability) []byte {
		x.lose(c.Type != "skill", "the type of capabilities that are not skills")
		x.lose(c.InputSchema != nil || c.OutputSchema != nil, "schemas of capabilities")
		b = strictjson.AppendText(append(b, '{'), "id", c.Name)
		b = strictjson.AppendText(b, "name", c.Name)
		b = strictjson.AppendText(b, "description", first(c.Description, c.Name))
		b = texts(b, "tags", union(c.Tags, p.Tags))
		if of := x.examplesOf(c.Name); len(of) > 0 {
			b = texts(b, "examples", of)
		}
		return append(b, '}')
	})
	x.lose(len(p.Tags) > 0 && len(p.Capabilities) == 0, "the agent's tags")
	return append(b, '}'), nil
}

// examplesOf returns the examples of one capability, as their ids tell; the
// others are lost.
func (x *exporting) examplesOf(capability string) (of []string) {
	named := func(e directory.Example, name string) bool { return strings.HasPrefix(e.ID, name+"-") }
	for _, e := range x.p.Examples {
		switch {
		case named(e, capability):
			of = append(of, e.Text)
		case !slices.ContainsFunc(x.p.Capabilities, func(c directory.Capability) bool { return named(e, c.Name) }):
			x.lose(true, "examples that belong to no capability")
		}
	}
	return of
}

// mcp writes a server.json of the MCP registry.
func (x *exporting) mcp() ([]byte, error) {
	p := x.p
	bindings, err := x.spoken("mcp", len(p.Bindings))
	if err != nil {
		return nil, err
	}
	x.common()
	b := strictjson.AppendText([]byte{'{'}, "$schema", "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json")
	b = strictjson.AppendText(b, "name", x.agent)
	if p.Name != "" && p.Name != x.agent {
		b = strictjson.AppendText(b, "title", p.Name)
	}
	b = strictjson.AppendText(b, "description", first(p.Description, p.Name, x.agent))
	b = strictjson.AppendText(b, "version", x.version)
	b = objects(b, "remotes", bindings, func(b []byte, v directory.Binding) []byte {
		b = strictjson.AppendText(append(b, '{'), "type", first(v.Transport, "streamable-http"))
		return append(strictjson.AppendText(b, "url", v.Endpoint), '}')
	})
	x.lose(p.Vendor != "", "the vendor")
	x.lose(len(p.Capabilities) > 0, "capabilities")
	x.lose(len(p.Tags) > 0, "tags")
	x.lose(len(p.Examples) > 0, "examples")
	x.lose(p.Authentication != nil, "how to authenticate")
	return append(b, '}'), nil
}

// oasf writes a record of OASF 1.0.
func (x *exporting) oasf() ([]byte, error) {
	p := x.p
	x.common()
	b := strictjson.AppendText([]byte{'{'}, "name", x.agent)
	b = strictjson.AppendText(b, "version", x.version)
	b = strictjson.AppendText(b, "schema_version", "1.0.0")
	b = strictjson.AppendText(b, "description", first(p.Description, p.Name, x.agent))
	var authors []string
	if p.Vendor != "" {
		authors = []string{p.Vendor}
	}
	b = texts(b, "authors", authors)
	named := func(b []byte, name string) []byte {
		return append(strictjson.AppendText(append(b, '{'), "name", name), '}')
	}
	b = objects(b, "skills", p.Capabilities, func(b []byte, c directory.Capability) []byte {
		x.lose(c.Description != "", "descriptions of capabilities")
		x.lose(c.Type != "skill", "the type of capabilities that are not skills")
		x.lose(c.InputSchema != nil || c.OutputSchema != nil, "schemas of capabilities")
		x.lose(len(c.Tags) > 0, "tags of capabilities")
		return named(b, c.Name)
	})
	b = objects(b, "domains", p.Tags, named)
	b = objects(b, "locators", p.Bindings, func(b []byte, v directory.Binding) []byte {
		x.lose(v.Transport != "", "transports of bindings")
		b = strictjson.AppendText(append(b, '{'), "type", v.Protocol)
		return append(texts(b, "urls", []string{v.Endpoint}), '}')
	})
	x.lose(p.Name != "" && p.Name != x.agent, "the name for people")
	x.lose(len(p.Examples) > 0, "examples")
	x.lose(p.Authentication != nil, "how to authenticate")
	return append(b, '}'), nil
}

// woa writes a Web of Agents document of one agent (draft-gaikwad-woa, 4).
func (x *exporting) woa() ([]byte, error) {
	p := x.p
	bindings, err := x.spoken("https", 1)
	if err != nil {
		return nil, err
	}
	x.common()
	x.lose(p.Vendor != "", "the vendor")
	x.lose(len(p.Tags) > 0, "tags")
	x.lose(len(p.Examples) > 0, "examples")
	x.lose(p.Authentication != nil, "how to authenticate")
	x.lose(bindings[0].Envelope == "", "that its endpoint takes the input alone: a WoA client sends it an envelope")
	b := strictjson.AppendText([]byte(`{"woa_version":"1","agents":[{`), "id", x.agentID())
	b = strictjson.AppendText(b, "name", first(p.Name, x.agent))
	b = strictjson.AppendText(b, "description", first(p.Description, p.Name, x.agent))
	b = strictjson.AppendText(b, "version", x.version)
	b = append(texts(x.operations(b), "transports", []string{"rest"}), "}]"...)
	base, path := splitEndpoint(bindings[0].Endpoint)
	b = strictjson.AppendText(append(b, `,"transports":{"rest":{`...), "base", base)
	return append(strictjson.AppendText(b, "invoke_path", path), "}}}"...), nil
}

// agentID returns the agent's name with nothing but what an agent id can have.
func (x *exporting) agentID() string {
	id := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, x.agent)
	x.lose(id != x.agent, "the name "+x.agent+", which is no agent id")
	return id
}

// operations appends what a WoA agent says of what it can do: tools as operations,
// the schemas of an only one for the agent, and all else as capabilities.
func (x *exporting) operations(b []byte) []byte {
	skills, tools := []string{}, []directory.Capability{}
	for _, c := range x.p.Capabilities {
		x.lose(len(c.Tags) > 0, "tags of capabilities")
		if c.Type == "tool" {
			tools = append(tools, c)
			continue
		}
		x.lose(c.Description != "", "descriptions of capabilities that are no operations")
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
			if text := first(string(s.schema), otherwise); text != "" {
				b = strictjson.AppendRaw(b, s.name, []byte(text))
			}
		}
		return b
	}
	b = schemas(texts(b, "capabilities", skills), only, `{"type":"object"}`)
	return objects(b, "operations", tools, func(b []byte, c directory.Capability) []byte {
		b = strictjson.AppendText(append(b, '{'), "name", first(c.Operation, c.Name))
		b = strictjson.AppendText(b, "description", first(c.Description, c.Name))
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
