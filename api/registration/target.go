package registration

import (
	"sync"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Target returns the registration that the path of a write names, if its caller may write
// it. The entry is nil if this node doesn't have the rid: the leader judges that.
func (w *Writer) Target(call *request.Call) (*directory.Entry, directory.RID, error) {
	origin, mirrored := call.Vars["origin"]
	if !mirrored {
		return w.TargetID(call, call.Vars["id"], w.CatchUp(call))
	}

	if e, err := w.writable(call, w.Reader.Mirrored(origin, call.Vars["id"])); e != nil || err != nil {
		return e, ridOf(e), err
	}

	return nil, directory.RID{}, NotFound(call)
}

// TargetID is Target of an id. If this node doesn't have a name, catchUp makes sure that
// it knows all names before the call is refused.
func (w *Writer) TargetID(call *request.Call, id string, catchUp func() error) (*directory.Entry, directory.RID,
	error) {
	if e, err := w.writable(call, w.Reader.View.Find(id)); e != nil || err != nil {
		return e, ridOf(e), err
	}

	// The leader is asked about a rid, hidden or absent, so that timing tells neither.
	if rid, err := directory.ParseRID(id); err == nil {
		return nil, rid, nil
	}

	if err := catchUp(); err != nil {
		return nil, directory.RID{}, err
	}

	if e, err := w.writable(call, w.Reader.View.Find(id)); e != nil || err != nil {
		return e, ridOf(e), err
	}

	return nil, directory.RID{}, NotFoundID(id)
}

// Renewable is find, which is Target or TargetID of a refresh, and asks policy about the
// registration. If this node doesn't have the registration, it learns first everything that any
// node had acknowledged; what it doesn't have then, the leader refuses.
func (w *Writer) Renewable(
	call *request.Call, catchUp func() error, find func() (*directory.Entry, directory.RID, error),
) (*directory.Entry, directory.RID, error) {
	entry, rid, err := find()
	if entry == nil && err == nil {
		if err := catchUp(); err != nil {
			return nil, directory.RID{}, err
		}

		entry, rid, err = find()
	}

	if entry == nil || err != nil {
		return entry, rid, err
	}

	return entry, rid, w.Reader.Guard.AuthoriseRenewal(call, entry)
}

// CatchUp returns a function that makes this node know, once for a call, everything that
// any node of the domain had acknowledged before.
func (w *Writer) CatchUp(c *request.Call) func() error {
	return sync.OnceValue(func() error { return w.Registry.Linearize(c.Context()) })
}

// writable returns the first of some registrations that the caller may write, or why it
// may not; neither if it may see none of them.
func (w *Writer) writable(call *request.Call, found []*directory.Entry) (*directory.Entry, error) {
	for _, entry := range found {
		switch {
		case w.Reader.Guard.MayWrite(call, entry):
			return entry, nil
		case !w.Reader.Guard.MayRead(call, entry):
		case w.Reader.Guard.IsOwn(entry):
			return nil, directory.Refuse(directory.Forbidden,
				"you don't own this registration. Only its owner or a commissioning tool may change it")
		default:
			return nil, w.Foreign(entry)
		}
	}

	return nil, nil
}

// ridOf is the rid of an entry that may be nil.
func ridOf(entry *directory.Entry) directory.RID {
	if entry == nil {
		return directory.RID{}
	}

	return entry.RID
}

// Foreign refuses a write to another domain's registration.
func (w *Writer) Foreign(entry *directory.Entry) error {
	refused := &problem.Refusal{Err: directory.Refuse(directory.ForeignRegistration,
		"this is a copy of a registration of %s, and can be changed only there", entry.Origin)}
	member := func(name, value string) {
		refused.Members = append(refused.Members,
			strictjson.Member{Name: name, Value: strictjson.AppendString(nil, value)})
	}

	member("origin_authority", entry.Origin.Name())

	if href := w.Reader.Render.OriginHref(entry); href != "" {
		refused.Err.Detail += ". The original is at " + href

		member("origin_href", href)
	}

	return refused
}

// Hide returns the error of a change that the leader decided. If this node doesn't have
// the registration (known is nil), it could not check whether the caller may see it: that
// another identity owns it then reads as if there were none.
func Hide(id string, known *directory.Entry, err error) error {
	if p := directory.ProblemOf(err); known == nil && (p == directory.Forbidden || p == directory.NotFound) {
		return NotFoundID(id)
	}

	return err
}
