package gateway

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/schema"
)

// A plan is how an agent is called, as far as its registration's contents say: it is
// made once for all invocations of a version by callers who see the same of it.
type plan struct {
	of       contents
	contract *invoke.Contract  // by what the caller sees, which errors may name
	whole    *invoke.Contract  // with what is withheld, if the caller doesn't see all operations and schemas
	binding  directory.Binding // zero if none has a driver
	a2a      a2aInterface      // the binding's, of an agent that speaks A2A
	mutual   bool              // the agent says that it speaks mTLS
	asks     bool              // the agent's server is asked for its tools: a server.json has their names alone
	schemas  int               // bytes of the operations' schemas
	size     int               // bytes, as it is counted
}

// contents are the inputs of a plan. It is comparable: other contents make another plan.
type contents struct {
	agent    string
	document directory.Document
	packed   directory.Packed
}

// Bounds of the plans that are kept.
const (
	maxPlans     = 4096
	maxPlanBytes = 32 << 20 // of the documents that they are made of
)

// An agentKey names an agent.
type agentKey struct {
	origin spiffeid.TrustDomain
	rid    directory.RID
}

// plans keeps the plans of agents that are called.
type plans struct {
	mu    sync.Mutex // guards the fields below
	all   map[planKey]*plan
	bytes int
}

// A planKey names an agent and a caller's redaction of its registration.
type planKey struct {
	agentKey
	redaction directory.Redaction
}

// of returns the plan of e's agent for callers with a redaction. If the plans exceed their
// bounds, all are removed.
func (p *plans) of(entry *directory.Entry, redaction directory.Redaction) *plan {
	key := planKey{agentKey{entry.Origin, entry.RID}, redaction}
	is := contents{entry.Agent, entry.Document, entry.Packed}

	p.mu.Lock()
	had := p.all[key]
	p.mu.Unlock()

	if had != nil && had.of == is {
		return had
	}

	// The plan is made without the lock. If two callers make it at once, the later one is kept.
	made := planOf(entry, is, redaction)
	p.mu.Lock()
	defer p.mu.Unlock()

	if had = p.all[key]; had != nil {
		p.bytes -= had.size
	}

	if p.bytes += made.size; p.all == nil || p.bytes > maxPlanBytes || len(p.all) >= maxPlans {
		p.all, p.bytes = map[planKey]*plan{}, made.size
	}

	p.all[key] = made

	return made
}

func planOf(e *directory.Entry, is contents, redaction directory.Redaction) *plan {
	p := &plan{of: is}
	p.contract, p.whole = contractOf(e, redaction)
	// The contract's parts are of the document's text, twice, however small that is at rest.
	p.size = len(is.document.StoredBytes()) + 2*len(is.document.Bytes()) + 1024
	projection := e.Projection()
	p.binding = bindingOf(projection)
	p.a2a = interfaceOf(is.document, p.binding)

	p.mutual = DeclaresMutualTLS(projection.Authentication)
	if p.binding.Protocol == protocolMCP || p.binding.Protocol == protocolA2A || p.binding.Envelope != "" {
		for n := range p.contract.Operations { // each carries an object, so a batch is sent item by item
			p.contract.Operations[n].Batch = false
		}
	}

	// Schemas that the caller doesn't see judge its input all the same.
	judging := p.contract
	if p.whole != nil {
		judging = p.whole
	}

	for _, operation := range judging.Operations {
		p.schemas += len(operation.Input) + len(operation.Output)
	}

	first := p.contract.Operations[0].Name
	p.asks = p.binding.Protocol == protocolMCP && (first == "" || is.document.Kind() == directory.KindMCP)
	p.contract.Beyond = func(name string) bool {
		return p.asks || p.binding.Protocol == protocolA2A && hasSkill(p.contract.Projection, name)
	}

	return p
}

