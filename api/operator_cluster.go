package api

import (
	"context"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// A Cluster changes which nodes hold a domain, whichever of them is asked. Its
// errors are *directory.Error.
type Cluster interface {
	// Transfer gives the leadership to a node, or to any that is fit where to is
	// zero.
	Transfer(ctx context.Context, to spiffeid.ID) error
	// Remove takes a node out of the domain.
	Remove(ctx context.Context, id spiffeid.ID) error
	// Admit lets a node join, once and within a day; not takes that back.
	Admit(ctx context.Context, id spiffeid.ID, not bool) error
	// Leave takes the node that is asked out of its domain.
	Leave(ctx context.Context) error
}

// readMember reads such a body; without one, where that is allowed, the id is zero.
func readMember(w http.ResponseWriter, c *call, optional bool) (in wire.MemberRequest, id spiffeid.ID, err error) {
	body, err := readBody(w, c)
	if err != nil || len(body) == 0 && optional {
		return in, id, err
	}
	if err := parseRequest(body, &in); err != nil {
		return in, id, err
	}
	if in.ID == "" && optional {
		return in, id, nil
	}
	if id, err = spiffeid.FromString(in.ID); err != nil {
		return in, id, directory.Refuse(directory.BadRequest, "id is %.100q; give a node's SPIFFE ID", in.ID).At("/id")
	}
	return in, id, nil
}

// done answers a change of the domain's nodes, which is logged with its caller.
func (s *Server) done(w http.ResponseWriter, c *call, what, id string) error {
	s.log.Info("the domain's nodes were changed", "request_id", c.requestID, "caller", c.id.String(), "change", what, "node", id)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) transfer(w http.ResponseWriter, c *call) error {
	in, to, err := readMember(w, c, true)
	if err == nil {
		err = s.cfg.Cluster.Transfer(c.Context(), to)
	}
	if err != nil {
		return err
	}
	return s.done(w, c, "transfer", in.ID)
}

func (s *Server) removeMember(w http.ResponseWriter, c *call) error {
	in, id, err := readMember(w, c, false)
	if err == nil {
		err = s.cfg.Cluster.Remove(c.Context(), id)
	}
	if err != nil {
		return err
	}
	return s.done(w, c, "remove", in.ID)
}

func (s *Server) admitMember(w http.ResponseWriter, c *call) error {
	in, id, err := readMember(w, c, false)
	if err == nil {
		err = s.cfg.Cluster.Admit(c.Context(), id, in.Withdraw)
	}
	if err != nil {
		return err
	}
	return s.done(w, c, "admit", in.ID)
}

func (s *Server) leave(w http.ResponseWriter, c *call) error {
	if err := s.cfg.Cluster.Leave(c.Context()); err != nil {
		return err
	}
	return s.done(w, c, "leave", "this one")
}
