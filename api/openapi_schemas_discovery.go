package api

import (
	"github.com/getkin/kin-openapi/openapi3"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// discoverySchemas are what the discovery profile's surface takes and answers.
func discoverySchemas(ref referrer) map[string]*openapi3.Schema {
	metadata := object([]string{"id", "provenance"}, props{
		"id": nonEmpty("The id that it was given, or that the directory gave it."), "name": text("", 0), "description": text("", 0),
		"tags": array(text("", 0), "", 0), "bindings": array(binding(), "", 0), "status": text("", 0),
		"expires_at": moment("What the document says, else when the registration ends unless it is refreshed."),
		"projected":  said(boolean(), "true where the document is of another kind than profile."), "kind": text("That kind.", 0),
		"redacted": said(boolean(), "true where members are withheld, by the origin or from this caller."), "provenance": nil,
	})
	metadata.Properties["provenance"] = ref("provenance")
	response := object([]string{"level", "request_id", "generated_at", "candidates", "applied_filters", "unsupported_filters", "warnings"}, props{
		"level": oneOf("D2"), "request_id": text("As X-Request-Id.", 0), "generated_at": instant(""),
		"candidates":          array(nil, "The best first. Scores are this node's own: those of other services can't be compared with them.", discovery.MaxLimit, ref("discovery-candidate")),
		"applied_filters":     said(object(nil, nil), "Every filter that was applied, as it was applied."),
		"unsupported_filters": array(text("", 0), "The filters that could not be applied.", 0),
		"warnings":            warningsSchema(),
		"semantic": said(object([]string{"source", "model", "weight"}, props{
			"source": oneOf(discovery.SourceEmbeddings, discovery.SourceNone), "model": text("", 0), "weight": said(share(), "The share of the component context that is nearness of vectors."),
		}), "What part vectors have, where a source of them is configured."),
		"explanation": nil,
	})
	response.Properties["explanation"] = ref("discovery-explanation")
	return map[string]*openapi3.Schema{
		string(directory.KindProfile): profileSchema(),
		"profile-metadata":            said(metadata, "Agent Metadata (draft-xu-efficient-agent-discovery-profile-00, 4), and what the directory knows of it."),
		"discovery-request":           requestSchema(),
		"discovery-response":          said(response, "Ranked candidates (draft-xu-efficient-agent-discovery-profile-00, 6)."),
		"discovery-candidate":         candidateSchema(ref),
		"discovery-explanation":       explanationSchema(),
		"discovery-service": said(object([]string{"level", "agents", "query", "limits", "constraints", "taxonomies", "score"}, props{
			"level": oneOf("D2"), "profile": text("", 0), "agents": reference("Where metadata is published."), "query": reference("Where requests go."),
			"details": array(text("", 0), "", 0), "limits": object(nil, nil), "constraints": array(text("", 0), "The constraints that are applied; others are reported.", 0),
			"taxonomies": array(text("", 0), "Those by which tags are expanded.", 0), "request_extensions": array(text("", 0), "The members of a request that are this service's own.", 0), "strict": said(boolean(), "Whether every request is taken as strict."),
			"score": object([]string{"weights"}, props{"weights": object(nil, nil), "components": array(text("", 0), "", 0), "formula": text("", 0)}),
			"diversity": said(object([]string{"per_owner", "displacing_share"}, props{
				"per_owner": atLeast(1, ""), "displacing_share": share(), "rule": text("", 0), "warning": text("", 0),
			}), "How many candidates of one owner stand before those of others."),
			"semantic": said(object([]string{"source", "sends"}, props{
				"source": oneOf(discovery.SourceEmbeddings, discovery.SourceNone), "model": text("", 0), "sends": array(text("", 0), "What that source is told: queries, registrations.", 0),
			}), "Where vectors come from."),
		}), "What this discovery service does (draft-xu-efficient-agent-discovery-profile-00, 3.1)."),
	}
}

// moment is a time as somebody else writes it.
func moment(description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"string"}, Format: "date-time", Description: description}
}