// contractOf returns the contract by a caller's view of a registration and, if the caller doesn't
// see all operations and schemas, the whole one. A withheld operation doesn't exist for the caller
// (S10). A withheld schema judges the input all the same, and the refusal tells nothing of it.
func contractOf(e *directory.Entry, redaction directory.Redaction) (contract, withheld *invoke.Contract) {
	whole := invoke.ContractOf(e)

	contract = invoke.ContractOf(kinds.Redact(e, redaction))
	if slices.EqualFunc(contract.Operations, whole.Operations, func(a, b invoke.Operation) bool {
		return a.Name == b.Name && bytes.Equal(a.Input, b.Input) && bytes.Equal(a.Output, b.Output)
	}) {
		return contract, nil
	}

	return contract, whole
}

// judgeWithheld judges the input of a task by the schema that its caller doesn't see, if the task's
// operation is one of the whole contract, or that has only one.
func (p *plan) judgeWithheld(task *invoke.Task, budget *schema.Budget) error {
	if p.whole == nil {
		return nil
	}

	operations := p.whole.Operations

	n := slices.IndexFunc(operations, func(o invoke.Operation) bool { return o.Name == task.Name })
	if n < 0 && task.Name == "" && len(operations) == 1 {
		n = 0
	}

	if n < 0 {
		return nil
	}

	hidden := *task
	hidden.Operation = operations[n]
	hidden.TakeText()
	task.Value = hidden.Value

	return withoutDetails(hidden.CheckInput(budget))
}

// withoutDetails is a refusal of an input by a schema that the caller doesn't see.
func withoutDetails(err error) error {
	switch directory.ProblemOf(err) {
	case directory.BadInput:
		return directory.Refuse(directory.BadInput, "the input doesn't fit the operation's schema, which is withheld "+
			"from you")
	case directory.NotInvocable:
		return directory.Refuse(directory.NotInvocable, "the operation's input schema can't be used")
	}

	return err
}

func hasSkill(p *directory.Projection, name string) bool {
	return slices.ContainsFunc(p.Capabilities, func(c directory.Capability) bool { return c.Name == name })
}

// The protocols that are spoken, by the names of bindings.
const (
	protocolHTTPS = "https"
	protocolMCP   = "mcp"
	protocolA2A   = "a2a"
)

// bindingOf returns the first binding that a driver speaks; zero if there is none. One whose only fault is plain
// http is returned if there is no other, so that the guard refuses it by its rule (XU-043).
func bindingOf(projection *directory.Projection) directory.Binding {
	all := projection.Bindings
	if len(all) == 0 {
		for _, protocol := range projection.Protocols {
			all = append(all, directory.Binding{Protocol: protocol, Endpoint: projection.Base})
		}
	}

	for _, scheme := range []string{"https://", "http://"} {
		for _, binding := range all {
			if strings.HasPrefix(binding.Endpoint, scheme) && spoken(binding) {
				binding.Protocol = strings.ToLower(binding.Protocol)
				return binding
			}
		}
	}

	return directory.Binding{}
}

// spoken reports whether there is a driver for a binding.
func spoken(binding directory.Binding) bool {
	switch strings.ToLower(binding.Protocol) {
	case protocolHTTPS, "http", "rest":
		return slices.Contains([]string{"", "woa"}, binding.Envelope)
	case protocolMCP:
		return slices.Contains([]string{"", "streamable-http", "streamable"}, binding.Transport)
	case protocolA2A:
		return slices.Contains([]string{"", "JSONRPC", "HTTP+JSON"}, binding.Transport)
	}

	return false
}

// DeclaresMutualTLS reports whether an agent authenticates by mTLS: as draft-cui's
// type has it, or as an A2A card's security scheme.
func DeclaresMutualTLS(authentication []byte) bool {
	text := strings.ToLower(string(authentication))
	for _, name := range []string{`"mtls"`, `"mutualtls"`, `"mutual_tls"`, `"mutual-tls"`, `"mtlssecurityscheme"`,
		`"x509-svid"`} {
		if strings.Contains(text, name) {
			return true
		}
	}

	return false
}
