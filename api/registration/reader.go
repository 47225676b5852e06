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
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/directory/strictjson"
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
	// Offer returns the open offer of a registration of the domain.
	Offer func(directory.RID) (directory.Offer, bool)
}

// Show returns the handler that answers GET of one registration on a surface.
func (r *Reader) Show(surface view.Surface) request.Handler {
	return func(w http.ResponseWriter, call *request.Call) error {
		found, err := r.Find(w, call, surface.Href)
		if err != nil {
			return err
		}

		return span.Do(call.Context(), span.Render, func(span.Span) error {
			if href := surface.Href(found.Entry); call.URL.EscapedPath() != href {
				w.Header().Set("Content-Location", href)
			}

			w.Header().Set("Sunset", sunset(found.Entry))

			shown := r.Guard.Mark(call, kinds.Redact(found.Entry, found.Redaction))
			if r.Guard.IsOwn(shown) && !call.Anonymous() && !shown.Owner.IsZero() {
				w.Header().Set(wire.HeaderVisibility, shown.Visibility.String())
			}

			body := append(surface.Append(nil, shown, view.Options{Registrant: !call.Anonymous()}), '\n')

			return response.Send(w, call, "application/json", response.StrongTag(shown.Revision, body), body)
		})
	}
}

// A Found is a registration, and the parts of it that are withheld from its reader.
type Found struct {
	Entry     *directory.Entry
	Redaction directory.Redaction
}

// Find returns the one registration that the path names and its caller may read. If several
// domains hold one, it answers 300 itself, with links to each, and returns request.ErrAnswered.
func (r *Reader) Find(
	w http.ResponseWriter, call *request.Call, href func(*directory.Entry) string,
) (Found, error) {
	name := PathName(call)

	readable := r.readable(call, name)
	switch len(readable) {
	case 0:
		return Found{}, name.NotFound()
	case 1:
		r.setPosition(w, readable[0].Entry)
		return readable[0], nil
	}

	for _, found := range readable {
		w.Header().Add("Link", "<"+href(found.Entry)+`>; rel="alternate"`)
	}

	opt := view.Options{Registrant: !call.Anonymous()}
	data := strictjson.AppendList([]byte(`{"agents":`), readable, func(b []byte, found Found) []byte {
		return r.Render.AppendItem(b, r.Guard.Mark(call, kinds.Redact(found.Entry, found.Redaction)), opt)
	})
	response.Write(w, call.Request, http.StatusMultipleChoices, "application/json", append(data, '}', '\n'))

	return Found{}, request.ErrAnswered
}

// redaction is Guard.Redaction. The identity that may accept a registration sees all of it, so
// that it knows what it would register.
func (r *Reader) redaction(call *request.Call, entry *directory.Entry) (redaction directory.Redaction, ok bool) {
	redaction, ok = r.Guard.Redaction(call, entry)
	if ok && redaction.ShowsAll() || call.Anonymous() || !r.Guard.IsOwn(entry) {
		return redaction, ok
	}

	offer, open := r.Offer(entry.RID)
	if open && !offer.Changed && offer.To == call.Identity && r.Guard.MayOwn(call.Identity, entry) {
		return directory.Redaction{}, true
	}

	return redaction, ok
}

// readable returns the registrations with a name that the caller may read.
func (r *Reader) readable(call *request.Call, name Name) []Found {
	_, step := span.Start(call.Context(), span.Lookup)
	defer step.End()

	// Policy is asked once for each entry, since it may change meanwhile.
	redactions := map[*directory.Entry]directory.Redaction{}
	entries := r.Named(name, func(e *directory.Entry) bool {
		redaction, ok := r.redaction(call, e)
		redactions[e] = redaction

		return ok
	})

	found := make([]Found, len(entries))
	for i, e := range entries {
		found[i] = Found{Entry: e, Redaction: redactions[e]}
	}

	return found
}

// Named returns the registrations with a name, among those that are seen.
func (r *Reader) Named(name Name, seen func(*directory.Entry) bool) []*directory.Entry {
	if name.Origin == "" {
		return r.View.FindVisible(name.ID, seen)
	}

	return slices.DeleteFunc(r.Mirrored(name.Origin, name.ID), func(e *directory.Entry) bool { return !seen(e) })
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
	page := r.look(c, query, show)

	return page, spent()
}

// look is View.Lookup, with spans of it and of the policy's share of it.
func (r *Reader) look(call *request.Call, query index.Query, show index.Viewer) index.Page {
	if !call.Span.IsRecorded() {
		return r.View.Lookup(query, show)
	}

	ctx, step := span.Start(call.Context(), span.Lookup)
	policy := span.Measure(ctx, span.Policy)
	page := r.View.Lookup(query, func(e *directory.Entry) *directory.Entry {
		defer policy.Add(time.Now())
		return show(e)
	})
	policy.End()
	step.Items(len(page.Entries))
	step.End()

	return page
}

// NotFound refuses a call that names no registration that its caller sees.
func (n Name) NotFound() error {
	if n.Origin == "" {
		return NotFoundID(n.ID)
	}

	return directory.Refuse(directory.NotFound,
		"no registration %.100q of %.100q was found, or you may not see it", n.ID, n.Origin)
}

// NotFoundID is NotFound of an id.
func NotFoundID(id string) error {
	return directory.Refuse(directory.NotFound, "no registration %.100q was found, or you may not see it", id)
}

// sunset is when a registration ends unless it is refreshed (RFC 8594).
func sunset(e *directory.Entry) string {
	return time.UnixMilli(e.ExpiresAt).UTC().Format(http.TimeFormat)
}
