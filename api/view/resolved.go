package view

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// AppendResolved appends a candidate of a resolution (cui 6): its id, how it is invoked,
// the parts of it that match, and its provenance. protocols are those that are allowed, in
// order of preference; empty for any. language tells whether languages were asked for.
func (r *Renderer) AppendResolved(data []byte, candidate *discovery.Candidate, protocols []string,
	language bool) []byte {
	entry := candidate.Entry
	projection := Projection(entry)
	binding := preferredBinding(projection, protocols)

	data = strictjson.AppendText(append(data, '{'), "id", PublicID(entry))
	data = strictjson.AppendText(data, "agent", entry.Agent)
	data = strictjson.AppendText(data, "name", title(entry, projection))
	data = strictjson.AppendText(data, "endpoint", binding.Endpoint)
	data = appendInvocation(strictjson.AppendRaw(data, "invocation", nil), entry, projection, binding)
	data = response.AppendNumber(data, "score", candidate.Score)

	data = appendReasons(strictjson.AppendRaw(data, "reasons", nil), candidate)
	if flags := candidate.Flags.Names(); len(flags) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "flags", nil), flags)
	}

	data = appendDeclared(data, projection, language)

	return r.appendMarks(data, entry, Options{Registrant: true}, directory.KindAIDIP)
}

// preferredBinding is the binding to invoke an agent by: the one of the first allowed
// protocol that it has, else its first.
func preferredBinding(projection *directory.Projection, protocols []string) directory.Binding {
	for _, protocol := range protocols {
		for _, binding := range projection.Bindings {
			if binding.Protocol == protocol {
				return binding
			}
		}
	}

	if len(projection.Bindings) > 0 {
		return projection.Bindings[0]
	}

	binding := directory.Binding{Endpoint: projection.Base}
	if len(projection.Protocols) > 0 {
		binding.Protocol = projection.Protocols[0]
	}

	return binding
}

// appendInvocation appends how an agent is invoked. With several operations there is no
// schema of all, and each has its own.
func appendInvocation(data []byte, entry *directory.Entry, projection *directory.Projection,
	binding directory.Binding) []byte {
	data = append(data, '{')
	if strings.HasPrefix(binding.Endpoint, "http") {
		data = strictjson.AppendText(data, "method", http.MethodPost) // all protocols over HTTP use POST
	}

	data = response.AppendOptional(data, "transport", binding.Protocol)
	data = response.AppendOptional(data, "envelope", binding.Envelope)

	tools := toolsOf(projection)
	switch len(tools) {
	case 0:
		data = strictjson.AppendRaw(data, "schema", inputsOf(entry))
	case 1:
		data = strictjson.AppendText(data, "operation", operationName(tools[0]))
		data = strictjson.AppendRaw(data, "schema", schemaOr(tools[0].InputSchema))
	default:
		data = strictjson.AppendRaw(data, "schema", anyObject)
		data = strictjson.AppendList(strictjson.AppendRaw(data, "operations", nil), tools, appendOperationSchema)
	}

	switch {
	case projection.Authentication != nil:
		data = strictjson.AppendRaw(data, "auth", projection.Authentication)
	case entry.Document.Kind() == directory.KindAIDIP && !entry.Redacted: // AI-022
		// In this kind, absent authentication means no authentication; a redacted document may withhold it.
		data = strictjson.AppendRaw(data, "auth", []byte(`{"type":"none"}`))
	}

	return append(data, '}')
}

func appendOperationSchema(b []byte, c directory.Capability) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", operationName(c))
	return append(strictjson.AppendRaw(b, "schema", schemaOr(c.InputSchema)), '}')
}

// inputsOf is the schema of the input of an agent without operations.
func inputsOf(e *directory.Entry) []byte {
	if e.Document.Kind() == directory.KindAIDIP {
		if inputs, ok := strictjson.FindMember(e.Document.Members(), "inputs"); ok {
			return inputs
		}
	}

	return anyObject
}

// appendReasons appends the parts of a candidate that match the intent: its tags, its
// examples, and the intent's words with the fields that they occur in.
func appendReasons(data []byte, candidate *discovery.Candidate) []byte {
	data = append(data, '[')
	add := func(part, value string, fields []string) {
		if data[len(data)-1] != '[' {
			data = append(data, ',')
		}

		data = strictjson.AppendText(append(data, '{'), "matched", part)

		data = strictjson.AppendText(data, "value", value)
		if fields != nil {
			data = strictjson.AppendStrings(strictjson.AppendRaw(data, "fields", nil), fields)
		}

		data = append(data, '}')
	}

	for _, tag := range candidate.MatchedTags {
		add("tag", tag, nil)
	}

	for _, example := range candidate.MatchedExamples {
		add("example", example.ID, nil)
	}

	if candidate.Evidence != nil {
		for _, term := range candidate.Evidence.Terms {
			add("word", term.Text, slices.Sorted(maps.Keys(term.Fields)))
		}
	}

	return append(data, ']')
}
