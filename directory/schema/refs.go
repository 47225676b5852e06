package schema

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// remoteRef finds a reference in a schema that leads out of it, and where it stands
// as a JSON pointer. Nobody would follow it: no node fetches what a registrant
// names, and nobody could validate by what is left (WOA-023, AI-034). What a schema
// says of values (const, enum, default, examples) is not its own.
func remoteRef(schema any) (at, ref string) {
	ids := map[string]bool{}
	identified(schema, &url.URL{}, ids)
	return leadsOut(schema, &url.URL{}, ids, "")
}

// values are the keywords whose values are no schemas.
var values = map[string]bool{"const": true, "enum": true, "default": true, "examples": true, "example": true}

// identified collects what the parts of a schema are called.
func identified(v any, base *url.URL, ids map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		if base = based(v, base); base.String() != "" {
			ids[base.String()] = true
		}
		for name, of := range v {
			if !values[name] {
				identified(of, base, ids)
			}
		}
	case []any:
		for _, of := range v {
			identified(of, base, ids)
		}
	}
}

// based is what references within a schema are relative to.
func based(v map[string]any, base *url.URL) *url.URL {
	if id, ok := v["$id"].(string); ok {
		if u, err := base.Parse(id); err == nil {
			u.Fragment = ""
			return u
		}
	}
	return base
}

func leadsOut(v any, base *url.URL, ids map[string]bool, at string) (string, string) {
	switch v := v.(type) {
	case map[string]any:
		base = based(v, base)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			of := v[name]
			if ref, ok := of.(string); ok && (name == "$ref" || name == "$dynamicRef") && !leadsWithin(ref, base, ids) {
				return strictjson.Pointer(at, name), ref
			}
			if values[name] {
				continue
			}
			if where, ref := leadsOut(of, base, ids, strictjson.Pointer(at, name)); ref != "" {
				return where, ref
			}
		}
	case []any:
		for i, of := range v {
			if where, ref := leadsOut(of, base, ids, strictjson.Pointer(at, strconv.Itoa(i))); ref != "" {
				return where, ref
			}
		}
	}
	return "", ""
}

// leadsWithin is whether a reference is to a part of its own schema, or to a
// metaschema, which everybody has.
func leadsWithin(ref string, base *url.URL, ids map[string]bool) bool {
	if strings.HasPrefix(ref, "#") {
		return true
	}
	u, err := base.Parse(ref)
	if err != nil {
		return false
	}
	u.Fragment = ""
	return ids[u.String()] || u.Host == "json-schema.org"
}
