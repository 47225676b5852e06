package kinds

import (
	"net/url"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/egress"
)

// agentPlaceholder stands for the agent's id in an invoke_path (gaikwad 4.3.1).
const agentPlaceholder = "{agent_id}"

// nameOfWoA is ID@HOST: the one agent's id, and the host of where it is reached
// (spec/views.md, 10). Two origins may have the same id (gaikwad 4.1).
func nameOfWoA(doc *object) string {
	agent := agentOfWoA(doc)
	id := agent.need("id")

	bindings := (&woaTransports{doc: doc, agent: agent}).bindings()
	if id == "" || len(bindings) == 0 {
		return ""
	}

	target, err := url.Parse(bindings[0].Endpoint)
	if err != nil || target.Host == "" {
		doc.reading.refuse(directory.BadName, "",
			"the document does not tell the agent's host: give it a name as agent=NAME")

		return ""
	}

	return id + "@" + strings.TrimSuffix(strings.ToLower(target.Host), ":443")
}

// agentOfWoA returns the one agent of a WoA document. The directory requires one document for
// each agent.
func agentOfWoA(doc *object) *object {
	agents := doc.objects("agents")
	switch len(agents) {
	case 1:
		return agents[0]
	case 0:
		doc.refuse("agents", "\"agents\" is missing: the one agent that this registration is about is needed")
	default:
		doc.refuse("agents", "there are %d agents: register each with a document of its own", len(agents))
	}

	// With an empty agent, the other faults of the document are found as well.
	return doc.reading.object(doc.pointer("agents")+"/0", nil)
}

// projectWoA projects a Web of Agents document of one agent (draft-gaikwad-woa,
// 4; spec/views.md, 8 to 10).
func projectWoA(_ string, doc *object) *directory.Projection {
	if v := doc.text("woa_version"); v != "1" {
		doc.refuse("woa_version", "\"woa_version\" is %.40q; this directory knows \"1\"", v)
	}

	agent := agentOfWoA(doc)

	id := agent.need("id")
	if !isAgentID(id) {
		agent.refuse("id", "the id %.100q has more than letters, digits, - and _", id)
	}

	transports := &woaTransports{doc: doc, agent: agent}
	projection := &directory.Projection{
		Name:           agent.need("name"),
		Description:    agent.need("description"),
		Bindings:       transports.bindings(),
		Protocols:      transports.protocols,
		Tags:           unique(agent.tags("capabilities")),
		Authentication: agent.any("authz"),
		Version:        agent.text("version"),
	}
	agent.short("description", directory.MaxDescription)

	if authz := doc.any("authz"); projection.Authentication == nil {
		projection.Authentication = authz // it may stand in either place (gaikwad, appendix A)
	}

	projection.Base = transports.base

	tools := operationsOfWoA(agent, id)
	for _, name := range projection.Tags {
		agent.checkName("capabilities", name)

		// A tag that is the name of an operation is that operation, and no second capability.
		if !slices.ContainsFunc(tools, func(c directory.Capability) bool { return c.Name == name }) {
			projection.Capabilities = append(projection.Capabilities,
				directory.Capability{Name: name, Type: directory.CapabilitySkill})
		}
	}

	projection.Capabilities = append(projection.Capabilities, tools...)
	agent.limit("operations", len(projection.Capabilities))

	return projection
}

// isAgentID reports whether id is an agent-id (gaikwad 4.1).
func isAgentID(id string) bool {
	return id != "" && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}

