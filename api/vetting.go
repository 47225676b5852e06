package api

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// vet asks policy whether an identity may have a registration that says p. A
// refusal names the capability that is not the identity's to claim, where one is at
// fault by itself (jimenez 7.3).
func (s *Server) vet(c *call, id directory.Identity, agent string, p *directory.Projection, v directory.Visibility, format string, args ...any) error {
	err := c.denied(s.cfg.Policy.Register(id, agent, p, v), format, args...)
	if err == nil {
		return nil
	}
	claim, d := s.unclaimable(id, agent, p, v)
	if claim == nil {
		return err
	}
	claimed := c.denied(d, "%s may not claim the capability %q of type %q", id, claim.Name, claim.Type)
	r := problem.Explain(claimed)
	r.Err.Problem = directory.CapabilityNotPermitted
	r.Members = append(r.Members, strictjson.Member{Name: "capability", Value: strictjson.AppendString(nil, claim.Name)})
	return r
}

// unclaimable returns the first capability that policy refuses though it permits the
// same registration without any; nil where no single one is at fault.
func (s *Server) unclaimable(id directory.Identity, agent string, p *directory.Projection, v directory.Visibility) (*directory.Capability, directory.Decision) {
	rest := *p
	rest.Capabilities, rest.Tags = nil, nil
	if !s.cfg.Policy.Register(id, agent, &rest, v).Allow {
		return nil, directory.Decision{}
	}
	for i := range p.Capabilities {
		rest.Capabilities = p.Capabilities[i : i+1]
		if d := s.cfg.Policy.Register(id, agent, &rest, v); !d.Allow {
			return &p.Capabilities[i], d
		}
	}
	return nil, directory.Decision{}
}

// owning reads who is to own what is registered, where a commissioning tool names
// another than itself (jimenez 2).
func (s *Server) owning(c *call) (owner directory.Identity, err error) {
	text, err := c.params.one("owner")
	if err != nil || text == "" {
		return owner, err
	}
	if owner, err = directory.ParseIdentity(text); err != nil {
		return owner, directory.Refuse(directory.BadRequest, "owner is %.100q; it is a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT", text)
	}
	if owner == c.id {
		return directory.Identity{}, nil
	}
	return owner, nil
}

// mayOwn asks policy whether what is asked for may be registered: its owner's claims,
// and that the caller names another owner than itself.
func (s *Server) mayOwn(c *call, ask *directory.Registering) error {
	owner, p := c.id, ask.Projection
	var by []string
	if !ask.Owner.IsZero() {
		owner = ask.Owner
		if !ask.Caller.Commissioning {
			return directory.Refuse(directory.Forbidden, "%s is no commissioning tool: it registers agents of its own alone, without owner=.", c.id)
		}
		d := s.cfg.Policy.OnBehalf(c.id, owner, ask.Agent, p, ask.Visibility)
		if err := c.denied(d, "%s may not register %q on behalf of %s", c.id, ask.Agent, owner); err != nil {
			return err
		}
		by = d.Policies
	}
	err := s.vet(c, owner, ask.Agent, p, ask.Visibility, "%s may not register %q with visibility %s", owner, ask.Agent, ask.Visibility)
	c.decided = append(by, c.decided...)
	return err
}
