package agents

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A form reads the members of a request's JSON object, or of one within it. An absent
// member and one of the wrong type read the same; the first error is remembered, and err
// returns it.
type form struct {
	at      string // its JSON pointer
	members []strictjson.Member
	asked   *[]string // the pointers that were read
	wrong   *error
}

// parseForm reads a body strictly.
func parseForm(body []byte) (form, error) {
	members, err := directory.ParseObject(body)
	return form{members: members, asked: new([]string), wrong: new(error)}, err
}

func (f form) err() error { return *f.wrong }

// inPointer escapes the characters that have a meaning in JSON pointers (RFC 6901).
var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// refuse remembers the first error: that a member is invalid.
func (f form) refuse(name, format string, args ...any) {
	if *f.wrong == nil {
		*f.wrong = directory.Refuse(directory.BadRequest, format, args...).At(f.at + "/" + inPointer.Replace(name))
	}
}

// read decodes a member into v, and reports whether it is present and valid. starts are
// the first characters of valid JSON values, and typ describes them.
func (f form) read(name, starts string, v any, typ string) bool {
	*f.asked = append(*f.asked, f.at+"/"+name)

	value, ok := strictjson.FindMember(f.members, name)
	if ok && (!slices.Contains([]byte(starts), value[0]) || json.Unmarshal(value, v) != nil) {
		f.refuse(name, "%s must be %s.", name, typ)
		return false
	}

	return ok
}

// text returns a string in NFC; "" if it is absent.
func (f form) text(name string) (s string) {
	f.read(name, `"`, &s, "a string")
	return norm.NFC.String(s)
}

// texts returns a string or an array of strings, in NFC and not empty.
func (f form) texts(name string) []string {
	var (
		one string
		all []string
	)
	if value, ok := strictjson.FindMember(f.members, name); ok && value[0] == '"' {
		if f.read(name, `"`, &one, "a string or an array of strings") {
			all = []string{one}
		}
	} else {
		f.read(name, "[", &all, "a string or an array of strings")
	}

	if len(all) > index.MaxFilters {
		f.refuse(name, "%s has %d values; at most %d are allowed.", name, len(all), index.MaxFilters)
	}

	for i, s := range all {
		if s == "" {
			f.refuse(name, "%s has an empty value.", name)
		}

		all[i] = norm.NFC.String(s)
	}

	return all
}

// number returns a whole number of at least least; standard if it is absent.
func (f form) number(name string, least, standard int64) int64 {
	n := standard
	if f.read(name, "-0123456789", &n, "a whole number") && n < least {
		f.refuse(name, "%s must be a whole number of at least %d, got %d.", name, least, n)
	}

	return n
}

// flag returns a boolean; standard if it is absent.
func (f form) flag(name string, standard bool) bool {
	f.read(name, "tf", &standard, "true or false")
	return standard
}

// object returns an object within the form; without members if it is absent.
func (f form) object(name string) form {
	in := form{at: f.at + "/" + name, asked: f.asked, wrong: f.wrong}
	*f.asked = append(*f.asked, in.at)

	switch value, ok := strictjson.FindMember(f.members, name); {
	case ok && value[0] != '{':
		f.refuse(name, "%s must be an object.", name)
	case ok:
		in.members, _ = directory.ParseObject(value) // no error: the body was parsed
	}

	return in
}

// unknown returns the names of the members that were not read.
func (f form) unknown() (names []string) {
	for _, m := range f.members {
		if !slices.Contains(*f.asked, f.at+"/"+m.Name) {
			names = append(names, m.Name)
		}
	}

	return names
}

// refuseMisplaced refuses members of f that belong in within. Both have been read.
// Unknown members are ignored, but a demand in the wrong place would silently find agents
// that don't meet it.
func (f form) refuseMisplaced(within form) {
	for _, name := range f.unknown() {
		if slices.Contains(*within.asked, within.at+"/"+name) {
			f.refuse(name, "%s belongs in %s.", name, within.at[len(f.at)+1:])
		}
	}
}
