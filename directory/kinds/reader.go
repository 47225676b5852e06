package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/schema"
	"github.com/roster-mesh/roster/directory/spelling"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A reading is one pass over a document. It collects violations and continues, so that its
// callers only name the members that they read.
type reading struct {
	first   *directory.Error
	wrong   []directory.Violation // first's own among them
	schemas bool                  // whether JSON Schemas are checked
	// absentNull takes members that are null for absent ones, as ProtoJSON does.
	absentNull bool
	// spelling has it look for members that are near to one that is read.
	spelling bool
	near     []nearMember
}

// A nearMember is a member of a document whose name is near to one that was read.
type nearMember struct {
	object *object
	index  int // in object.members
	known  string
}

// A Misspelling is an unknown member of a document whose name is near to a known one's.
type Misspelling struct{ Pointer, Near string } // JSON pointers

// maxNear bounds the members that a reading remembers.
const maxNear = 64

// misspellings returns the members that are near to a known one and known under no name.
func (r *reading) misspellings() (all []Misspelling) {
	for _, near := range r.near {
		if near.object.read&(1<<near.index) != 0 {
			continue
		}

		pointer := near.object.pointer(near.object.members[near.index].Name)
		if !slices.ContainsFunc(all, func(m Misspelling) bool { return m.Pointer == pointer }) {
			all = append(all, Misspelling{pointer, near.object.pointer(near.known)})
		}
	}

	return all
}

// refuse remembers that the member at the pointer is wrong, unless something is
// said of it already.
func (r *reading) refuse(problem directory.Problem, at, format string, args ...any) {
	// A fault often leads to others of the same member.
	if len(r.wrong) == directory.MaxViolations || slices.ContainsFunc(r.wrong, func(v directory.Violation) bool {
		return v.Pointer == at
	}) {
		return
	}

	err := directory.Refuse(problem, format, args...).At(at)
	r.first = cmp.Or(r.first, err)

	r.wrong = append(r.wrong, directory.Violation{Pointer: at, Detail: err.Detail})
}

// err returns the first violation; a nil *Error would not be a nil error.
func (r *reading) err() error {
	if r.first == nil {
		return nil
	}

	r.first.Violations = r.wrong

	return r.first
}

// An object is a JSON object under way of being read. A member that is absent
// and one that has the wrong type read the same; the latter is remembered.
type object struct {
	reading *reading
	at      string // its JSON pointer
	raw     []byte
	members []strictjson.Member
	read    uint64 // the first members that were read, a bit for each
}

// readDocument begins a reading of d.
func readDocument(d directory.Document) *object {
	return &object{reading: &reading{}, raw: d.Bytes(), members: d.Members()}
}

// pointer returns the JSON pointer to a member (RFC 6901).
func (o *object) pointer(name string) string { return strictjson.Pointer(o.at, name) }

// refuse remembers that the member of that name is wrong.
func (o *object) refuse(name, format string, args ...any) {
	o.reading.refuse(directory.BadDocument, o.pointer(name), format, args...)
}

// member returns the value of a member that begins with one of the bytes, which is how JSON's
// types differ. It returns nil if the member is absent.
func (o *object) member(name, begins, what string) []byte {
	if o.reading.spelling {
		o.noteNear(name)
	}

	for _, m := range o.members {
		if m.Name != name {
			continue
		}

		switch {
		case strings.IndexByte(begins, m.Value[0]) >= 0:
			return m.Value
		case o.reading.absentNull && typeOf(m.Value) == "null":
			return nil
		}

		o.refuse(name, "%q must be %s, not %s; omit it if there is no value", name, what, typeOf(m.Value))
	}

	return nil
}

// noteNear remembers which member is read, and those whose names are near to its name. Only
// the first members of an object count.
func (o *object) noteNear(name string) {
	// The bits of read have room for no more.
	for i := range o.members[:min(len(o.members), 64)] {
		switch {
		case o.members[i].Name == name:
			o.read |= 1 << i
		case len(o.reading.near) < maxNear && spelling.IsNear(o.members[i].Name, name):
			o.reading.near = append(o.reading.near, nearMember{o, i, name})
		}
	}
}

// required refuses members that may be absent here, and are null.
func (o *object) required(names ...string) {
	for _, m := range o.members {
		if slices.Contains(names, m.Name) && typeOf(m.Value) == "null" {
			o.refuse(m.Name, "%q is required, and null", m.Name)
		}
	}
}

// any returns a member of any type but null.
func (o *object) any(name string) []byte {
	return o.member(name, `"{[-0123456789tf`, "a JSON value")
}

