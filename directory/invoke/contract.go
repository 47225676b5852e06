package invoke

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/schema"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// maxNames bounds the bytes of a list of operations in an error.
const maxNames = 2048

// A Contract is the terms of invocation in a registration (draft-cui, 5; draft-gaikwad-woa, 5).
// It is read once, and never changes.
type Contract struct {
	Projection *directory.Projection
	// Operations are the operations of the agent: one at least.
	Operations []Operation
	WoA        WoATerms
	agent, rid string
	// Beyond says whether the agent knows an operation that the registration doesn't
	// tell of; nil if it knows none.
	Beyond func(name string) bool
}

// ContractOf reads the contract of e's agent.
func ContractOf(e *directory.Entry) *Contract {
	p := e.Projection()

	return &Contract{Projection: p, Operations: Operations(e.Document, p), WoA: WoATermsOf(e.Agent, e.Document),
		agent: e.Agent, rid: e.RID.String()}
}

// WoATerms are the terms in a WoA document for calling its one agent, beyond its binding. For
// other kinds, all is empty but the ID, which is the registered name.
type WoATerms struct {
	ID                   string
	ToolSpace, ToolField string // of the mcp transport (gaikwad 4.3.2)
}

// WoATermsOf reads the terms of the document of the agent of that name.
func WoATermsOf(agent string, d directory.Document) WoATerms {
	if d.Kind() != directory.KindWoA {
		return WoATerms{ID: agent}
	}

	var doc struct {
		Agents []struct {
			ID string `json:"id"`
		} `json:"agents"`
		Transports struct {
			MCP struct {
				Namespace string `json:"tool_namespace"`
				Field     string `json:"tool_field"`
			} `json:"mcp"`
		} `json:"transports"`
	}
	if err := json.Unmarshal(d.Bytes(), &doc); err != nil || len(doc.Agents) == 0 {
		return WoATerms{ID: agent}
	}

	return WoATerms{doc.Agents[0].ID, doc.Transports.MCP.Namespace, doc.Transports.MCP.Field}
}

// A Task is one operation to invoke, and its input.
type Task struct {
	Operation
	Value    []byte              // the input
	At       string              // where in the request's body the input stands, as a JSON pointer
	Envelope []strictjson.Member // that the input came in, if it did
}

// Choose determines the operation and its input: the body, or an envelope's member (AI-032,
// AI-033, WOA-007). A body that is a JSON string may be the input's one text; see TakeText.
// operation is the one that the request's path names, or ""; at is the place of the body in
// the request.
func (c *Contract) Choose(operation string, body []byte, at string) (*Task, error) {
	task, err := c.choose(operation, body, at)
	if err != nil {
		return nil, err
	}

	task.TakeText()

	return task, nil
}

func (c *Contract) choose(operation string, body []byte, at string) (*Task, error) {
	var members []strictjson.Member
	if body[0] == '{' {
		var err error
		if members, err = directory.ParseObject(body); err != nil {
			return nil, err
		}
	} else if !jsontext.Value(body).IsValid() {
		return nil, directory.Refuse(directory.BadRequest, "the body is not JSON")
	}

	if operation != "" {
		o, err := c.named(operation, directory.NotFound)
		return &Task{Operation: o, Value: body, At: at}, err
	}

	// Many schemas would accept an envelope as an input, so it is looked for first.
	if input, ok := envelope(members); ok {
		t, is, err := c.unwrap(members, input, at)
		if is || err != nil {
			return t, err
		}
	}

	if err := c.noInput(members, at); err != nil {
		return nil, err
	}

	return c.plain(members, body, at)
}

// noInput refuses a body that names the agent as an envelope does, among an envelope's members
// alone, and has no object for an input (WOA-028).
func (c *Contract) noInput(members []strictjson.Member, at string) error {
	agent, _ := strictjson.TextMember(members, "agent")

	input, has := strictjson.FindMember(members, "input")
	if !c.isCalled(agent) || !onlyEnvelope(members) || has && input[0] == '{' {
		return nil
	}

	for i := range c.Operations {
		if c.Operations[i].Declares("agent") || c.Operations[i].Declares("input") {
			// A schema with such a member takes the body for the input.
			return nil
		}
	}

	return directory.Refuse(directory.BadRequest, "an envelope's input is a JSON object, and this one has none").
		At(at + "/input")
}

