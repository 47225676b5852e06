package api

import (
	"github.com/getkin/kin-openapi/openapi3"

	"github.com/roster-mesh/roster/directory"
)

// The schemas of kinds that have no surface of their own.

// woaSchema is a Web of Agents document of one agent.
func woaSchema() *openapi3.Schema {
	return object([]string{"woa_version", "agents", "transports"}, props{
		"woa_version": oneOf("1"),
		"agents": said(&openapi3.Schema{
			Type: &openapi3.Types{"array"}, MinItems: 1, MaxItems: new(uint64(1)), Items: &openapi3.SchemaRef{Value: woaAgent()},
		}, "The one agent."),
		"transports": said(object(nil, props{
			"rest": object([]string{"base", "invoke_path"}, props{
				"base":        uri("Begins with https://; neither query nor fragment."),
				"invoke_path": {Type: &openapi3.Types{"string"}, Pattern: "^/", Description: "Each {agent_id} stands for the agent's id."},
			}),
			"mcp": object([]string{"server", "tool_namespace", "tool_field"}, props{"server": nonEmpty(""), "tool_namespace": nonEmpty(""), "tool_field": nonEmpty("")}),
		}), "By name; others than rest and mcp are kept and not interpreted."),
	})
}

// frontedSchema is our Web of Agents document.
func frontedSchema(ref referrer) *openapi3.Schema {
	agent := woaAgent()
	agent.Properties["capabilities"].Value.MaxItems = nil // those of other kinds may have more
	agent.Properties["projected"] = &openapi3.SchemaRef{Value: said(boolean(), "Its document is of another kind.")}
	agent.Properties["kind"] = &openapi3.SchemaRef{Value: text("Of its document.", 0)}
	agent.Properties["redacted"] = &openapi3.SchemaRef{Value: said(boolean(), "Members are withheld, by its origin or from this caller.")}
	agent.Properties["provenance"] = ref("provenance")
	return said(object([]string{"woa_version", "agents", "transports"}, props{
		"woa_version": oneOf("1"),
		"agents":      said(&openapi3.Schema{Type: &openapi3.Types{"array"}, MaxItems: new(uint64(maxFronted)), Items: &openapi3.SchemaRef{Value: agent}}, "Their ids are their rids."),
		"transports": object(nil, props{"rest": object([]string{"base", "invoke_path"}, props{
			"base": uri("This directory."), "invoke_path": text("Of the gateway: {agent_id} stands for an agent's id.", 0),
		})}),
	}), "A Web of Agents document (draft-gaikwad-woa, 4).")
}

// woaAgent is the agent of such a document (gaikwad 4.1).
func woaAgent() *openapi3.Schema {
	return object([]string{"id", "name", "description", "inputs", "outputs", "transports"}, props{
		"id":           {Type: &openapi3.Types{"string"}, Pattern: "^[A-Za-z0-9_-]+$"},
		"name":         nonEmpty("For people."),
		"description":  text("", directory.MaxDescription, 1),
		"version":      text("The agent's own.", 0),
		"capabilities": array(&openapi3.Schema{Type: &openapi3.Types{"string"}, MaxLength: new(uint64(directory.MaxTag)), Pattern: "^[^*]*$"}, "Stable identifiers.", directory.MaxTags),
		"inputs":       said(object(nil, nil), "A JSON Schema of what the agent takes."),
		"outputs":      said(object(nil, nil), "A JSON Schema of what it gives."),
		"transports":   &openapi3.Schema{Type: &openapi3.Types{"array"}, MinItems: 1, Items: &openapi3.SchemaRef{Value: text("", 0)}, Description: "Names of transports."},
		"operations": array(object([]string{"name", "description"}, props{
			"name": name(), "description": text("", directory.MaxDescription, 1),
			"inputs": said(object(nil, nil), "In place of the agent's."), "outputs": said(object(nil, nil), "In place of the agent's."),
		}), "What the agent can be asked to do; names differ.", directory.MaxCapabilities),
	})
}

// oasfSchema is a record of OASF.
func oasfSchema() *openapi3.Schema {
	return object([]string{"name"}, props{
		"name":           nonEmpty("The record's name."),
		"description":    text("", directory.MaxDescription),
		"version":        text("The record's own.", 0),
		"schema_version": text("Of OASF.", 0),
		"authors":        array(text("", 0), "", 0),
		"skills":         array(class(), "Each with a name or an id.", directory.MaxCapabilities),
		"domains":        array(class(), "Each with a name or an id.", directory.MaxTags),
		"locators": array(object([]string{"type"}, props{
			"type": nonEmpty(""), "urls": array(uri(""), "", 0), "url": text("Up to OASF 0.8.", 0),
		}), "", 0),
		"modules":    array(module(), "Of these, the A2A card of integration/a2a and the servers of integration/mcp are interpreted.", 0),
		"extensions": array(module(), "As modules were called up to OASF 0.6.", 0),
	})
}

// class is a skill or a domain of OASF.
func class() *openapi3.Schema {
	return object(nil, props{"name": {Type: &openapi3.Types{"string"}, Pattern: "^[^*]*$"}, "id": atLeast(0, ""), "class_name": text("Up to OASF 0.6.", 0), "class_uid": atLeast(0, "")})
}

func module() *openapi3.Schema { return object(nil, props{"name": text("", 0), "data": notNull("")}) }

// either demands one of the members, at least.
func either(s *openapi3.Schema, members ...string) *openapi3.Schema {
	for _, name := range members {
		s.AnyOf = append(s.AnyOf, &openapi3.SchemaRef{Value: &openapi3.Schema{Required: []string{name}}})
	}
	return s
}