func binding() *openapi3.Schema {
	return object([]string{"protocol", "endpoint"}, props{
		"protocol": nonEmpty(""), "endpoint": nonEmpty("An endpoint reference or URI."), "media_types": array(text("", 0), "", 0),
		"interaction_model": text("request-response, streaming, batch, or another.", 0),
		"priority":          said(&openapi3.Schema{Type: &openapi3.Types{"integer"}}, "The lowest is preferred."),
	})
}

func profileSchema() *openapi3.Schema {
	label := func() *openapi3.Schema {
		s := name()
		most := uint64(directory.MaxTag)
		s.MaxLength = &most
		return s
	}
	bindings := array(binding(), "How the agent is reached.", 0)
	bindings.MinItems = 1
	return said(object([]string{"id", "name", "description", "bindings"}, props{
		"id":          text("Stable, and unique in the directory: a URI, a DNS name, or any other. It isn't search or resolve.", directory.MaxName, 1),
		"name":        nonEmpty("For people; not unique."),
		"description": text("What the agent is for, in what domains, and what it doesn't do.", directory.MaxDescription, 1),
		"tags":        array(label(), "What the agent can do, in concise lowercase labels.", directory.MaxTags),
		"examples": array(object([]string{"text"}, props{
			"id": text("", 0), "text": nonEmpty("A task that the agent handles."), "tags": tags(), "input_schema": object(nil, nil), "output_schema": object(nil, nil),
			"language": text("A language tag (BCP 47); another text counts as none.", 0),
		}), "", 0),
		"bindings": bindings, "auth": object(nil, nil), "constraints": object(nil, nil), "signature": object(nil, nil),
		"status":     text("active, inactive, suspended, deprecated or testing. Only what is active, or doesn't say, is discovered.", 0),
		"version":    text("", 0),
		"updated_at": moment("When this metadata was made: older metadata does not replace newer."),
		"expires_at": moment("When it ends, however long its lease is."),
	}), "Agent Metadata (draft-xu-efficient-agent-discovery-profile-00, 4). Further members are kept and returned as sent, but for those that are the directory's own, which are dropped.")
}

func requestSchema() *openapi3.Schema {
	values := func(description string) *openapi3.Schema {
		return array(text("", directory.MaxTag, 1), description, discovery.MaxFilterValues)
	}
	oneOrMore := func(description string) *openapi3.Schema {
		return &openapi3.Schema{Type: &openapi3.Types{"string", "array"}, Description: description}
	}
	return said(object([]string{"query"}, props{
		"query":         text("What the agent shall do, in words.", discovery.MaxQuery, 1),
		"required_tags": values("Tags that candidates have."), "preferred_tags": values("Tags that raise the score."), "excluded_tags": values("Tags that candidates don't have."),
		"protocols": values("Protocols that are acceptable; any where none is named."),
		"constraints": said(object(nil, props{
			"max_results_age_seconds": atLeast(0, "Seconds since the last refresh that this node has verified."),
			"region":                  oneOrMore("A region, or several, one of which the registration's own constraints name."),
			"origins":                 oneOrMore("A trust domain, or several, one of which registered it."),
			"owners":                  oneOrMore("Ours: an identity, or several, one of which owns it."),
			"min_verification":        oneOf("pending", "verified", "logged", "witnessed"),
		}), "Hard filters. Names that are not known here are reported."),
		"limit":            atLeast(1, "The most candidates; 10 by default, 100 at most."),
		"include_evidence": boolean(), "detail": oneOf(discovery.DetailMinimal, discovery.DetailSummary, discovery.DetailFull),
		"client_context": said(object(nil, nil), "Hints, of which locale is used to break ties. None is kept."),
		"strict":         said(boolean(), "Ours: a filter that can't be applied fails the request."),
		"explain":        text("Ours: the rid or the name of a registration, or ORIGIN/RID, of which the answer is to say what became of it.", directory.MaxName, 1),
		"expand":         said(boolean(), "Ours: tags that are kinds of a required tag satisfy it."),
		"diversity":      diversitySwitch(),
	}), "A Discovery Request (draft-xu-efficient-agent-discovery-profile-00, 5). Further members are ignored.")
}

