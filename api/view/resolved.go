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
// what of it matches, and who vouches for it. protocols are those that are allowed, in
// order of preference; empty for any. language tells whether languages were asked for.
func (r *Renderer) AppendResolved(b []byte, x *discovery.Candidate, protocols []string, language bool) []byte {
	e := x.Entry
	p := Projection(e)
	binding := preferredBinding(p, protocols)

	b = strictjson.AppendText(append(b, '{'), "id", PublicID(e))
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "endpoint", binding.Endpoint)
	b = appendInvocation(strictjson.AppendRaw(b, "invocation", nil), e, p, binding)
	b = response.AppendNumber(b, "score", x.Score)
	b = appendReasons(strictjson.AppendRaw(b, "reasons", nil), x)
	if flags := x.Flags.Names(); len(flags) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "flags", nil), flags)
	}
	b = appendDeclared(b, p, language)

	return r.appendMarks(b, e, Options{Registrant: true}, directory.KindAIDIP)
}

// preferredBinding is the binding to invoke an agent by: the one of the first allowed
// protocol that it has, else its first.
func preferredBinding(p *directory.Projection, protocols []string) directory.Binding {
	for _, protocol := range protocols {
		for _, binding := range p.Bindings {
			if binding.Protocol == protocol {
				return binding
			}
		}
	}
	if len(p.Bindings) > 0 {
		return p.Bindings[0]
	}

	binding := directory.Binding{Endpoint: p.Base}
	if len(p.Protocols) > 0 {
		binding.Protocol = p.Protocols[0]
	}

	return binding
}

// appendInvocation appends how an agent is invoked. With several operations there is no
// schema of all, and each has its own.
func appendInvocation(b []byte, e *directory.Entry, p *directory.Projection, binding directory.Binding) []byte {
	b = append(b, '{')
	if strings.HasPrefix(binding.Endpoint, "http") {
		b = strictjson.AppendText(b, "method", http.MethodPost) // all protocols over HTTP use POST
	}
	b = response.AppendOptional(b, "transport", binding.Protocol)
	b = response.AppendOptional(b, "envelope", binding.Envelope)

	tools := toolsOf(p)
	switch len(tools) {
	case 0:
		b = strictjson.AppendRaw(b, "schema", inputsOf(e))
	case 1:
		b = strictjson.AppendText(b, "operation", operationName(tools[0]))
		b = strictjson.AppendRaw(b, "schema", schemaOr(tools[0].InputSchema))
	default:
		b = strictjson.AppendRaw(b, "schema", anyObject)
		b = response.AppendList(strictjson.AppendRaw(b, "operations", nil), tools, appendOperationSchema)
	}

	switch {
	case p.Authentication != nil:
		b = strictjson.AppendRaw(b, "auth", p.Authentication)
	case e.Document.Kind() == directory.KindAIDIP && !e.Redacted: // AI-022
		b = strictjson.AppendRaw(b, "auth", []byte(`{"type":"none"}`))
	}

	return append(b, '}')
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
func appendReasons(b []byte, x *discovery.Candidate) []byte {
	b = append(b, '[')
	add := func(part, value string, fields []string) {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = strictjson.AppendText(append(b, '{'), "matched", part)
		b = strictjson.AppendText(b, "value", value)
		if fields != nil {
			b = response.AppendStrings(strictjson.AppendRaw(b, "fields", nil), fields)
		}
		b = append(b, '}')
	}

	for _, tag := range x.MatchedTags {
		add("tag", tag, nil)
	}
	for _, example := range x.MatchedExamples {
		add("example", example.ID, nil)
	}
	if x.Evidence != nil {
		for _, term := range x.Evidence.Terms {
			add("word", term.Text, slices.Sorted(maps.Keys(term.Fields)))
		}
	}

	return append(b, ']')
}