// plain takes the body for the input itself. A member called operation names the operation, and
// is not part of the input unless the schema declares it.
func (c *Contract) plain(members []strictjson.Member, body []byte, at string) (*Task, error) {
	name, named := strictjson.TextMember(members, "operation")
	if !named || len(c.Operations) == 1 && (c.Operations[0].Name == "" || c.Operations[0].Declares("operation")) {
		o, err := c.implied()
		return &Task{Operation: o, Value: body, At: at}, err
	}

	operation, err := c.named(name, directory.NotFound)
	if err != nil {
		return nil, err
	}

	if !operation.Declares("operation") {
		members = slices.DeleteFunc(slices.Clone(members), func(m strictjson.Member) bool {
			return m.Name == "operation"
		})
		body = strictjson.AppendObject(nil, members)
	}

	return &Task{Operation: operation, Value: body, At: at}, nil
}

// envelope returns an envelope's input: an object among no members but agent and
// operation, or beside an agent among any (gaikwad 5.1).
func envelope(members []strictjson.Member) ([]byte, bool) {
	input, ok := strictjson.FindMember(members, "input")
	if !ok || input[0] != '{' {
		return nil, false
	}

	_, agent := strictjson.TextMember(members, "agent")

	return input, agent || onlyEnvelope(members)
}

func onlyEnvelope(members []strictjson.Member) bool {
	return !slices.ContainsFunc(members, func(m strictjson.Member) bool {
		return m.Name != "agent" && m.Name != "operation" && m.Name != "input"
	})
}

// unwrap reads an envelope. A body is not an envelope if the operation that it would name
// declares an input of its own.
func (c *Contract) unwrap(members []strictjson.Member, input []byte, at string) (t *Task, is bool, err error) {
	name, named := strictjson.TextMember(members, "operation")
	if raw, ok := strictjson.FindMember(members, "operation"); ok && !named {
		return nil, false, directory.Refuse(directory.BadRequest, "the envelope's operation is %.40s; it is a name",
			raw).At(at + "/operation")
	}

	var operation Operation

	// The default means the only operation, whatever the registration calls it.
	if named && !(name == directory.DefaultOperation && len(c.Operations) == 1) {
		operation, err = c.named(name, directory.BadRequest)
	} else {
		operation, err = c.implied()
	}

	if err != nil {
		return nil, false, err
	}

	if operation.Declares("input") {
		return nil, false, nil
	}

	// The URL decides which agent is called, so the envelope must not name another.
	if agent, ok := strictjson.FindMember(members, "agent"); ok {
		if text, _ := strictjson.TextMember(members, "agent"); !c.isCalled(text) {
			return nil, false, directory.Refuse(directory.BadRequest,
				"the envelope's agent is %.200s, and the URL's is %.200q", agent, c.agent).At(at + "/agent")
		}
	}

	return &Task{Operation: operation, Value: input, At: at + "/input", Envelope: members}, true, nil
}

// isCalled reports whether the agent goes by that name: the registered one, its
// rid, or the id that its own WoA document has.
func (c *Contract) isCalled(name string) bool {
	return name != "" && (name == c.agent || name == c.rid || name == c.WoA.ID)
}

// named returns the operation of that name. One that the registration doesn't know
// is a problem, unless it is the agent that knows its operations.
func (c *Contract) named(name string, unknown directory.Problem) (Operation, error) {
	i := slices.IndexFunc(c.Operations, func(o Operation) bool { return o.Name == name })
	switch {
	case i >= 0:
		return c.Operations[i], nil
	case c.Beyond != nil && c.Beyond(name):
		return Operation{Name: name}, nil
	case c.Operations[0].Name == "":
		return Operation{}, directory.Refuse(unknown,
			"the agent has no operation %.100q: it has one, without a name, at /invoke", name)
	}

	return Operation{}, directory.Refuse(unknown, "the agent has no operation %.100q; it has %s", name, c.names())
}

