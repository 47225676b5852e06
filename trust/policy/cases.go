package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A Case is one question to a policy, as people write it, and the answer that is
// expected.
type Case struct {
	Name   string `json:"name,omitzero"`
	Who    string `json:"who"`    // an identity; a peer's trust domain for export; "" for an anonymous caller
	Action string `json:"action"` // register, read, invoke, export, operate, commission, on-behalf-of
	What   string `json:"what,omitzero"`
	// Of a registration: its owner, if that is not Who; its origin, if that is not the
	// domain itself; its visibility and its contents.
	Owner        string   `json:"owner,omitzero"`
	Origin       string   `json:"origin,omitzero"`
	Visibility   string   `json:"visibility,omitzero"`
	Capabilities []string `json:"capabilities,omitzero"`
	Types        []string `json:"types,omitzero"`
	Tags         []string `json:"tags,omitzero"`
	Protocols    []string `json:"protocols,omitzero"`
	// Exported is whether the operator exports to the peer ("roster peer export"): for
	// export that of Who, for read and invoke that of Who's domain.
	Exported bool `json:"exported,omitzero"`
	// Streamed is, for read and invoke, whether a stream to Who's domain holds the
	// registration; nil if the policy's own answer to export decides.
	Streamed *bool `json:"streamed,omitzero"`
	// Expect is allow or deny, and By the policies that decide, if that matters.
	Expect string   `json:"expect,omitzero"`
	By     []string `json:"by,omitzero"`
}

// Ask asks the case's question. The member What is an agent's name, or for operate the
// operation. An error describes the fault of the case.
func (p *Policy) Ask(c Case) (directory.Decision, error) {
	var none directory.Decision

	visibility, err := c.visibility(p)
	if err != nil {
		return none, err
	}

	if err := c.checkExport(); err != nil {
		return none, err
	}

	// The case states the exports; those of the running node have no influence.
	p = p.assuming(c.Exported)

	if c.Action == askExport {
		return p.askExport(c, visibility)
	}

	id, err := optional(c.Who, directory.Identity{}, directory.ParseIdentity)
	if err != nil {
		return none, fmt.Errorf("who: %w", err)
	}

	entry, err := c.entry(p, visibility)
	if err != nil {
		return none, err
	}

	switch c.Action {
	case askRegister:
		return p.Register(id, c.What, c.projection(), visibility), nil
	case askOnBehalf:
		return p.OnBehalf(id, entry.Owner, c.What, c.projection(), visibility), nil
	case askRead, askInvoke:
		return p.askSeen(c, id, entry)
	case askOperate:
		return p.Operate(id, c.What), nil
	case askCommission:
		return p.current.Load().decide(askCommission, p.identity(id), p.directory(), types.Record{}), nil
	}

	return none, fmt.Errorf("action: must be one of %[2]q, got %[1]q", c.Action, questions)
}

// assuming returns a policy with p's text under which the operator exports to every peer, or
// to none.
func (p *Policy) assuming(exported bool) *Policy {
	q := p.current.Load()
	in := *p.surroundings
	in.exported = func(spiffeid.TrustDomain) bool { return exported }
	assumed := &Policy{surroundings: &in, visibility: p.visibility, builtIn: p.builtIn}
	assumed.enforce(q.set, q.text, q.version)

	return assumed
}

// checkExport refuses the members about exports in a case of another action.
func (c *Case) checkExport() error {
	seen := c.Action == askRead || c.Action == askInvoke

	switch {
	case c.Exported && !seen && c.Action != askExport:
		return fmt.Errorf("exported: is for export, read and invoke, not for %s", c.Action)
	case c.Streamed != nil && !seen:
		return fmt.Errorf("streamed: is for read and invoke, not for %s", c.Action)
	case c.Streamed != nil && *c.Streamed && c.Origin != "":
		return errors.New("streamed: streams hold the domain's own registrations; leave out origin or streamed")
	}

	return nil
}

// askSeen asks about a registration as Read and Invoke do.
func (p *Policy) askSeen(c Case, id directory.Identity, entry *directory.Entry) (directory.Decision, error) {
	q := p.current.Load()
	if c.Streamed == nil {
		return q.see(c.Action, id, entry, q.streamed), nil
	}

	peer, ok := id.SPIFFE()
	if *c.Streamed && (!ok || peer.MemberOf(p.domain)) {
		return directory.Decision{}, fmt.Errorf("streamed: streams are for SPIFFE IDs of peers, got %q", c.Who)
	}

	return q.see(c.Action, id, entry, func(directory.Identity, *directory.Entry) directory.Decision {
		return directory.Decision{Allow: *c.Streamed}
	}), nil
}

func (p *Policy) askExport(c Case, visibility directory.Visibility) (directory.Decision, error) {
	peer, err := spiffeid.TrustDomainFromString(c.Who)
	if err != nil {
		return directory.Decision{}, fmt.Errorf("who: of an export, a peer's trust domain: %w", err)
	}

	owner, err := optional(c.Owner, directory.Identity{}, directory.ParseIdentity)
	if err != nil {
		return directory.Decision{}, fmt.Errorf("owner: %w", err)
	}

	return p.Export(peer, c.What, owner, visibility, c.projection()), nil
}

func (c *Case) visibility(p *Policy) (directory.Visibility, error) {
	v, err := optional(c.Visibility, p.visibility, directory.ParseVisibility)
	if err != nil {
		err = fmt.Errorf("visibility: %w", err)
	}

	return v, err
}

func (c *Case) entry(policy *Policy, v directory.Visibility) (*directory.Entry, error) {
	e := &directory.Entry{Agent: c.What, Visibility: v, Packed: directory.Pack(directory.Document{}, c.projection())}

	var err error
	if e.Origin, err = optional(c.Origin, policy.domain, spiffeid.TrustDomainFromString); err != nil {
		return nil, fmt.Errorf("origin: %w", err)
	}

	if e.Owner, err = optional(c.Owner, directory.Identity{}, directory.ParseIdentity); err != nil {
		return nil, fmt.Errorf("owner: %w", err)
	}

	return e, nil
}

func (c *Case) projection() *directory.Projection {
	p := &directory.Projection{Name: c.What, Tags: c.Tags, Protocols: c.Protocols}
	for _, name := range c.Capabilities {
		p.Capabilities = append(p.Capabilities, directory.Capability{Name: name})
	}

	for _, kind := range c.Types {
		p.Capabilities = append(p.Capabilities, directory.Capability{Type: kind})
	}

	return p
}

func optional[T any](text string, without T, parse func(string) (T, error)) (T, error) {
	if text == "" {
		return without, nil
	}

	return parse(text)
}

// Check asks the case's question. It returns an error that states the difference from
// the expected answer; nil if there is none.
func (p *Policy) Check(c Case) error {
	decision, err := p.Ask(c)
	if err != nil {
		return err
	}

	got, by := "deny", slices.Sorted(slices.Values(decision.Policies))
	if decision.Allow {
		got = "allow"
	}

	switch {
	case c.Expect != "allow" && c.Expect != "deny":
		return fmt.Errorf("expect: %q is neither allow nor deny", c.Expect)
	case got != c.Expect:
		return fmt.Errorf("%s, by %q; expected is %s", got, by, c.Expect)
	case c.By != nil && !slices.Equal(by, slices.Sorted(slices.Values(c.By))):
		return fmt.Errorf("%s by %q; expected is by %q", got, by, c.By)
	}

	return nil
}
