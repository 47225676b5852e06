package api

import (
	"net/http"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// owned answers GET /v1/operator/registrations?owner=: what an identity owns, whoever may
// see it.
func (s *Server) owned(w http.ResponseWriter, c *call) error {
	text, err := c.params.one("owner")
	if err != nil {
		return err
	}
	owner, err := directory.ParseIdentity(text)
	if err != nil {
		return directory.Refuse(directory.BadQuery, "owner is %.100q; it is a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT", text)
	}
	after, err := c.params.one("after")
	if err != nil {
		return err
	}
	var from index.Cursor
	if err := from.UnmarshalText([]byte(after)); err != nil {
		return err
	}
	return sendOwned(w, c, s.ownedBy(owner, from))
}

func (s *Server) ownedBy(owner directory.Identity, after index.Cursor) index.Page {
	return s.cfg.View.Lookup(index.Query{Origin: s.cfg.Domain, Count: index.MaxCount, After: after}, func(e *directory.Entry) *directory.Entry {
		if e.Owner == owner {
			return e
		}
		return nil
	})
}

func sendOwned(w http.ResponseWriter, c *call, page index.Page) error {
	out := wire.Owned{Registrations: []wire.OwnedRegistration{}}
	for _, e := range page.Entries {
		out.Registrations = append(out.Registrations, wire.OwnedRegistration{
			RID: e.RID.String(), Agent: e.Agent, ExpiresAt: time.UnixMilli(e.ExpiresAt).UTC(),
		})
	}
	if page.More {
		next, err := page.Next.MarshalText()
		if err != nil {
			return err
		}
		out.Next = string(next)
	}
	return sendStatus(w, c, out)
}

// disown answers POST /v1/operator/registrations/end: it ends what an identity owns, a
// page of it, each by a change of its own, and tells what it has ended. Next says that
// there is more to end.
func (s *Server) disown(w http.ResponseWriter, c *call) error {
	var in newOwner
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	if in.Owner.IsZero() {
		return directory.Refuse(directory.BadRequest, "There is no owner whose registrations are to end.").At("/owner")
	}
	if err := s.cfg.Registry.Linearize(c.Context()); err != nil {
		return err
	}
	page := s.ownedBy(in.Owner, index.Cursor{})
	by := s.permitted(c)
	by.Commissioning, by.Judged = true, nil // what policy lets operators do; it was asked
	for _, e := range page.Entries {
		_, err := s.cfg.Registry.Remove(c.Context(), directory.Removing{Caller: by, RID: e.RID})
		if p := directory.ProblemOf(err); err != nil && p != directory.NotFound && p != directory.RegistrationExpired {
			return err
		}
	}
	return sendOwned(w, c, page)
}