// diversitySwitch is the member by which a request asks for the order of scores alone.
func diversitySwitch() *openapi3.Schema {
	s := said(boolean(), "Ours: false asks for the order of scores alone. By default an owner of many has a few candidates before those of others that match about as well; /.well-known/agent-discovery has the rule.")
	s.Default = true
	return s
}

func warningsSchema() *openapi3.Schema {
	return array(text("", 0), "What a reader of the answer should know. "+discovery.WarnDiversified+": candidates are not in the order of their scores.", 0)
}

// share is a number from 0 to 1.
func share() *openapi3.Schema {
	least, most := 0., 1.
	return &openapi3.Schema{Type: &openapi3.Types{"number"}, Min: &least, Max: &most}
}

func candidateSchema(ref referrer) *openapi3.Schema {
	s := object([]string{"id", "bindings", "score", "status", "provenance"}, props{
		"id": nonEmpty(""), "name": text("", 0), "description": text("", 0), "bindings": array(binding(), "Those of acceptable protocols first. Without user information and query, unless detail is full.", 0),
		"score": said(share(), "Made of score_components with the weights at /.well-known/agent-discovery."),
		"score_components": said(object([]string{"tag", "context", "example", "protocol", "freshness", "policy"}, props{
			"tag": share(), "context": share(), "example": share(), "protocol": share(), "freshness": share(), "policy": share(),
		}), "With include_evidence."),
		"matched_tags":     array(text("", 0), "Tags of its own that were asked for.", 0),
		"matched_examples": array(object([]string{"id", "score", "text"}, props{"id": text("", 0), "score": share(), "text": text("", 0)}), "With include_evidence.", 0),
		"evidence":         said(object(nil, nil), "With include_evidence: weights, terms, expanded_tags, snippets."),
		"status":           text("", 0), "flags": array(text("", 0), "What is wrong with its texts.", 0),
		"freshness": object([]string{"metadata_updated_at", "indexed_at", "age_seconds"}, props{
			"metadata_updated_at": moment(""), "indexed_at": instant(""), "age_seconds": atLeast(0, ""),
			"stale": said(boolean(), "Where the request has max_results_age_seconds."),
		}),
		"projected": boolean(), "kind": text("", 0), "redacted": said(boolean(), "true where members are withheld, by the origin or from this caller."),
		"metadata":        said(object(nil, nil), "With detail full: the document as it was written."),
		"credential_refs": array(reference(""), "With detail full: where the signed record and its proof are.", 0),
		"provenance":      nil,
	})
	s.Properties["provenance"] = ref("provenance")
	claimed(s, "id", "name", "description", "bindings", "matched_tags", "matched_examples", "evidence", "status", "metadata")
	return said(s, "A candidate (draft-xu-efficient-agent-discovery-profile-00, 6.1).")
}

func explanationSchema() *openapi3.Schema {
	number := func() *openapi3.Schema { return &openapi3.Schema{Type: &openapi3.Types{"number"}} }
	return said(object([]string{"id", "href", "why", "rank", "score", "score_components", "evidence"}, props{
		"id": text("", 0), "href": reference(""), "rank": atLeast(0, "From 1 on; 0 where it has none."), "score": number(),
		"why":          text("found; behind others; no_match; flagged; duplicate of another of its owner; per_owner: behind others of other owners with lower scores; or the name of the filter that leaves it out.", 0),
		"needed_score": said(number(), "What the last candidate of a full answer has; 0 where there is room."), "score_components": object(nil, nil),
		"matched_tags": array(text("", 0), "", 0), "matched_examples": array(object(nil, nil), "", 0), "evidence": object(nil, nil),
		"excluded": said(object(nil, nil), "How many registrations each filter has left out, of those that the caller may see."),
	}), "What became of the registration that the request's explain names.")
}
