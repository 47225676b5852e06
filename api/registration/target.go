package registration

import (
	"sync"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Name is how a request names a registration.
type Name struct {
	Origin string // "" for any domain
	ID     string // a rid or a name
}

// PathName returns the name in the path of a call.
func PathName(call *request.Call) Name { return Name{Origin: call.Vars["origin"], ID: call.Vars["id"]} }

// A Target is the registration that a write names.
type Target struct {
	ID    string // as the request has it
	RID   directory.RID
	Entry *directory.Entry // nil if this node doesn't have the RID: the leader judges that
}

// Hide returns the error of a change that the leader decided. If this node doesn't have the registration, it could not
// check whether the caller may see it. The answer is then the same for another identity's registration and for an
// absent one.
func (t Target) Hide(err error) error {
	if p := directory.ProblemOf(err); t.Entry == nil && (p == directory.Forbidden || p == directory.NotFound) {
		return NotFoundID(t.ID)
	}

	return err
}

// Targets finds the registrations that a call may change.
type Targets struct {
	writer *Writer
	call   *request.Call
	// catchUp makes this node know, once, everything that any node of the domain had
	// acknowledged before.
	catchUp func() error
}

// Targets returns a search for the registrations that a call may change, for one attempt.
func (w *Writer) Targets(call *request.Call) *Targets {
	return &Targets{
		writer: w, call: call,
		catchUp: sync.OnceValue(func() error { return w.Registry.Linearize(call.Context()) }),
	}
}

// Find returns the registration with a name, if the caller may change it. If this node doesn't
// have a name, it learns all names before the call is refused.
func (t *Targets) Find(name Name) (Target, error) {
	target, err := t.held(name)
	if directory.ProblemOf(err) != directory.NotFound || name.Origin != "" {
		return target, err
	}

	// The leader is asked about a rid, hidden or absent, so that timing tells neither.
	if rid, err := directory.ParseRID(name.ID); err == nil {
		return Target{ID: name.ID, RID: rid}, nil
	}

	if err := t.catchUp(); err != nil {
		return Target{}, err
	}

	return t.held(name)
}

// Renewable is Find of a refresh, and asks policy about the registration. If this node doesn't
// have it, it learns first everything that any node had acknowledged; the leader refuses a
// registration that this node doesn't have then.
func (t *Targets) Renewable(name Name) (Target, error) {
	target, err := t.Find(name)
	if err == nil && target.Entry == nil {
		if err := t.catchUp(); err != nil {
			return Target{}, err
		}

		target, err = t.Find(name)
	}

	if err != nil || target.Entry == nil {
		return target, err
	}

	return target, t.writer.Reader.Guard.AuthoriseRenewal(t.call, target.Entry)
}

// held returns the first registration with a name that this node has and the caller may change,
// or why it may not.
func (t *Targets) held(name Name) (Target, error) {
	reader := t.writer.Reader
	all := func(*directory.Entry) bool { return true }

	for _, entry := range reader.Named(name, all) {
		switch {
		case reader.Guard.MayWrite(t.call, entry):
			return Target{ID: name.ID, RID: entry.RID, Entry: entry}, nil
		case !reader.Guard.MayRead(t.call, entry):
		case reader.Guard.IsOwn(entry):
			return Target{}, directory.Refuse(directory.Forbidden,
				"you don't own this registration. Only its owner or a commissioning tool may change it")
		default:
			return Target{}, t.writer.Foreign(entry)
		}
	}

	return Target{}, name.NotFound()
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