// operationsOfWoA returns an agent's operations as tools. An operation that WoA calls default,
// or that has no name, gets the agent's name, because a tool called default is meaningless
// (spec/views.md, 8).
func operationsOfWoA(agent *object, id string) []directory.Capability {
	unnamed := directory.Capability{
		Name: id, Type: directory.CapabilityTool, Operation: directory.DefaultOperation,
		InputSchema: agent.needSchema("inputs"), OutputSchema: agent.needSchema("outputs"),
	}

	operations := agent.objects("operations")
	if len(operations) == 0 {
		return []directory.Capability{unnamed}
	}

	var tools []directory.Capability

	seen := uniqueNames{}
	for _, obj := range operations {
		// An operation without schemas of its own has the agent's.
		capability := unnamed
		if name := obj.need("name"); name != directory.DefaultOperation {
			capability.Name, capability.Operation = name, ""
		}

		capability.Description = obj.need("description")
		obj.short("description", directory.MaxDescription)

		if s := obj.schema("inputs"); s != nil {
			capability.InputSchema = s
		}

		if s := obj.schema("outputs"); s != nil {
			capability.OutputSchema = s
		}

		obj.checkName("name", capability.Name)
		seen.add(obj, "name", capability.Name)
		tools = append(tools, capability)
	}

	return tools
}

// woaTransports reads how a WoA document's agent is reached.
type woaTransports struct {
	doc, agent *object
	protocols  []string
	base       string // of the rest transport, else the server of mcp
}

// bindings returns a binding for each transport that the agent names and that the draft
// describes. The use of a private transport, which has a reverse-DNS name, is known to its
// inventor alone. Another unregistered transport has no meaning (gaikwad 4.3.3, 9.3).
func (t *woaTransports) bindings() (bs []directory.Binding) {
	var server *object
	configurations := t.doc.child("transports")

	names := t.agent.texts("transports")
	if len(names) == 0 {
		t.agent.refuse("transports", "\"transports\" is missing: the name of at least one transport is needed")
	}

	// A transport that is named twice gives one binding.
	for _, name := range unique(names) {
		obj := configurations.child(name)
		if obj.raw == nil {
			t.agent.refuse("transports",
				"the agent names the transport %.100q, which \"transports\" of the document does not describe", name)

			continue
		}

		switch {
		case name == "rest":
			bs = append(bs, t.rest(obj))
			t.protocols = append(t.protocols, protocolHTTPS)
		case name == "mcp":
			obj.need("tool_namespace")
			obj.need("tool_field")
			server = obj
			bs = append(bs, directory.Binding{Protocol: protocolMCP, Endpoint: obj.need("server")})
			t.protocols = append(t.protocols, protocolMCP)
		case strings.Contains(name, "."):
			t.protocols = append(t.protocols, name)
		}
	}

	if t.base == "" && server != nil {
		t.base = server.uri("server", server.text("server"))
	}

	if len(bs) == 0 {
		t.agent.refuse("transports",
			"the agent has neither the transport rest nor mcp, so it can't be reached: add one of them")
	}

	return bs
}

// rest returns the binding of a rest transport. Its body is not the input alone
// but the invocation envelope (gaikwad 5.1).
func (t *woaTransports) rest(obj *object) directory.Binding {
	t.base = obj.uri("base", obj.need("base"))

	path := obj.need("invoke_path")
	switch target, err := url.Parse(t.base); {
	case err != nil:
	// On this machine plain HTTP is not on the open Internet (gaikwad 8.1).
	case target.Scheme != "https" && !(target.Scheme == "http" && egress.IsLoopback(target.Host)):
		obj.refuse("base", "\"base\" is %.200q; it begins with https://", t.base)
	case target.RawQuery != "" || target.Fragment != "" || target.ForceQuery:
		obj.refuse("base", "\"base\" is %.200q, to which no path can be appended: leave out the query and the "+
			"fragment", t.base)
	}

	if path != "" && path[0] != '/' {
		obj.refuse("invoke_path", "\"invoke_path\" is %.200q; it begins with a slash", path)
	}

	endpoint := strings.TrimRight(t.base, "/") + strings.ReplaceAll(path, agentPlaceholder, t.agent.text("id"))

	return directory.Binding{
		Protocol: protocolHTTPS, Endpoint: obj.uri("invoke_path", endpoint), MediaTypes: []string{"application/json"},
		InteractionModel: "request-response", Envelope: "woa",
	}
}

// unique returns the distinct elements of a list, in its order, as a new list.
func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}

	return out
}
