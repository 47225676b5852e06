package api

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A form is the JSON object of a request, or one within it, under way of being
// read. A member that is absent and one of the wrong type read the same; the first
// of the latter is remembered, and err returns it.
type form struct {
	at      string // its JSON pointer
	members []strictjson.Member
	asked   *[]string // the pointers that were asked for
	wrong   *error
}

// parseForm reads a body strictly.
func parseForm(body []byte) (form, error) {
	members, err := directory.ParseObject(body)
	return form{members: members, asked: new([]string), wrong: new(error)}, err
}

func (f form) err() error { return *f.wrong }

// inPointer escapes what has a meaning in JSON pointers (RFC 6901).
var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

func (f form) refuse(name, format string, args ...any) {
	if *f.wrong == nil {
		*f.wrong = directory.Refuse(directory.BadRequest, format, args...).At(f.at + "/" + inPointer.Replace(name))
	}
}

// read decodes a member into v, and reports whether there is one and it is good.
func (f form) read(name, begins string, v any, what string) bool {
	*f.asked = append(*f.asked, f.at+"/"+name)
	value, ok := strictjson.FindMember(f.members, name)
	if ok && (!slices.Contains([]byte(begins), value[0]) || json.Unmarshal(value, v) != nil) {
		f.refuse(name, "%s must be %s", name, what)
		return false
	}
	return ok
}

// text returns a string in NFC; "" where there is none.
func (f form) text(name string) (s string) {
	f.read(name, `"`, &s, "a string")
	return norm.NFC.String(s)
}

// texts returns a string or an array of strings, all in NFC and none empty.
func (f form) texts(name string) []string {
	var one string
	var all []string
	if value, ok := strictjson.FindMember(f.members, name); ok && value[0] == '"' {
		if f.read(name, `"`, &one, "a string or an array of strings") {
			all = []string{one}
		}
	} else {
		f.read(name, "[", &all, "a string or an array of strings")
	}
	if len(all) > index.MaxFilters {
		f.refuse(name, "%s has %d values; at most %d are allowed", name, len(all), index.MaxFilters)
	}
	for i, s := range all {
		if s == "" {
			f.refuse(name, "%s has an empty value", name)
		}
		all[i] = norm.NFC.String(s)
	}
	return all
}

// number returns a whole number of at least least; def where there is none.
func (f form) number(name string, least, def int64) int64 {
	n := def
	if f.read(name, "-0123456789", &n, "a whole number") && n < least {
		f.refuse(name, "%s is %d; it is a whole number from %d", name, n, least)
	}
	return n
}

// flag returns a boolean; false where there is none.
func (f form) flag(name string) bool { return f.flagOr(name, false) }

// flagOr is flag with another default.
func (f form) flagOr(name string, yes bool) bool {
	f.read(name, "tf", &yes, "true or false")
	return yes
}

// object returns an object within; one without members where there is none.
func (f form) object(name string) form {
	in := form{at: f.at + "/" + name, asked: f.asked, wrong: f.wrong}
	*f.asked = append(*f.asked, in.at)
	switch value, ok := strictjson.FindMember(f.members, name); {
	case ok && value[0] != '{':
		f.refuse(name, "%s must be an object", name)
	case ok:
		in.members, _ = directory.ParseObject(value) // is strict: the body was
	}
	return in
}

// unknown returns the names of the members that nothing has asked for.
func (f form) unknown() (names []string) {
	for _, m := range f.members {
		if !slices.Contains(*f.asked, f.at+"/"+m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// misplaced refuses members of f that belong in the object within, which has been read.
// f's own have been as well. Members that mean nothing are let be, but a demand that does
// nothing finds what is not wanted.
func (f form) misplaced(within form) {
	for _, name := range f.unknown() {
		if slices.Contains(*within.asked, within.at+"/"+name) {
			f.refuse(name, "%s means nothing here: it belongs in %s", name, within.at[len(f.at)+1:])
		}
	}
}
