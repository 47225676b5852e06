package request

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// Params are a query's parameters in written order. Values stay encoded until a route
// reads them, so parameters that a route doesn't know can't be wrong (AD-030).
type Params []Param

// A Param is one parameter of a query.
type Param struct {
	Name string
	Raw  string // percent-encoded
}

// ParseParams splits a query.
func ParseParams(query string) Params {
	var params Params
	for pair := range strings.SplitSeq(query, "&") {
		rawName, raw, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(rawName); err == nil && name != "" {
			params = append(params, Param{name, raw})
		}
	}

	return params
}

// Value decodes the value once: + is a space, and the result is in NFC (AD-059).
func (p Param) Value() (string, error) {
	v, err := url.QueryUnescape(p.Raw)
	if err != nil || !utf8.ValidString(v) {
		return "", directory.Refuse(directory.BadQuery, "the value of %s is not percent-encoded UTF-8", p.Name)
	}

	return norm.NFC.String(v), nil
}

// Decode returns the values of the parameters with these names.
func (ps Params) Decode(names []string) (url.Values, error) {
	values := url.Values{}
	for _, param := range ps {
		if !slices.Contains(names, param.Name) {
			continue
		}

		v, err := param.Value()
		if err != nil {
			return nil, err
		}

		values.Add(param.Name, v)
	}

	return values, nil
}

// One returns the value of a parameter that may be given once; "" if it is absent.
func (ps Params) One(name string) (string, error) {
	values, err := ps.Decode([]string{name})
	if n := len(values[name]); n > 1 {
		return "", directory.Refuse(directory.BadQuery, "%s is given %d times; give it once", name, n)
	}

	return values.Get(name), err
}

// Has tells whether a parameter is given at all.
func (ps Params) Has(name string) bool {
	return slices.ContainsFunc(ps, func(p Param) bool { return p.Name == name })
}

// Lifetime returns lt in seconds, or standard if it is absent (AD-010).
func (ps Params) Lifetime(standard uint32) (uint32, error) {
	lt, err := ps.One("lt")
	if err != nil {
		return 0, err
	}

	if lt == "" && ps.Has("lt") {
		return 0, directory.Refuse(directory.BadLifetime,
			"lt is empty; it must be a whole number of seconds from %d to 4294967295", directory.MinLifetime)
	}

	return directory.ParseLifetime(lt, standard)
}

// Brief returns whether provenance is to be short.
func Brief(values []string) (bool, error) {
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "false":
		return false, nil
	case len(values) == 1 && values[0] == "true":
		return true, nil
	}

	return false, directory.Refuse(directory.BadQuery, "brief must be true or false, got %.40q",
		strings.Join(values, ","))
}

// NextLink is the Link to the page after page: the parameters as they came, with the
// next page's number and its cursor (jimenez 5.3, AD-065, AD-066).
func (ps Params) NextLink(path string, known []string, page string, after index.Cursor) string {
	link := "<" + ps.query(path, known)
	if page != "" {
		link += "page=" + page + "&"
	}

	return link + "after=" + after.String() + `>; rel="next"`
}

// query is path with those parameters that are known, except the ones that say where a
// page begins; it ends ready for more.
func (ps Params) query(path string, known []string) string {
	var out strings.Builder
	out.WriteString(path + "?")

	for _, param := range ps {
		if param.Name == "page" || param.Name == "after" || !slices.Contains(known, param.Name) {
			continue
		}

		v, _ := param.Value() // no error: it was decoded before
		out.WriteString(param.Name + "=" + escape(v) + "&")
	}

	return out.String()
}

// escape percent-encodes a query's value, except the asterisk of a prefix.
func escape(v string) string { return strings.ReplaceAll(url.QueryEscape(v), "%2A", "*") }

// Cursor returns the position after which a list goes on, from its parameter "after".
func (ps Params) Cursor() (after index.Cursor, err error) {
	text, err := ps.One("after")
	if err != nil {
		return after, err
	}

	err = after.UnmarshalText([]byte(text))

	return after, err
}
