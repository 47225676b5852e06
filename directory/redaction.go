package directory

import (
	"slices"
	"strings"
)

// MemberRegistrant is the name of a registration's owner in a Redaction, which is shown as
// provenance.registrant. All other names are top-level members of the document.
const MemberRegistrant = "provenance.registrant"

// A Redaction says which members of a registration a reader may see (docs/trust.md). The
// zero value shows all. Redactions are comparable: equal ones show the same.
//
// The members that a kind requires, the agent's name and kind, and the status are visible in
// every Redaction.
type Redaction struct {
	names string // sorted, each between two zero bytes
	only  bool   // the named members are shown; otherwise they are withheld
}

// ShowOnly returns the Redaction that shows the named members alone.
func ShowOnly(names ...string) Redaction { return Redaction{packNames(names), true} }

// Withhold returns the Redaction that shows all but the named members.
func Withhold(names ...string) Redaction { return Redaction{packNames(names), false} }

func packNames(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return ""
	}

	return "\x00" + strings.Join(names, "\x00") + "\x00"
}

// Names returns the names in s, and whether these are shown (only) or withheld.
func (s Redaction) Names() (names []string, only bool) {
	if s.names != "" {
		names = strings.Split(strings.Trim(s.names, "\x00"), "\x00")
	}

	return names, s.only
}

// ShowsAll reports whether s shows everything.
func (s Redaction) ShowsAll() bool { return s == Redaction{} }

// Compare defines a total order of Redactions.
func (s Redaction) Compare(redaction Redaction) int {
	if s.only != redaction.only {
		if redaction.only {
			return -1
		}

		return 1
	}

	return strings.Compare(s.names, redaction.names)
}

// And returns the Redaction that shows the members that both show.
func (s Redaction) And(redaction Redaction) Redaction {
	switch {
	case s.only && redaction.only:
		return Redaction{s.filter(redaction.has), true}
	case s.only:
		return Redaction{s.filter(func(name string) bool { return !redaction.has(name) }), true}
	case redaction.only:
		return redaction.And(s)
	}

	return Redaction{s.with(redaction), false}
}

// Or returns the Redaction that shows the members that either shows.
func (s Redaction) Or(redaction Redaction) Redaction {
	switch {
	case s.only && redaction.only:
		return Redaction{s.with(redaction), true}
	case s.only:
		return redaction.Or(s)
	case redaction.only:
		return Redaction{s.filter(func(name string) bool { return !redaction.has(name) }), false}
	}

	return Redaction{s.filter(redaction.has), false}
}

func (s Redaction) has(name string) bool {
	// A name with a zero byte could match across the bounds of two names.
	return !strings.Contains(name, "\x00") && strings.Contains(s.names, "\x00"+name+"\x00")
}

func (s Redaction) filter(keep func(string) bool) string {
	names, _ := s.Names()
	return packNames(slices.DeleteFunc(names, func(name string) bool { return !keep(name) }))
}

func (s Redaction) with(o Redaction) string {
	a, _ := s.Names()
	b, _ := o.Names()

	return packNames(append(a, b...))
}

// Shows reports whether s shows a member of a document of kind k.
func (s Redaction) Shows(k Kind, name string) bool {
	return s.has(name) == s.only || name == "status" || slices.Contains(k.required(), name)
}

// Allows reports whether s shows the member name of the object reg or doc of a
// statement about a document of kind k.
func (s Redaction) Allows(k Kind, object, name string) bool {
	switch {
	case object == "doc":
		return s.Shows(k, name)
	case name == MemberOwner || isProvenanceMember(name):
		return s.ShowsRegistrant()
	}

	return IsRegMember(name) || s.ShowsAll() // members of later releases are shown only without a redaction
}

// ShowsRegistrant reports whether s shows the registration's owner and its registrant.
func (s Redaction) ShowsRegistrant() bool { return s.has(MemberRegistrant) == s.only }
