package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// appendYAML appends JSON as YAML in block style, members in the order in which
// they came. Strings are in double quotes, so none is taken for something else,
// and what can't be seen in them is escaped (AD-072).
func appendYAML(b []byte, value []byte) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewReader(value))
	b, err := yamlValue(b, d, 0, false)
	if err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	return append(b, '\n'), nil
}

// yamlValue appends the next value of d at a depth. A value that does not begin
// a line of its own is led by a space or, when it is a collection, a line break.
func yamlValue(b []byte, d *jsontext.Decoder, depth int, led bool) ([]byte, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	kind := t.Kind()
	if empty := map[jsontext.Kind]string{'{': "{}", '[': "[]"}[kind]; empty != "" && d.PeekKind() == kind+2 {
		_, err = d.ReadToken()
		return append(lead(b, led), empty...), err
	}
	switch kind {
	case '{', '[':
		return yamlItems(b, d, kind, depth, led)
	case '"':
		return yamlString(lead(b, led), t.String()), nil
	}
	return append(lead(b, led), t.String()...), nil
}

func lead(b []byte, led bool) []byte {
	if led {
		return append(b, ' ')
	}
	return b
}

// yamlItems appends the members or elements of a collection and reads its end.
func yamlItems(b []byte, d *jsontext.Decoder, kind jsontext.Kind, depth int, led bool) ([]byte, error) {
	for first := true; d.PeekKind() != kind+2; first = false {
		if !first || led {
			b = append(append(b, '\n'), strings.Repeat("  ", depth)...)
		}
		inner := kind == '{'
		if kind == '[' {
			b = append(b, '-', ' ') // the first member stands behind the dash
		} else {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			b = append(yamlKey(b, name.String()), ':')
		}
		var err error
		if b, err = yamlValue(b, d, depth+1, inner); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return b, err
}

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// yamlWords are plain words that YAML 1.1 or 1.2 takes for something else.
var yamlWords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

func yamlKey(b []byte, name string) []byte {
	if plainKey.MatchString(name) && !slices.Contains(yamlWords, strings.ToLower(name)) {
		return append(b, name...)
	}
	return yamlString(b, name)
}

func yamlString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, safe(string(r))...)
		}
	}
	return append(b, '"')
}
