package api

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

// params are a query's parameters in written order, values still encoded: only
// those that a route knows are ever decoded and can be wrong (AD-030).
type params []param

type param struct{ name, raw string }

func parseParams(query string) params {
	var ps params
	for pair := range strings.SplitSeq(query, "&") {
		rawName, raw, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(rawName); err == nil && name != "" {
			ps = append(ps, param{name, raw})
		}
	}
	return ps
}

// value decodes a parameter once; + is a space, and names are compared in NFC
// (AD-059).
func (p param) value() (string, error) {
	v, err := url.QueryUnescape(p.raw)
	if err != nil || !utf8.ValidString(v) {
		return "", directory.Refuse(directory.BadQuery, "the value of %s is not percent-encoded UTF-8", p.name)
	}
	return norm.NFC.String(v), nil
}

// decode returns the values of the parameters of those names.
func (ps params) decode(names []string) (url.Values, error) {
	values := url.Values{}
	for _, p := range ps {
		if !slices.Contains(names, p.name) {
			continue
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		values.Add(p.name, v)
	}
	return values, nil
}

// one returns the value of a parameter that may be given once, or nothing.
func (ps params) one(name string) (string, error) {
	values, err := ps.decode([]string{name})
	if n := len(values[name]); n > 1 {
		return "", directory.Refuse(directory.BadQuery, "%s is given %d times; once is enough", name, n)
	}
	return values.Get(name), err
}

// has is whether a parameter is given at all.
func (ps params) has(name string) bool {
	return slices.ContainsFunc(ps, func(p param) bool { return p.name == name })
}

// lifetime returns lt in seconds; def where it is not given (AD-010).
func (ps params) lifetime(def uint32) (uint32, error) {
	lt, err := ps.one("lt")
	if err != nil {
		return 0, err
	}
	if lt == "" && ps.has("lt") {
		return 0, directory.Refuse(directory.BadLifetime, "lt is empty; it is a whole number of seconds from %d to 4294967295", directory.MinLifetime)
	}
	return directory.ParseLifetime(lt, def)
}
