package api

import (
	"cmp"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// register answers POST /ad/r (jimenez 4.1, 4.2).
func (s *Server) register(w http.ResponseWriter, c *call) error {
	ask, err := s.parseRegistering(w, c)
	if err != nil {
		return err
	}
	out, err := s.upsert(c, ask)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if out.Created {
		status = http.StatusCreated
	}
	w.Header().Set("Location", pathOf(out.RID))
	s.changed(w, out)
	if out.Granted < ask.Lifetime {
		write(w, c.Request, status, "application/json", granted(out))
		return nil
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
	return nil
}

// parseRegistering reads what a registration asks for.
func (s *Server) parseRegistering(w http.ResponseWriter, c *call) (ask directory.Registering, err error) {
	body, err := readBody(w, c)
	if err != nil {
		return ask, err
	}
	if ask, err = s.asking(c, directory.DefaultLifetime); err != nil {
		return ask, err
	}
	name, err := c.params.one("agent")
	if err != nil {
		return ask, err
	}
	if ask.Agent, err = directory.ParseName(name); err != nil {
		return ask, err
	}
	kind, err := c.params.one("kind")
	if err != nil {
		return ask, err
	}
	k, err := directory.ParseKind(kind)
	if err != nil {
		return ask, err
	}
	ask.Document, err = directory.ParseDocument(k, body)
	return ask, err
}

// update answers POST on a registration: a refresh, or new top-level members
// and a refresh (jimenez 4.4).
func (s *Server) update(w http.ResponseWriter, c *call) error {
	body, err := readBody(w, c)
	if err != nil {
		return err
	}
	ask := directory.Refreshing{}
	if ask.Lifetime, err = s.lifetime(c, 0); err != nil {
		return err
	}
	cond, err := conditionOf(c.Request)
	if err != nil {
		return err
	}
	ask.IfMatch = cond.ofExisting()
	if len(body) > 0 {
		ask.Patch = body
	}
	asked := ask.Lifetime
	out, err := s.judged(c, func() (out directory.Outcome, err error) {
		var had uint32
		out, had, err = s.refresh(c, ask)
		asked = cmp.Or(ask.Lifetime, had) // without one, what it had is to be kept
		return out, err
	})
	if err != nil {
		return err
	}
	s.changed(w, out)
	if asked > out.Granted {
		write(w, c.Request, http.StatusOK, "application/json", granted(out))
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refresh refreshes what the path names, with what it is to say from now on. had is the
// lifetime that it was granted before, in seconds; 0 where this node doesn't know.
func (s *Server) refresh(c *call, ask directory.Refreshing) (out directory.Outcome, had uint32, err error) {
	ask.Caller = s.caller(c)
	e, rid, err := s.target(c)
	if err != nil {
		return out, 0, err
	}
	if e != nil {
		had = e.Lifetime
	}
	ask.RID, ask.Lifetime = rid, s.cappedOf(c, ask.Lifetime, e)
	if ask.Patch != nil {
		ask.Caller = s.permitted(c)
		if err := s.judgePatch(c, e, ask.Patch); err != nil {
			return out, 0, err
		}
		ask.Statement = e.Statement
	}
	out, err = s.cfg.Registry.Refresh(c.Context(), ask)
	return out, had, veiled(c, e, err)
}

// editHref is where the document of a registration is replaced as a whole, in the
// shape that it was written in.
func editHref(e *directory.Entry) string {
	switch kind := e.Document.Kind(); kind {
	case directory.KindAIDIP:
		return agentHref(e)
	case directory.KindProfile:
		return profileHref(e)
	default:
		return "/ad/r?agent=" + url.QueryEscape(e.Agent) + "&kind=" + string(kind)
	}
}

// judgePatch says whether a body may be merged into e: it has e's kind, the
// result is a good document, and policy lets the caller claim what it says. A
// registration that this node doesn't know yet can't be judged here; the leader
// is asked whether there is one at all.
func (s *Server) judgePatch(c *call, e *directory.Entry, body []byte) error {
	if e == nil {
		return s.ask(c)
	}
	if kind := e.Document.Kind(); kind != directory.KindAD {
		return &problem.Refusal{
			Err:    directory.Refuse(directory.WrongKind, "This registration has a document of kind %q: replace that as a whole, at the Link.", kind),
			Header: http.Header{"Link": {"<" + editHref(e) + `>; rel="edit"`}},
		}
	}
	merged, err := e.Document.Merge(body)
	if err != nil {
		return err
	}
	p, err := kinds.Project(e.Agent, merged)
	if err != nil {
		return err
	}
	return s.vet(c, c.id, e.Agent, p, e.Visibility, "%s may not register this as %q", c.id, e.Agent)
}

// ask finds out from the leader what became of a registration that this node
// doesn't have, by a refresh that can't happen: no revision is noRevision.
func (s *Server) ask(c *call) error {
	rid, err := directory.ParseRID(c.vars["id"])
	if err != nil {
		return notFound(c)
	}
	_, err = s.cfg.Registry.Refresh(c.Context(), directory.Refreshing{Caller: s.caller(c), RID: rid, IfMatch: []uint64{noRevision}})
	if directory.ProblemOf(err) == directory.PreconditionFailed {
		return directory.Refuse(directory.Unavailable, "This node doesn't have the registration yet. Nothing was changed; try again.")
	}
	return veiled(c, nil, err)
}

// remove answers DELETE on a registration (jimenez 4.5).
func (s *Server) remove(w http.ResponseWriter, c *call) error {
	cond, err := conditionOf(c.Request)
	if err != nil {
		return err
	}
	out, err := s.judged(c, func() (directory.Outcome, error) {
		by := s.caller(c)
		e, rid, err := s.target(c)
		if err != nil {
			return directory.Outcome{}, err
		}
		out, err := s.cfg.Registry.Remove(c.Context(), directory.Removing{Caller: by, RID: rid, IfMatch: cond.ofExisting()})
		return out, veiled(c, e, err)
	})
	if err != nil {
		return err
	}
	s.changed(w, out)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// target returns the registration that a write goes to, if its caller may write
// it. A rid that this node doesn't have is for the leader to judge: the entry is
// nil then.
func (s *Server) target(c *call) (*directory.Entry, directory.RID, error) {
	if _, mirrored := c.vars["origin"]; !mirrored {
		return s.targetOf(c, c.vars["id"], s.newNames(c))
	}
	if e, err := s.writable(c, s.mirrored(c.vars["origin"], c.vars["id"])); e != nil || err != nil {
		return e, ridOf(e), err
	}
	return nil, directory.RID{}, notFound(c)
}

// targetOf is target of an id, whatever the path is. A name that this node doesn't
// have may be a moment old: fresh makes sure before it is said that there is none.
func (s *Server) targetOf(c *call, id string, fresh func() error) (*directory.Entry, directory.RID, error) {
	if e, err := s.writable(c, s.cfg.View.Find(id)); e != nil || err != nil {
		return e, ridOf(e), err
	}
	if rid, err := directory.ParseRID(id); err == nil {
		return nil, rid, nil // hidden or absent: the leader is asked of both, so that time tells neither
	}
	if err := fresh(); err != nil {
		return nil, directory.RID{}, err
	}
	if e, err := s.writable(c, s.cfg.View.Find(id)); e != nil || err != nil {
		return e, ridOf(e), err
	}
	return nil, directory.RID{}, notFoundAs(id)
}

// newNames returns what makes this node know, once for a request, all names that
// any node had acknowledged before.
func (s *Server) newNames(c *call) func() error {
	return sync.OnceValue(func() error { return s.cfg.Registry.Linearize(c.Context()) })
}

// writable returns the first of what was found that the caller may write, or why
// they may not; neither where they may see none of it.
func (s *Server) writable(c *call, found []*directory.Entry) (*directory.Entry, error) {
	for _, e := range found {
		switch {
		case s.mayWrite(c, e):
			return e, nil
		case !s.mayRead(c, e):
		case s.isOwn(e):
			return nil, directory.Refuse(directory.Forbidden, "This registration is not yours: only its registrant, or a commissioning tool, changes it.")
		default:
			return nil, s.foreign(e)
		}
	}
	return nil, nil
}

// ridOf is the rid of an entry that may be nil.
func ridOf(e *directory.Entry) directory.RID {
	if e == nil {
		return directory.RID{}
	}
	return e.RID
}

// foreign is the refusal of a write to another domain's registration.
func (s *Server) foreign(e *directory.Entry) error {
	r := &problem.Refusal{Err: directory.Refuse(directory.ForeignRegistration,
		"This is a copy of a registration of %s; only its origin changes it.", e.Origin)}
	if href := s.originHref(e); href != "" {
		r.Err.Detail += " It is at " + href + "."
		r.Members = []strictjson.Member{{Name: "origin_href", Value: strictjson.AppendString(nil, href)}}
	}
	return r
}

// veiled keeps from a caller what this node could not judge: where it doesn't
// have the registration, the leader's word that it belongs to somebody else is
// not for the caller, and reads as if there were none.
func veiled(c *call, e *directory.Entry, err error) error {
	return veiledFrom(c.vars["id"], e != nil, err)
}

// veiledFrom is veiled of an id, whatever the path is.
func veiledFrom(id string, known bool, err error) error {
	if p := directory.ProblemOf(err); !known && (p == directory.Forbidden || p == directory.NotFound) {
		return notFoundAs(id)
	}
	return err
}

// changed tells where the change is in the domain's history, and until when the
// registration holds.
func (s *Server) changed(w http.ResponseWriter, out directory.Outcome) {
	w.Header().Set("Roster-Index", directory.FormatIndex(s.cfg.Domain, out.Position))
	if e, ok := s.cfg.View.Get(s.cfg.Domain, out.RID); ok {
		w.Header().Set("Sunset", sunset(e))
	}
}

// sunset is when e ends unless it is refreshed (RFC 8594).
func sunset(e *directory.Entry) string {
	return time.UnixMilli(e.ExpiresAt).UTC().Format(http.TimeFormat)
}

// granted is the body that says that a shorter lifetime was granted than the
// one that was asked for (AD-011, AD-055).
func granted(out directory.Outcome) []byte {
	return append(strictjson.AppendUint([]byte{'{'}, "lt", uint64(out.Granted)), '}', '\n')
}
