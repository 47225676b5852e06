package index

import (
	"cmp"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

// ParseQuery reads the query parameters of GET /ad/l (jimenez 5.1). It ignores
// those that it doesn't know. Its errors are BadQuery.
func ParseQuery(v url.Values) (Query, error) {
	f := filters{values: v}
	query := Query{
		Agent:    f.patterns("agent"),
		Protocol: f.texts("protocol"),
		CapName:  f.patterns("cap_name"),
		CapType:  f.texts("cap_type"),
		Tag:      f.texts("tag"),
		Status:   f.texts("status"),
		Language: f.texts("language"),
		Count:    min(f.number("count", 1, MaxCount), MaxCount),
		Page:     f.number("page", 0, 0),
	}
	query.Origin = f.domain("origin")

	query.OwnOnly = f.scope()
	if err := query.After.UnmarshalText([]byte(f.single("after"))); err != nil {
		f.fail(err)
	}

	// A cursor takes the place of the page's number, so that is bounded only without one.
	if query.After.IsZero() {
		if query.Page >= MaxPages {
			f.fail(directory.Refuse(directory.BadQuery, "without after=, page is at most %d: follow the next "+
				"links instead", MaxPages-1))
		}

		query.Skip = query.Page * query.Count
	}

	if f.count > MaxFilters {
		f.fail(directory.Refuse(directory.BadQuery, "there are %d filters; at most %d are allowed", f.count,
			MaxFilters))
	}

	if f.err != nil {
		return Query{}, f.err
	}

	return query, nil
}

// filters reads query parameters and remembers the first error.
type filters struct {
	values url.Values
	count  int
	err    error
}

func (f *filters) fail(err error) {
	f.err = cmp.Or(f.err, err)
}

// texts returns all values of a parameter, in NFC (AD-059).
func (f *filters) texts(name string) []string {
	var out []string
	for _, s := range f.values[name] {
		if !utf8.ValidString(s) {
			f.fail(directory.Refuse(directory.BadQuery, "%s is not valid UTF-8", name))
		}

		out = append(out, norm.NFC.String(s))
	}

	f.count += len(out)

	return out
}

// patterns returns all values of a parameter that may end in an asterisk (AD-026).
func (f *filters) patterns(name string) []Pattern {
	var out []Pattern
	for _, s := range f.texts(name) {
		text, prefix := strings.CutSuffix(s, "*")
		if strings.Contains(text, "*") {
			f.fail(directory.Refuse(directory.BadQuery, "%s is %.100q; a * may only be its last character", name, s))
		}

		out = append(out, Pattern{text, prefix})
	}

	return out
}

// single returns the value of a parameter that is given once at most.
func (f *filters) single(name string) string {
	switch v := f.values[name]; len(v) {
	case 0:
		return ""
	case 1:
		return v[0]
	default:
		f.fail(directory.Refuse(directory.BadQuery, "%s must be given once, got %d times", name, len(v)))
		return ""
	}
}

// number returns a whole number of at least least, or def if it is absent. A number that is too
// large for an int becomes the largest int.
func (f *filters) number(name string, least, def int) int {
	s := f.single(name)
	if s == "" && !f.values.Has(name) {
		return def
	}

	n, err := strconv.ParseInt(s, 10, 32)
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		err = nil // n is the largest
	}

	if err != nil || int(n) < least {
		f.fail(directory.Refuse(directory.BadQuery, "%s must be a whole number of at least %d, got %.40q", name, least,
			s))

		return least
	}

	return int(n)
}

func (f *filters) domain(name string) spiffeid.TrustDomain {
	s := f.single(name)
	if s == "" && !f.values.Has(name) {
		return spiffeid.TrustDomain{}
	}

	td, err := spiffeid.TrustDomainFromString(s)
	if err != nil || td.Name() != s {
		f.fail(directory.Refuse(directory.BadQuery, "%s is %.100q, which is not a domain", name, s))
	}

	return td
}

// scope reports whether only the own domain's registrations are asked for.
func (f *filters) scope() bool {
	switch s := f.single("scope"); {
	case s == "domain":
		return true
	case s != "mesh" && f.values.Has("scope"):
		f.fail(directory.Refuse(directory.BadQuery, "scope must be mesh or domain, got %.40q", s))
	}

	return false
}
