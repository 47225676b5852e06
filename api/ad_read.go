package api

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
)

// get answers GET /ad/r/{id} and its mirror /ad/r/{origin}/{id} (jimenez 4.3).
func (s *Server) get(w http.ResponseWriter, c *call) error {
	return s.show(w, c, surface{s.href, s.appendResource})
}

// record answers with the registration's signed record, as any domain can check
// it (RFC 9901).
func (s *Server) record(w http.ResponseWriter, c *call) error {
	e, sight, err := s.find(w, c, s.href)
	if e == nil {
		return err
	}
	record, err := s.cfg.Records.Record(c.Context(), e.Origin, e.RID)
	if err != nil {
		return err
	}
	if record, err = signed.RedactRecord(record, sight); err != nil {
		return err
	}
	return send(w, c, "application/sd-jwt", strongTag(e.Revision, []byte(record)), []byte(record))
}

// proof answers with the registration's proof file, which roster verify reads
// without a network. A page names a record with all that its stream discloses: who
// sees less of a registration can have its record, and no proof.
func (s *Server) proof(w http.ResponseWriter, c *call) error {
	e, sight, err := s.find(w, c, s.href)
	if e == nil {
		return err
	}
	if kinds.Redact(e, sight) != e {
		return directory.Refuse(directory.Forbidden, "A proof shows the whole registration, and you see a part of it; its record, at %s/record, shows that part.", s.href(e))
	}
	proof, err := s.cfg.Records.Proof(c.Context(), e.Origin, e.RID)
	if err != nil {
		return err
	}
	return send(w, c, "application/json", strongTag(e.Revision, proof), proof)
}

// find returns the one registration that the path names and its caller may
// read, and what they see of it. Where several domains hold it, it answers 300
// itself, with links to each, and returns nil (spec/views.md, 2).
func (s *Server) find(w http.ResponseWriter, c *call, href func(*directory.Entry) string) (*directory.Entry, directory.Redaction, error) {
	sights := map[*directory.Entry]directory.Redaction{} // asked once, since policy may change meanwhile
	readable := s.named(c, func(e *directory.Entry) bool {
		sight, ok := s.sight(c, e)
		sights[e] = sight
		return ok
	})
	switch len(readable) {
	case 0:
		return nil, directory.Redaction{}, notFound(c)
	case 1:
		s.reached(w, readable[0])
		return readable[0], sights[readable[0]], nil
	}
	for _, e := range readable {
		w.Header().Add("Link", "<"+href(e)+`>; rel="alternate"`)
	}
	l := look{registrant: !c.id.IsZero()}
	b := list([]byte(`{"agents":`), readable, func(b []byte, e *directory.Entry) []byte { return s.appendItem(b, kinds.Redact(e, sights[e]), l) })
	write(w, c.Request, http.StatusMultipleChoices, "application/json", append(b, '}', '\n'))
	return nil, directory.Redaction{}, nil
}

// named returns what the path's variables stand for among those that are seen.
func (s *Server) named(c *call, seen func(*directory.Entry) bool) []*directory.Entry {
	name, mirrored := c.vars["origin"]
	if !mirrored {
		return s.cfg.View.FindVisible(c.vars["id"], seen)
	}
	return slices.DeleteFunc(s.mirrored(name, c.vars["id"]), func(e *directory.Entry) bool { return !seen(e) })
}

// mirrored returns what stands at /ad/r/{origin}/{id}, seen or not.
func (s *Server) mirrored(name, id string) []*directory.Entry {
	origin, err := spiffeid.TrustDomainFromString(name)
	if err != nil || origin.Name() != name {
		return nil
	}
	rid, err := directory.ParseRID(id)
	if err != nil {
		return nil
	}
	if e, ok := s.cfg.View.Get(origin, rid); ok {
		return []*directory.Entry{e}
	}
	return nil
}

// reached tells how far the history of another domain's registration has come
// here.
func (s *Server) reached(w http.ResponseWriter, e *directory.Entry) {
	if at, ok := s.cfg.Reached(e.Origin); ok && !s.isOwn(e) {
		w.Header().Set("Roster-Index", withIndex(w.Header().Get("Roster-Index"), e.Origin, at))
	}
}

func notFound(c *call) error {
	if origin, ok := c.vars["origin"]; ok {
		return directory.Refuse(directory.NotFound, "There is no registration %.100q of %.100q here, or none that you may see.", c.vars["id"], origin)
	}
	return notFoundAs(c.vars["id"])
}

func notFoundAs(id string) error {
	return directory.Refuse(directory.NotFound, "There is no registration %.100q here, or none that you may see.", id)
}

// pathOf is the path of a registration that may not be in the view yet.
func pathOf(rid directory.RID) string { return "/ad/r/" + url.PathEscape(rid.String()) }
