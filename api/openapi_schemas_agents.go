package api

import (
	"github.com/getkin/kin-openapi/openapi3"

	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
)

// agentSchemas are what the AIDIP registry takes and answers.
func agentSchemas(ref referrer) map[string]*openapi3.Schema {
	schema := func(what string) *openapi3.Schema { return said(object(nil, nil), what) }
	marks := func(s *openapi3.Schema) *openapi3.Schema {
		s.Properties["projected"] = &openapi3.SchemaRef{Value: said(boolean(), "true where the document is of another kind than aidip.")}
		s.Properties["kind"] = &openapi3.SchemaRef{Value: text("The document's kind, where it is not aidip.", 0)}
		s.Properties["redacted"] = &openapi3.SchemaRef{Value: said(boolean(), "true where members are withheld, by the origin or from this caller.")}
		s.Properties["provenance"] = ref("provenance")
		return s
	}
	either := func(what string) *openapi3.Schema {
		return &openapi3.Schema{Description: what, AnyOf: openapi3.SchemaRefs{{Value: nonEmpty("")}, {Value: array(nonEmpty(""), "", index.MaxFilters)}}}
	}
	undeclared := said(boolean(), "false where languages were asked for and the agent lists none.")
	top := atLeast(1, "The most results; over 100 is 100.")
	top.Default = discovery.DefaultLimit
	languages := either("Languages, all of which it supports; an agent that lists none is not left out.")
	filters := object(nil, props{
		"capabilities": either("Capabilities, all of which it lists."), "tags": either("Tags, all of which it or its capabilities have."),
		"supported_languages": languages, "supported_language": languages, "language": languages,
		"status": text("active by default; any for all.", 0), "origin": text("A trust domain: only what is registered there.", 0),
		"owner": text("An identity: only what it owns, as far as the caller is told.", 0),
	})
	closed := false
	filters.AdditionalProperties = openapi3.BoolSchema{Has: &closed}
	policy := object(nil, props{
		"verified":         said(boolean(), "Only what its origin has signed, or this domain's own."),
		"min_verification": oneOf("pending", "verified", "logged", "witnessed"),
		"max_age_seconds":  atLeast(0, "Since it was last refreshed."), "allowed_domains": either("Trust domains."), "allowed_owners": either("Identities, one of which owns the agent."),
		"allowed_protocols": either("In order of preference."), "excluded_tags": either("Tags, none of which it has."),
	})
	policy.AdditionalProperties = openapi3.BoolSchema{Has: &closed}
	return map[string]*openapi3.Schema{
		"metadata": said(marks(object([]string{"id", "name", "endpoint", "provenance"}, props{
			"id": nonEmpty("The given one, else the registration's rid."), "name": nonEmpty(""), "description": text("", 0), "version": text("", 0),
			"publisher": text("", 0), "capabilities": array(text("", 0), "", 0), "tags": array(text("", 0), "", 0), "endpoint": nonEmpty(""),
			"supported_languages": array(text("", 0), "", 0), "status": text("", 0),
			"operations": array(object([]string{"name"}, props{"name": text("", 0), "description": text("", 0), "inputs": schema(""), "outputs": schema("")}), "", 0),
			"inputs":     schema(""), "outputs": schema(""),
		})), "An agent's metadata in full, as it was written where it is of kind aidip, and what the directory knows of it."),
		"summary": said(marks(object([]string{"id", "name", "description", "endpoint", "capabilities", "provenance"}, props{
			"id": nonEmpty(""), "name": nonEmpty(""), "description": nonEmpty(""), "endpoint": text("", 0), "capabilities": array(text("", 0), "", 0),
			"status": text("Where it is not active.", 0), "score": number("Where there was a query. Scores of different directories can't be compared."),
			"language_declared": undeclared,
		})), "An agent as lists show it."),
		"summaries": said(array(nil, "", index.MaxCount, ref("summary")), "Agents, a bare array."),
		"agent-search": said(object(nil, props{
			"filters": said(filters, "All must be met."), "query": text("What the agent shall do.", discovery.MaxQuery), "top": top, "diversity": diversitySwitch(),
		}), "Which agents are looked for (draft-cui-ai-agent-discovery-invocation, 4.3)."),
		"intent": said(object([]string{"intent"}, props{
			"intent": text("What is to be done.", discovery.MaxQuery, 1),
			"context": said(object(nil, props{
				"capabilities": either("All of which it must list."), "tags": either("Preferred."), "supported_languages": languages,
				"supported_language": languages, "language": languages, "region": either("Any of which its constraints name."),
			}), "What the task needs. Other members are told in warnings."),
			"policy": said(policy, "Whom the caller trusts."), "top": top, "diversity": diversitySwitch(),
		}), "What is to be resolved (draft-cui-ai-agent-discovery-invocation, 6)."),
		"resolution": said(object([]string{"candidates", "excluded", "warnings"}, props{
			"candidates": array(marks(object([]string{"id", "name", "endpoint", "invocation", "score", "reasons", "provenance"}, props{
				"id": nonEmpty(""), "name": nonEmpty(""), "endpoint": text("", 0), "score": number(""), "language_declared": undeclared,
				"flags": array(text("", 0), "Signs that it was written for rankers.", 0),
				"invocation": object([]string{"schema"}, props{
					"method": text("", 0), "transport": text("The protocol.", 0), "envelope": text("What the input is wrapped in.", 0),
					"operation": text("Where it has one.", 0), "schema": schema("Of the input."), "auth": notNull("How to authenticate; absent where it says nothing."),
					"operations": array(object([]string{"name", "schema"}, props{"name": text("", 0), "schema": schema("")}), "Where it has several.", 0),
				}),
				"reasons": array(object([]string{"matched", "value"}, props{
					"matched": oneOf("tag", "example", "word"), "value": text("", 0), "fields": array(text("", 0), "", 0),
				}), "What of it matches.", 0),
			})), "The best first.", discovery.MaxLimit),
			"excluded": &openapi3.Schema{Type: &openapi3.Types{"object"}, Description: "How many were left out, by what left them out.", AdditionalProperties: openapi3.AdditionalProperties{Schema: &openapi3.SchemaRef{Value: atLeast(1, "")}}},
			"warnings": warningsSchema(),
		}), "Agents that can do it, and how to invoke them."),
	}
}

func number(description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"number"}, Description: description}
}
