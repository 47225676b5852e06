package api

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// newOwner is the body of a transfer.
type newOwner struct {
	Owner directory.Identity `json:"owner"`
}

// transferOwner answers POST /ad/r/{id}/transfer, which is ours: the owner, or an
// operator, gives a registration to another identity, who must be one that may
// register it (TRUST-008). The new owner is not asked: what keeps registrations from an
// identity that does not want them is policy's register question, which is asked about
// it, its quota, and that it may remove what it was given.
func (s *Server) transferOwner(w http.ResponseWriter, c *call) error {
	body, err := readBody(w, c)
	if err != nil {
		return err
	}
	if _, err := directory.ParseObject(body); err != nil {
		return err
	}
	var in newOwner
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil || in.Owner.IsZero() {
		return directory.Refuse(directory.BadRequest, `The body is not {"owner": "the identity that is to own it, as it is verified"}: %w`, err).At("/owner")
	}
	cond, err := conditionOf(c.Request)
	if err != nil {
		return err
	}
	ask := directory.Transferring{To: in.Owner, IfMatch: cond.ofExisting()}
	out, err := s.judged(c, func() (directory.Outcome, error) { return s.give(c, ask) })
	if err != nil {
		return err
	}
	s.changed(w, out)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// give finds what is to be given away, asks policy about its new owner, and has it
// done.
func (s *Server) give(c *call, ask directory.Transferring) (directory.Outcome, error) {
	ask.Caller = s.permitted(c)
	e, err := s.givable(c, s.cfg.View.Find(c.vars["id"]))
	if e == nil && err == nil { // it may be a moment old
		if err = s.cfg.Registry.Linearize(c.Context()); err == nil {
			e, err = s.givable(c, s.cfg.View.Find(c.vars["id"]))
		}
	}
	switch {
	case err != nil:
		return directory.Outcome{}, err
	case e == nil:
		return directory.Outcome{}, notFound(c)
	}
	ask.RID, ask.Statement, ask.Any = e.RID, e.Statement, e.Owner != c.id
	by := c.decided
	err = s.vet(c, ask.To, e.Agent, e.Projection(), e.Visibility, "%s, who is to own %q, may not register it", ask.To, e.Agent)
	c.decided = append(by, c.decided...)
	if err != nil {
		return directory.Outcome{}, err
	}
	return s.cfg.Registry.TransferOwner(c.Context(), ask)
}

// givable returns the first of what was found that the caller may give away, or why
// they may not; neither where they may see none of it.
func (s *Server) givable(c *call, found []*directory.Entry) (*directory.Entry, error) {
	for _, e := range found {
		switch {
		case s.isOwn(e) && (e.Owner == c.id || s.operates(c, "registration.transfer")):
			return e, nil
		case !s.mayRead(c, e):
		case s.isOwn(e):
			return nil, directory.Refuse(directory.Forbidden, "This registration is not yours: only its registrant, or an operator with a client certificate, gives it to another.")
		default:
			return nil, s.foreign(e)
		}
	}
	return nil, nil
}

// operates is whether c's caller may do an operator's change, for a route that others
// may call too. What decided it is told to the audit trail.
func (s *Server) operates(c *call, action string) bool {
	if c.credential.Token || c.credential.ReadOnly {
		return false
	}
	d := s.cfg.Policy.Operate(c.id, action)
	if d.Allow {
		c.decided = d.Policies
	}
	return d.Allow
}
