package gateway

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// operationDefault is what WoA calls the operation of an invocation that names
// none (gaikwad 5.1).
const operationDefault = "default"

// A work is what an agent is to do: an operation, and its input.
type work struct {
	directory.Operation
	input    []byte
	at       string             // where in the request's body the input stands
	envelope []directory.Member // that the input came in, if it did
	number   string             // of an item of a batch
}

func find(operations []directory.Operation, name string) (directory.Operation, bool) {
	i := slices.IndexFunc(operations, func(o directory.Operation) bool { return o.Name == name })
	if i < 0 {
		return directory.Operation{}, false
	}
	return operations[i], true
}

// choose finds out which operation is meant, and what its input is: the body, or
// an envelope's member (AI-032, AI-033, WOA-007).
func (i *invoking) choose(body []byte, at string) (*work, error) {
	var members []directory.Member
	if body[0] == '{' {
		var err error
		if members, err = directory.ParseObject(body); err != nil {
			return nil, err
		}
	} else if !jsontext.Value(body).IsValid() {
		return nil, directory.Refuse(directory.BadRequest, "the body is not JSON")
	}
	if i.in.Operation != "" {
		o, err := i.named(i.in.Operation, directory.NotFound)
		return &work{Operation: o, input: body, at: at}, err
	}
	if input, ok := envelope(members); ok {
		w, is, err := i.unwrap(members, input, at)
		if is || err != nil {
			return w, err
		}
	}
	return i.plain(members, body, at)
}

// plain takes the body for the input itself. A member called operation names the
// operation, and is none of the input's unless the schema declares it.
func (i *invoking) plain(members []directory.Member, body []byte, at string) (*work, error) {
	name, named := textOf(members, "operation")
	if !named || len(i.operations) == 1 && (i.operations[0].Name == "" || declares(i.operations[0], "operation")) {
		o, err := i.implied()
		return &work{Operation: o, input: body, at: at}, err
	}
	o, err := i.named(name, directory.NotFound)
	if err != nil {
		return nil, err
	}
	if !declares(o, "operation") {
		members = slices.DeleteFunc(slices.Clone(members), func(m directory.Member) bool { return m.Name == "operation" })
		body = directory.AppendObject(nil, members)
	}
	return &work{Operation: o, input: body, at: at}, nil
}

// envelope returns an envelope's input: an object among no members but agent and
// operation, or beside an agent among any (gaikwad 5.1).
func envelope(members []directory.Member) ([]byte, bool) {
	only := !slices.ContainsFunc(members, func(m directory.Member) bool {
		return m.Name != "agent" && m.Name != "operation" && m.Name != "input"
	})
	_, agent := textOf(members, "agent")
	input, ok := valueOf(members, "input")
	return input, ok && input[0] == '{' && (only || agent)
}

// unwrap reads an envelope; it is none where the operation that it would mean
// declares an input of its own.
func (i *invoking) unwrap(members []directory.Member, input []byte, at string) (w *work, is bool, err error) {
	name, named := textOf(members, "operation")
	if raw, ok := valueOf(members, "operation"); ok && !named {
		return nil, false, directory.Refuse(directory.BadRequest, "the envelope's operation is %.40s; it is a name", raw).At(at + "/operation")
	}
	var o directory.Operation
	if named && !(name == operationDefault && len(i.operations) == 1) {
		o, err = i.named(name, directory.BadRequest)
	} else {
		o, err = i.implied()
	}
	if err != nil {
		return nil, false, err
	}
	if declares(o, "input") {
		return nil, false, nil
	}
	if agent, ok := valueOf(members, "agent"); ok {
		if text, _ := textOf(members, "agent"); !i.isCalled(text) {
			return nil, false, directory.Refuse(directory.BadRequest, "the envelope's agent is %.200s, and the URL's is %.200q", agent, i.e.Agent).At(at + "/agent")
		}
	}
	return &work{Operation: o, input: input, at: at + "/input", envelope: members}, true, nil
}

// isCalled reports whether the agent goes by that name: the registered one, its
// rid, or the id that its own WoA document has.
func (i *invoking) isCalled(name string) bool {
	return name == i.e.Agent || name == i.e.RID.String() || name != "" && name == woaOf(i.e).id
}

// named returns the operation of that name. One that the registration doesn't know
// is a problem, unless it is the agent that knows its operations.
func (i *invoking) named(name string, unknown directory.Problem) (directory.Operation, error) {
	if o, ok := find(i.operations, name); ok {
		return o, nil
	}
	switch {
	case i.operations[0].Name == "" && i.binding.Protocol == protocolMCP:
		return directory.Operation{Name: name}, nil
	case i.binding.Protocol == protocolA2A && hasSkill(i.p, name):
		return directory.Operation{Name: name}, nil
	case i.operations[0].Name == "":
		return directory.Operation{}, directory.Refuse(unknown, "the agent has no operation %.100q: it has one, without a name, at /invoke", name)
	}
	return directory.Operation{}, directory.Refuse(unknown, "the agent has no operation %.100q; it has %s", name, i.names())
}

// implied returns the operation that is meant where none is named: the default, or
// the only one.
func (i *invoking) implied() (directory.Operation, error) {
	if o, ok := find(i.operations, operationDefault); ok {
		return o, nil
	}
	if len(i.operations) == 1 {
		return i.operations[0], nil
	}
	return directory.Operation{}, directory.Refuse(directory.BadRequest, "the agent has several operations: name one of %s", i.names()).At("/operation")
}

func (i *invoking) names() string {
	var all []string
	for _, o := range i.operations {
		all = append(all, strconv.Quote(o.Name))
	}
	list := strings.Join(all, ", ")
	return list[:min(len(list), 4*maxMessage)]
}

func hasSkill(p *directory.Projection, name string) bool {
	return slices.ContainsFunc(p.Capabilities, func(c directory.Capability) bool { return c.Name == name })
}

func declares(o directory.Operation, member string) bool {
	if o.Input == nil {
		return false
	}
	s, err := directory.CompileSchema(o.Input)
	return err == nil && s.Declares(member)
}

// checkInput refuses an input that breaks the operation's schema (AI-008).
func (w *work) checkInput() error {
	vs, err := judge(w.Input, w.input, w.at)
	switch {
	case err != nil:
		return directory.Refuse(directory.NotInvocable, "the operation's input schema can't be used: %w", err)
	case len(vs) > 0:
		e := directory.Refuse(directory.BadRequest, "the input doesn't meet the operation's schema: %s", vs[0].Detail).At(vs[0].Pointer)
		e.Violations = vs
		return e
	}
	return nil
}

// checkOutput refuses an answer that is no success by the operation's schema
// (AI-035, WOA-009).
func (w *work) checkOutput(r *directory.Reply) error {
	vs, err := judge(w.Output, r.Body, "")
	switch {
	case err != nil:
		return directory.Refuse(directory.AgentFailed, "the agent's answer can't be judged by its own output schema: %w", err)
	case len(vs) > 0:
		return directory.Refuse(directory.AgentFailed, "the agent's answer breaks its own output schema at %q", vs[0].Pointer)
	}
	return nil
}

func judge(schema, value []byte, at string) ([]directory.Violation, error) {
	if schema == nil || len(bytes.TrimSpace(schema)) == len("{}") {
		return nil, nil
	}
	s, err := directory.CompileSchema(schema)
	if err != nil {
		return nil, err
	}
	return s.Validate(value, at)
}

func valueOf(members []directory.Member, name string) ([]byte, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Value, true
		}
	}
	return nil, false
}

func textOf(members []directory.Member, name string) (string, bool) {
	raw, found := valueOf(members, name)
	if !found || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
