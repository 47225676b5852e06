package api

import (
	"net/http"

	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// All surfaces write and read the same registrations (http.md): a surface brings
// a parser of its own, and a view. What they share is here:
//
//	ask, err := s.asking(c, lifetime)      // owner, lt, visibility, If-Match, If-None-Match
//	ask.Agent, ask.Document = …            // the surface's own
//	out, err := s.upsert(c, ask)           // judged here, decided by the leader
//	return s.stored(w, c, surface, out)    // 201 or 200, with the registration as it is now
//
// DELETE is remove on every surface: an id means the same everywhere.

// A surface is how one draft shows a registration.
type surface struct {
	// href is the path of a registration; its origin and rid are enough.
	href func(e *directory.Entry) string
	// view appends the whole registration, one JSON object.
	view func(b []byte, e *directory.Entry, l look) []byte
}

// caller is who the domain's leader is told asks for a change.
func (s *Server) caller(c *call) directory.Caller {
	by := s.permitted(c)
	if !by.Commissioning {
		by.Judged = nil
	}
	return by
}

// lifetime reads lt, def seconds where it isn't given. A shorter one than the caller may
// ask for is refused: granted more, its agent would stay for longer than it said.
func (s *Server) lifetime(c *call, def uint32) (uint32, error) {
	floor := s.shortest(c)
	if def != 0 {
		def = max(def, floor)
	}
	lt, err := c.params.lifetime(def)
	if err == nil {
		err = longEnough(lt, floor)
	}
	return lt, err
}

// longEnough refuses a lifetime that is asked for and under the floor of its caller.
func longEnough(lt, floor uint32) error {
	if lt != 0 && lt < floor {
		return directory.Refuse(directory.BadLifetime, "lt is %d; from you this directory takes %d seconds and more", lt, floor)
	}
	return nil
}

// shortest is the shortest lifetime that the caller may ask for, in seconds.
func (s *Server) shortest(c *call) uint32 {
	for i := range s.cfg.Terms {
		if t := &s.cfg.Terms[i]; t.MinLifetime > 0 && t.cover(c.id, c.credential.Method) {
			return t.MinLifetime
		}
	}
	return s.cfg.MinLifetime
}

// capped is a lifetime in seconds, or what is granted of it at most: to this caller, and
// by the credential that it is asked for with (AD-070).
func (s *Server) capped(c *call, lifetime uint32) uint32 {
	for i := range s.cfg.Terms {
		if t := &s.cfg.Terms[i]; t.MaxLifetime > 0 && t.cover(c.id, c.credential.Method) {
			lifetime = min(lifetime, t.MaxLifetime)
			break
		}
	}
	if s.cfg.CredentialLives == 0 || c.credential.Life <= 0 {
		return lifetime
	}
	most := max(directory.MinLifetime, float64(s.cfg.CredentialLives)*c.credential.Life.Seconds())
	return uint32(min(float64(lifetime), most))
}

// cappedOf is capped of what a refresh asks for: without a lifetime, of what e was
// granted; e is nil where this node doesn't have it.
func (s *Server) cappedOf(c *call, lifetime uint32, e *directory.Entry) uint32 {
	if lifetime != 0 || e == nil {
		return s.capped(c, lifetime)
	}
	if most := s.capped(c, e.Lifetime); most < e.Lifetime {
		return most
	}
	return 0
}

// permitted is caller of a change that policy is asked about, from now on.
func (s *Server) permitted(c *call) directory.Caller {
	version := s.cfg.Policy.Version()
	return directory.Caller{Identity: c.id, Commissioning: c.commissions(), RequestID: c.requestID,
		Proof: c.credential.Proof, ProofUntil: c.credential.ProofUntil, Judged: &version}
}

// maxJudged bounds how often policy is asked about one change.
const maxJudged = 4

// judged makes a change that policy is asked about, again where policy, or what it was
// asked about, has moved on meanwhile: this node may be behind the domain's leader.
func (s *Server) judged(c *call, change func() (directory.Outcome, error)) (directory.Outcome, error) {
	for tries := 1; ; tries++ {
		out, err := change()
		if directory.ProblemOf(err) != directory.Overtaken || tries == maxJudged {
			return out, err
		}
		c.audited = false // what comes of it now is another matter
		if err := s.cfg.Registry.Linearize(c.Context()); err != nil {
			return directory.Outcome{}, err
		}
	}
}

// asking reads what a request to register says beside its name and document:
// for whom, for how long (def seconds where it doesn't say), who may see it, and what must be
// there already.
func (s *Server) asking(c *call, def uint32) (ask directory.Registering, err error) {
	if ask.Lifetime, err = s.lifetime(c, def); err != nil {
		return ask, err
	}
	if ask.Owner, err = s.owning(c); err != nil {
		return ask, err
	}
	visibility, err := c.params.one("visibility")
	if err != nil {
		return ask, err
	}
	ask.Visibility, ask.KeepVisibility = s.cfg.Policy.DefaultVisibility(), visibility == ""
	if visibility != "" {
		if ask.Visibility, err = directory.ParseVisibility(visibility); err != nil {
			return ask, err
		}
	}
	cond, err := conditionOf(c.Request)
	ask.IfMatch, ask.Present, ask.Absent = cond.revisions, cond.present, cond.absent
	return ask, err
}

// upsert registers a document under its name, or puts it in the place of what its
// owner registered there, of whatever kind that is (spec/views.md, 17).
func (s *Server) upsert(c *call, ask directory.Registering) (directory.Outcome, error) {
	p, err := kinds.Project(ask.Agent, ask.Document)
	if err != nil {
		return directory.Outcome{}, err
	}
	ask.Projection = p
	return s.judged(c, func() (directory.Outcome, error) { return s.upsertOnce(c, ask) })
}

func (s *Server) upsertOnce(c *call, ask directory.Registering) (directory.Outcome, error) {
	ask.Caller, ask.Lifetime = s.permitted(c), s.capped(c, ask.Lifetime)
	if ask.KeepVisibility { // so policy is asked about that one
		for _, e := range s.cfg.View.Find(ask.Agent) {
			if s.mayWrite(c, e) {
				ask.Visibility = e.Visibility
			}
		}
	}
	if err := s.mayOwn(c, &ask); err != nil {
		return directory.Outcome{}, err
	}
	return s.cfg.Registry.Register(c.Context(), ask)
}

// replacing returns the registration that a PUT would replace, if its caller may;
// nil where the path has a given id that nothing has: it is made then.
func (s *Server) replacing(c *call) (*directory.Entry, error) {
	e, _, err := s.target(c)
	_, given := directory.ParseRID(c.vars["id"])
	switch {
	case given != nil && directory.ProblemOf(err) == directory.NotFound:
		return nil, nil
	case e == nil && err == nil:
		return nil, s.ask(c)
	}
	return e, err
}

// put is upsert for PUT: the document has the id that its path has (XU-038).
func (s *Server) put(c *call, ask directory.Registering) (directory.Outcome, error) {
	e, err := s.replacing(c)
	if err != nil {
		return directory.Outcome{}, err
	}
	id := norm.NFC.String(c.vars["id"])
	if e != nil {
		id = e.Agent
	}
	if ask.Agent != id {
		return directory.Outcome{}, directory.Refuse(directory.BadDocument,
			"The document's id is %.100q, and that of this resource %.100q: an id doesn't change.", ask.Agent, id).At("/id")
	}
	return s.upsert(c, ask)
}

// stored answers a write with the registration as it is now.
func (s *Server) stored(w http.ResponseWriter, c *call, f surface, out directory.Outcome) error {
	status := http.StatusOK
	if out.Created {
		status = http.StatusCreated
	}
	private(w)
	e, ok := s.cfg.View.Get(s.cfg.Domain, out.RID)
	if !ok { // it was removed since
		e = &directory.Entry{Origin: s.cfg.Domain, RID: out.RID}
	}
	h := w.Header()
	h.Set("Location", f.href(e))
	s.changed(w, out)
	if !ok {
		w.WriteHeader(status)
		return nil
	}
	h.Set("Content-Location", f.href(e))
	body := append(f.view(nil, e, look{registrant: true}), '\n')
	tag(w, c, "application/json", strongTag(e.Revision, body), body)
	write(w, c.Request, status, "application/json", body)
	return nil
}

// show answers GET of one registration.
func (s *Server) show(w http.ResponseWriter, c *call, f surface) error {
	e, sight, err := s.find(w, c, f.href)
	if e == nil {
		return err
	}
	if href := f.href(e); c.URL.EscapedPath() != href {
		w.Header().Set("Content-Location", href)
	}
	w.Header().Set("Sunset", sunset(e))
	body := append(f.view(nil, kinds.Redact(e, sight), look{registrant: !c.id.IsZero()}), '\n')
	return send(w, c, "application/json", strongTag(e.Revision, body), body)
}