// text returns a string, or "" if it is absent.
func (o *object) text(name string) string {
	return strictjson.Unquote(o.member(name, `"`, "a string"))
}

// need returns a string that must be there and not be empty.
func (o *object) need(name string) string {
	s := o.text(name)
	if s == "" {
		o.refuse(name, "%q is missing: a non-empty string is needed%s", name, o.suggest(name))
	}

	return s
}

// suggest asks whether a member was meant that is near to a missing one.
func (o *object) suggest(name string) string {
	for _, m := range o.members {
		if spelling.IsNear(m.Name, name) {
			return fmt.Sprintf("; is %q meant?", m.Name)
		}
	}

	return ""
}

// short returns a string of at most limit bytes.
func (o *object) short(name string, limit int) string {
	s := o.text(name)
	if len(s) > limit {
		o.refuse(name, "%q has %d bytes; at most %d are allowed", name, len(s), limit)
	}

	return s
}

// child returns an object, which is empty if the member is absent.
func (o *object) child(name string) *object {
	return o.reading.object(o.pointer(name), o.member(name, "{", "an object"))
}

// texts returns an array of strings.
func (o *object) texts(name string) []string {
	var out []string
	for i, data := range o.array(name, "an array of strings") {
		if data[0] == '"' {
			out = append(out, strictjson.Unquote(data))
		} else {
			o.reading.refuse(directory.BadDocument, o.pointer(name)+"/"+strconv.Itoa(i),
				"%q must be an array of strings; this one is %s", name, typeOf(data))
		}
	}

	return out
}

// tags returns an array of tags (AD-042, XU-040).
func (o *object) tags(name string) []string {
	tags := o.texts(name)
	if len(tags) > directory.MaxTags {
		o.refuse(name, "there are %d tags; at most %d are allowed", len(tags), directory.MaxTags)
	}

	for i, t := range tags {
		if len(t) > directory.MaxTag {
			o.reading.refuse(directory.BadDocument, o.pointer(name)+"/"+strconv.Itoa(i),
				"this tag has %d bytes; at most %d are allowed", len(t), directory.MaxTag)
		}
	}

	return tags
}

// objects returns an array of objects.
func (o *object) objects(name string) []*object {
	var out []*object
	for i, data := range o.array(name, "an array of objects") {
		at := o.pointer(name) + "/" + strconv.Itoa(i)
		if data[0] != '{' {
			o.reading.refuse(directory.BadDocument, at, "%q must be an array of objects; this one is %s", name,
				typeOf(data))

			continue
		}

		out = append(out, o.reading.object(at, data))
	}

	return out
}

// array returns the elements of an array.
func (o *object) array(name, what string) [][]byte {
	return strictjson.SplitArray(o.member(name, "[", what))
}

// object reads an object within the document; raw may be nil.
func (r *reading) object(at string, raw []byte) *object {
	return &object{reading: r, at: at, raw: raw, members: strictjson.SplitObject(raw)}
}

// typeOf names the JSON type of a value for people.
func typeOf(raw []byte) string {
	switch raw[0] {
	case 'n':
		return "null"
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	}

	return "a number"
}

// checkName refuses a name that lookups could not ask for (AD-062).
func (o *object) checkName(member, name string) {
	if strings.Contains(name, "*") {
		o.refuse(member, "the name %q has a *, which lookups use for prefixes", name)
	}

	o.checkSeen(member, name)
}

// checkSeen refuses a name, or another word that is compared, with a character that people
// can't see.
func (o *object) checkSeen(member, text string) {
	for _, r := range text {
		if directory.IsUnseen(r) {
			o.refuse(member, "%q is %+q, which has %U; people can't see it", member, text, r)
			return
		}
	}
}

// schema returns a member that is a JSON Schema object (AD-014). Schemas of other
// dialects are not checked.
func (o *object) schema(name string) []byte {
	raw := o.member(name, "{", "a JSON Schema object")

	// A stored document's schemas were checked when it was registered.
	if raw == nil || !o.reading.schemas {
		return raw
	}

	obj := o.child(name)
	if !schema.KnowsDialect(obj.text("$schema")) {
		return raw
	}

	fault := schema.Check(raw)
	switch {
	case fault == nil:
	case fault.Ref != "":
		o.reading.refuse(directory.BadDocument, obj.at+fault.Pointer,
			"%q refers to %.200q: a reference is within its schema, and no other is fetched", name, fault.Ref)
	default:
		o.reading.refuse(directory.BadDocument, obj.at+fault.Pointer, "%q is not a JSON Schema (2020-12): %s", name,
			fault.Detail)
	}

	return raw
}
