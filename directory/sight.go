package directory

import (
	"slices"
	"strings"
)

// SightRegistrant is the name by which a Sight speaks of a registration's owner, as
// provenance.registrant shows it. All other names are top-level members of the
// document, as it was written.
const SightRegistrant = "provenance.registrant"

// A Sight says which members of a registration somebody sees (trust.md, "Policy").
// The zero value is all of them. Sights are comparable: equal ones show the same.
//
// What a kind requires, an agent's name and kind, and its status are seen with every
// Sight: without these a registration says nothing, or something else.
type Sight struct {
	names string // sorted, each between two zero bytes
	only  bool   // the members named are all that is seen; else what is not
}

// SightOf returns the Sight of the named members alone.
func SightOf(names ...string) Sight { return Sight{packNames(names), true} }

// SightWithout returns the Sight of all but the named members.
func SightWithout(names ...string) Sight { return Sight{packNames(names), false} }

func packNames(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return ""
	}
	return "\x00" + strings.Join(names, "\x00") + "\x00"
}

// Names returns what s names, and whether that is all that is seen, or all that
// isn't.
func (s Sight) Names() (names []string, only bool) {
	if s.names != "" {
		names = strings.Split(strings.Trim(s.names, "\x00"), "\x00")
	}
	return names, s.only
}

// IsWhole reports whether s shows everything.
func (s Sight) IsWhole() bool { return s == Sight{} }

// Compare puts Sights into some fixed order.
func (s Sight) Compare(o Sight) int {
	if s.only != o.only {
		if o.only {
			return -1
		}
		return 1
	}
	return strings.Compare(s.names, o.names)
}

// And returns the Sight of what both show.
func (s Sight) And(o Sight) Sight {
	switch {
	case s.only && o.only:
		return Sight{s.filter(o.has), true}
	case s.only:
		return Sight{s.filter(func(name string) bool { return !o.has(name) }), true}
	case o.only:
		return o.And(s)
	}
	return Sight{s.with(o), false}
}

// Or returns the Sight of what either shows.
func (s Sight) Or(o Sight) Sight {
	switch {
	case s.only && o.only:
		return Sight{s.with(o), true}
	case s.only:
		return o.Or(s)
	case o.only:
		return Sight{s.filter(func(name string) bool { return !o.has(name) }), false}
	}
	return Sight{s.filter(o.has), false}
}

func (s Sight) has(name string) bool {
	return !strings.Contains(name, "\x00") && strings.Contains(s.names, "\x00"+name+"\x00")
}

func (s Sight) filter(keep func(string) bool) string {
	names, _ := s.Names()
	return packNames(slices.DeleteFunc(names, func(name string) bool { return !keep(name) }))
}

func (s Sight) with(o Sight) string {
	a, _ := s.Names()
	b, _ := o.Names()
	return packNames(append(a, b...))
}

// shows reports whether s shows a member of a document of kind k.
func (s Sight) shows(k Kind, name string) bool {
	return s.has(name) == s.only || name == "status" || slices.Contains(k.required(), name)
}

// Allows reports whether s shows the member name of the object reg or doc of a
// statement about a document of kind k.
func (s Sight) Allows(k Kind, object, name string) bool {
	switch {
	case object == "doc":
		return s.shows(k, name)
	case name == memberOwner || isProvenance(name):
		return s.has(SightRegistrant) == s.only
	}
	return isReg(name) || s.IsWhole() // what only a later release knows is for those who see everything
}

// See returns e as somebody with this Sight has it: without the members that they
// don't see, and Redacted where there are such. That is e itself where it has none.
func (s Sight) See(e *Entry) *Entry {
	if s.IsWhole() {
		return e
	}
	v := *e
	if s.has(SightRegistrant) != s.only && !e.Owner.IsZero() {
		v.Owner, v.Redacted = Identity{}, true
	}
	kind := e.Document.Kind()
	members := e.Document.Members()
	had := len(members)
	members = slices.DeleteFunc(members, func(m Member) bool { return !s.shows(kind, m.Name) })
	if len(members) == had {
		if v.Redacted == e.Redacted {
			return e
		}
		return &v
	}
	v.Redacted = true
	v.Document = LoadDocument(kind, AppendObject(nil, members))
	v.Packed = Packed{}
	if p, err := Reproject(e.Agent, v.Document); err == nil { // else it is of a kind that this release doesn't know
		v.Packed = Pack(v.Document, p)
	}
	return &v
}
