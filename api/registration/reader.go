package registration

import (
	"net/http"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
)

// A Reader finds registrations for callers. It is safe for concurrent use.
type Reader struct {
	View    *index.View
	Guard   *access.Guard
	Render  *view.Renderer
	Limiter *admission.Limiter
	// Position returns the position of another domain's history at this node, if it is
	// known.
	Position func(spiffeid.TrustDomain) (directory.Position, bool)
}

// Show returns the handler that answers GET of one registration on a surface.
func (r *Reader) Show(surface view.Surface) request.Handler {
	return func(w http.ResponseWriter, c *request.Call) error {
		e, redaction, err := r.Find(w, c, surface.Href)
		if e == nil {
			return err
		}

		if href := surface.Href(e); c.URL.EscapedPath() != href {
			w.Header().Set("Content-Location", href)
		}
		w.Header().Set("Sunset", sunset(e))
		body := append(surface.Append(nil, kinds.Redact(e, redaction), view.Options{Registrant: !c.Anonymous()}), '\n')

		return response.Send(w, c, "application/json", response.StrongTag(e.Revision, body), body)
	}
}

// Find returns the one registration that the path names and its caller may read, and
// what is withheld of it. If several domains hold one, it answers 300 itself, with links
// to each, and returns nil.
func (r *Reader) Find(
	w http.ResponseWriter, c *request.Call, href func(*directory.Entry) string,
) (*directory.Entry, directory.Redaction, error) {
	// Policy is asked once for each entry, since it may change meanwhile.
	redactions := map[*directory.Entry]directory.Redaction{}
	readable := r.named(c, func(e *directory.Entry) bool {
		redaction, ok := r.Guard.Redaction(c, e)
		redactions[e] = redaction
		return ok
	})

	switch len(readable) {
	case 0:
		return nil, directory.Redaction{}, NotFound(c)
	case 1:
		r.setPosition(w, readable[0])
		return readable[0], redactions[readable[0]], nil
	}

	for _, e := range readable {
		w.Header().Add("Link", "<"+href(e)+`>; rel="alternate"`)
	}
	opt := view.Options{Registrant: !c.Anonymous()}
	b := response.AppendList([]byte(`{"agents":`), readable, func(b []byte, e *directory.Entry) []byte {
		return r.Render.AppendItem(b, kinds.Redact(e, redactions[e]), opt)
	})
	response.Write(w, c.Request, http.StatusMultipleChoices, "application/json", append(b, '}', '\n'))

	return nil, directory.Redaction{}, nil
}

// named returns the registrations that the path's variables name, among those that are
// seen.
func (r *Reader) named(c *request.Call, seen func(*directory.Entry) bool) []*directory.Entry {
	origin, mirrored := c.Vars["origin"]
	if !mirrored {
		return r.View.FindVisible(c.Vars["id"], seen)
	}

	return slices.DeleteFunc(r.Mirrored(origin, c.Vars["id"]), func(e *directory.Entry) bool { return !seen(e) })
}

// Mirrored returns the registration at /ad/r/{origin}/{id}, whether the caller may see it
// or not.
func (r *Reader) Mirrored(name, id string) []*directory.Entry {
	origin, err := spiffeid.TrustDomainFromString(name)
	if err != nil || origin.Name() != name {
		return nil
	}
	rid, err := directory.ParseRID(id)
	if err != nil {
		return nil
	}

	if e, ok := r.View.Get(origin, rid); ok {
		return []*directory.Entry{e}
	}

	return nil
}

// setPosition adds to Roster-Index the position of the history of another domain's
// registration.
func (r *Reader) setPosition(w http.ResponseWriter, e *directory.Entry) {
	if at, ok := r.Position(e.Origin); ok && !r.Guard.IsOwn(e) {
		w.Header().Set("Roster-Index", response.AddIndex(w.Header().Get("Roster-Index"), e.Origin, at))
	}
}

// Lookup is View.Lookup of the entries that show shows, paid from the caller's quota of a
// class.
func (r *Reader) Lookup(
	c *request.Call, class admission.Class, query index.Query, show index.Viewer,
) (index.Page, error) {
	spent := r.Limiter.Spend(c.Context(), c.Caller(), class, &query)
	page := r.View.Lookup(query, show)

	return page, spent()
}

// NotFound refuses a call whose path names no registration that its caller sees.
func NotFound(c *request.Call) error {
	if origin, ok := c.Vars["origin"]; ok {
		return directory.Refuse(directory.NotFound,
			"No registration %.100q of %.100q was found, or you may not see it.", c.Vars["id"], origin)
	}

	return NotFoundID(c.Vars["id"])
}

// NotFoundID is NotFound of an id.
func NotFoundID(id string) error {
	return directory.Refuse(directory.NotFound, "No registration %.100q was found, or you may not see it.", id)
}

// sunset is when a registration ends unless it is refreshed (RFC 8594).
func sunset(e *directory.Entry) string {
	return time.UnixMilli(e.ExpiresAt).UTC().Format(http.TimeFormat)
}
