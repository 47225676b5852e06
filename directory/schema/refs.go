package schema

import (
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// wholeSchema is the URI of a schema that has none. Its scheme is our own, so that
// nothing outside can have such a URI.
const wholeSchema = "roster-schema://schema/"

// metaschemas are the documents of 2020-12, by the path behind metaschemaURL.
//
//go:embed metaschema
var metaschemas embed.FS

// maxURI bounds a URI in a schema, in bytes: each schema with an identifier has its own
// URI in memory, and each reference is resolved against one.
const maxURI = 1 << 10

const metaschemaURL = "https://json-schema.org/draft/2020-12/"

// A missingError is a reference to a part of its own schema that isn't there.
type missingError struct{}

func (*missingError) Error() string { return "no such part of the schema" }

// A reference is one that is resolved once its document is compiled.
type reference struct {
	from    *subschema
	keyword string
	text    string
	scope   scope
	pointer string
}

func (r *reader) reference(name string, value uint32) error {
	if err := r.is(name, value, "a string", '"'); err != nil {
		return err
	}

	r.c.pending = append(r.c.pending,
		reference{r.s, name, string(r.doc.text(value)), r.scope, pointer(r.at, name)})

	return nil
}

// identify reads the identifier and the anchors of a schema object. It returns the
// scope of its keywords.
func (c *compiler) identify(p place, within scope, s *subschema, at string) (scope, error) {
	if within.draft.refAlone {
		if _, ok, _ := p.doc.member(p.at, "$ref"); ok {
			return within, nil
		}
	}

	if value, ok, _ := p.doc.member(p.at, within.draft.id); ok {
		if p.doc.kind(value) != '"' {
			return within, &schemaError{pointer(at, within.draft.id), "must be a string"}
		}

		var err error
		if within, err = c.resource(p, within, string(p.doc.text(value)), pointer(at, within.draft.id)); err != nil {
			return within, err
		}
	}

	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		value, ok, _ := p.doc.member(p.at, keyword)
		if !ok || within.draft.refAlone {
			continue
		}

		if p.doc.kind(value) != '"' {
			return within, &schemaError{pointer(at, keyword), "must be a string"}
		}

		name := string(p.doc.text(value))
		c.anchors[within.uri+"#"+name] = p

		if keyword == "$dynamicAnchor" {
			within.resource.addDynamic(name, s)
		}
	}

	if value, ok, _ := p.doc.member(p.at, "$recursiveAnchor"); ok && within.draft.recursive &&
		p.doc.kind(value) == 't' {
		// It is a dynamic anchor without a name.
		within.resource.addDynamic("", s)
	}

	return within, nil
}

// resource returns the scope of a schema with an identifier.
func (c *compiler) resource(p place, within scope, id, at string) (scope, error) {
	uri, fragment, err := resolveURI(within.uri, id)
	if err != nil {
		return within, &schemaError{at, "must be a URI reference"}
	}

	if len(uri)+len(fragment) > maxURI {
		c.out.unusable(fmt.Errorf("%s: the URI has %d bytes; at most %d are used", at, len(uri)+len(fragment), maxURI))
		return within, nil
	}

	// In earlier drafts an identifier of a fragment alone is an anchor.
	if fragment != "" {
		if !within.draft.refAlone {
			return within, &schemaError{at, "must not have a fragment"}
		}

		c.anchors[uri+"#"+fragment] = p
	}

	if uri == within.uri {
		return within, nil
	}

	within = scope{place: p, uri: uri, resource: &resource{}, draft: within.draft}
	c.resources[uri], c.scopes[within.resource] = within, within

	return within, nil
}

func (r *resource) addDynamic(name string, s *subschema) {
	if r.dynamic == nil {
		r.dynamic = map[string]*subschema{}
	}

	if r.dynamic[name] == nil {
		r.dynamic[name] = s
	}
}

// resolveURI returns the URI without its fragment, and the fragment, decoded.
func resolveURI(base, ref string) (uri, fragment string, err error) {
	to, err := url.Parse(ref)
	if err != nil {
		return "", "", err
	}

	from, err := url.Parse(base)
	if err != nil {
		return "", "", err
	}

	resolved := from.ResolveReference(to)
	fragment = resolved.Fragment
	resolved.Fragment, resolved.RawFragment = "", ""

	return resolved.String(), fragment, nil
}

// resolve connects references with their schemas. A reference may lead to a part
// that no keyword made a schema, and that is compiled then.
func (c *compiler) resolve() error {
	for len(c.pending) > 0 {
		next := c.pending[0]
		c.pending = c.pending[1:]

		err := c.connect(next)

		if _, ok := errors.AsType[*missingError](err); ok {
			c.out.unusable(fmt.Errorf("%s: refers to %.200q, which the schema lacks", next.pointer, next.text))
			continue
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (c *compiler) connect(ref reference) error {
	uri, fragment, err := resolveURI(ref.scope.uri, ref.text)
	if err != nil {
		return &schemaError{ref.pointer, "must be a URI reference"}
	}

	within, err := c.resourceAt(uri, ref)
	if err != nil {
		return err
	}

	target, err := c.within(within, fragment)
	if err != nil {
		return err
	}

	switch ref.keyword {
	case "$ref":
		ref.from.ref = target
	case "$recursiveRef":
		ref.from.dynamicRef, ref.from.dynamic = target, target.resource.dynamic[""] == target
	case "$dynamicRef":
		// It is dynamic if it leads to a dynamic anchor first of all.
		ref.from.dynamicRef = target
		ref.from.dynamicAnchor = fragment
		ref.from.dynamic = fragment != "" && target.resource.dynamic[fragment] == target
	}

	return nil
}

// resourceAt finds a resource of the schema, or of the metaschema.
func (c *compiler) resourceAt(uri string, ref reference) (scope, error) {
	if within, ok := c.resources[uri]; ok {
		return within, nil
	}

	// A reference to a schema that has a URI, by a JSON pointer in another's, is found
	// with its own.
	name, ok := strings.CutPrefix(uri, metaschemaURL)
	if !ok {
		return scope{}, &remoteError{ref.pointer, ref.text}
	}

	raw, err := metaschemas.ReadFile("metaschema/" + name + ".json")
	if err != nil {
		return scope{}, &remoteError{ref.pointer, ref.text}
	}

	doc, err := parse(raw)
	if err != nil {
		return scope{}, err
	}

	if _, err := c.document(doc, uri); err != nil {
		return scope{}, err
	}

	return c.resources[uri], nil
}

// within finds the part of a resource that a fragment names: the whole, an anchor or
// a JSON pointer.
func (c *compiler) within(in scope, fragment string) (*subschema, error) {
	if fragment == "" {
		return c.subschema(in.place, in, "")
	}

	if !strings.HasPrefix(fragment, "/") {
		p, ok := c.anchors[in.uri+"#"+fragment]
		if !ok {
			return nil, &missingError{}
		}

		return c.subschema(p, in, "")
	}

	p := in.place

	for _, token := range strings.Split(fragment[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		found := false

		switch p.doc.kind(p.at) {
		case '{':
			p.at, found, _ = p.doc.member(p.at, token)
		case '[':
			if i, err := strconv.Atoi(token); err == nil {
				p.at, found = p.doc.item(p.at, i)
			}
		}

		if !found {
			return nil, &missingError{}
		}

		// The part may lie in a resource that is embedded in this one.
		if s, ok := c.known[p]; ok && s.resource != nil {
			in = c.scopes[s.resource]
		}
	}

	return c.subschema(p, in, fragment)
}