// implied returns the operation that is meant where none is named: the default, or
// the only one.
func (c *Contract) implied() (Operation, error) {
	for _, o := range c.Operations {
		if o.Name == directory.DefaultOperation || len(c.Operations) == 1 {
			return o, nil
		}
	}

	return Operation{}, directory.Refuse(directory.BadRequest, "the agent has several operations: name one of %s",
		c.names()).At("/operation")
}

func (c *Contract) names() string {
	var all []string
	for _, o := range c.Operations {
		all = append(all, strconv.Quote(o.Name))
	}

	list := strings.Join(all, ", ")

	return list[:min(len(list), maxNames)]
}

// Batches reports whether a body is an array that the agent doesn't take itself
// (AI-011). operation is the one that the request's path names, or "".
func (c *Contract) Batches(operation string, body []byte) bool {
	if body[0] != '[' {
		return false
	}

	i := 0 // of the operation that needs no body to be known
	if operation != "" {
		i = slices.IndexFunc(c.Operations, func(o Operation) bool { return o.Name == operation })
	} else if len(c.Operations) > 1 {
		// Among several operations, only the body names the one that it is for.
		i = -1
	}

	return i < 0 || !c.Operations[i].takesArrays() && !c.Operations[i].Batch
}

// Items are the inputs of a batch that the agent takes itself: of an array, where the
// operation's schema is for one of them. Nil for anything else (AI-011).
func (t *Task) Items() []jsontext.Value {
	if !t.Batch || len(t.Value) == 0 || t.Value[0] != '[' || t.takesArrays() {
		return nil
	}

	items := []jsontext.Value{}
	_ = json.Unmarshal(t.Value, &items) // it is an array

	return items
}

// CheckInput refuses an input that breaks the operation's schema (AI-008). The items of a
// batch share the budget.
func (t *Task) CheckInput(budget *schema.Budget) error {
	var (
		vs  []directory.Violation
		err error
	)
	if items := t.Items(); items == nil {
		vs, err = judgeBy(t.Input, t.Value, t.At, budget)
	} else {
		for n := 0; n < len(items) && err == nil && len(vs) == 0; n++ {
			vs, err = judgeBy(t.Input, items[n], t.At+ItemAt(n), budget)
		}
	}

	switch {
	case err != nil:
		return directory.Refuse(directory.NotInvocable, "the operation's input schema can't be used: %w", err)
	case len(vs) > 0:
		e := directory.Refuse(directory.BadInput, "%s", inputFault(vs[0], t.At)).At(vs[0].Pointer)
		e.Violations = vs

		return e
	}

	return nil
}

// inputFault describes a violation in an input that stands at a pointer. It names the field,
// because a client of draft-cui reads the sentence alone (AI-008).
func inputFault(violation directory.Violation, at string) string {
	switch field := strings.TrimPrefix(violation.Pointer, at); {
	case field == "":
		return "the input doesn't meet the operation's schema: " + violation.Detail
	case violation.Missing:
		return violation.Detail
	default:
		return fmt.Sprintf("Field '%.200s' doesn't meet the operation's schema: %s", field[1:], violation.Detail)
	}
}

// JudgeOutput returns the violations of the operation's schema in an answer; at is put before
// the pointers. The error is not nil if the answer cannot be judged.
func (t *Task) JudgeOutput(body []byte, at string, budget *schema.Budget) ([]directory.Violation, error) {
	items := t.Items()
	if items == nil {
		return judgeBy(t.Output, body, at, budget)
	}

	tasks, one := make([]*Task, len(items)), t.Operation

	one.Batch = false // an item that is an array is one input all the same
	for n := range items {
		tasks[n] = &Task{Operation: one, Value: items[n]}
	}

	return judgeAnswers(tasks, true, body, budget)
}

func judgeBy(text, value []byte, at string, budget *schema.Budget) ([]directory.Violation, error) {
	if text == nil || len(bytes.TrimSpace(text)) == len("{}") {
		// A schema of two characters is {}, which accepts every value.
		return nil, nil
	}

	s, err := schema.Compile(text)
	if err != nil {
		return nil, err
	}

	return s.Validate(value, at, budget)
}
