package kinds

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

func nameOfProfile(doc *object) string { return doc.need("id") }

// projectProfile projects Agent Metadata of
// draft-xu-efficient-agent-discovery-profile, 4.
func projectProfile(agent string, doc *object) *directory.Projection {
	checkID(agent, doc)

	if slices.Contains(takenIDs, doc.need("id")) {
		doc.refuse("id", "the id %q is a route of the directory's own; choose another", agent)
	}

	projection := &directory.Projection{
		Name:           doc.need("name"),
		Description:    doc.short("description", directory.MaxDescription),
		Tags:           doc.labels("tags"),
		Authentication: doc.member("auth", "{", "an object"),
		Constraints:    doc.member("constraints", "{", "an object"),
		Status:         doc.text("status"),
		Version:        doc.text("version"),
	}
	doc.need("description")
	doc.instant("updated_at")
	doc.instant("expires_at")
	doc.member("signature", "{", "an object")

	projection.Bindings = bindingsOfProfile(doc)
	for i := range projection.Bindings {
		if i == 0 {
			projection.Base = projection.Bindings[0].Endpoint
		}

		projection.Protocols = addNew(projection.Protocols, projection.Bindings[i].Protocol)
	}

	examplesOfProfile(doc, projection)

	for _, tag := range projection.Tags {
		projection.Capabilities = append(projection.Capabilities,
			directory.Capability{Name: tag, Type: directory.CapabilitySkill})
	}

	return projection
}

// labels returns tags that are capabilities' names as well: each once, none empty, and all
// accepted by lookups (spec/views.md, 5 and 19).
func (o *object) labels(name string) []string {
	var out []string

	seen := map[string]bool{}
	for i, t := range o.tags(name) {
		at := name + "/" + strconv.Itoa(i)
		switch {
		case t == "":
			o.reading.refuse(directory.BadDocument, o.at+"/"+at, "this tag is empty")
			continue
		case strings.Contains(t, "*"):
			o.reading.refuse(directory.BadDocument, o.at+"/"+at, "the tag %q has a *, which lookups use for prefixes",
				t)
		}

		// Tags are names of capabilities, which are compared in NFC.
		if key := norm.NFC.String(t); !seen[key] {
			seen[key] = true
			out = append(out, t)
		}
	}

	return out
}

// bindingsOfProfile returns the bindings in the order of preference: the lowest
// priority first, then those without one, each as they are written (XU-042).
func bindingsOfProfile(doc *object) []directory.Binding {
	type ranked struct {
		directory.Binding
		priority float64
	}

	var rs []ranked
	for _, obj := range doc.objects("bindings") {
		rs = append(rs, ranked{directory.Binding{
			Protocol:         obj.need("protocol"),
			Endpoint:         obj.need("endpoint"),
			MediaTypes:       obj.texts("media_types"),
			InteractionModel: obj.text("interaction_model"),
		}, obj.integer("priority", math.Inf(1))})
	}

	if len(rs) == 0 {
		doc.refuse("bindings", "there is no binding: name at least one protocol and endpoint by which the agent "+
			"is reached")
	}

	slices.SortStableFunc(rs, func(a, b ranked) int {
		switch {
		case a.priority < b.priority:
			return -1
		case a.priority > b.priority:
			return 1
		}

		return 0
	})

	var bs []directory.Binding
	for _, r := range rs {
		bs = append(bs, r.Binding)
	}

	return bs
}

// integer returns a whole number, or def if it is absent.
func (o *object) integer(name string, def float64) float64 {
	raw := o.member(name, "-0123456789", "a whole number")
	if raw == nil {
		return def
	}

	// JSON writes one whole number in several ways, such as 1.0 and 1e0.
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n != math.Trunc(n) {
		o.refuse(name, "%q is %.40s; it must be a whole number", name, raw)
		return def
	}

	return n
}

// examplesOfProfile reads the examples. Their languages are the agent's; a text that is not a
// language tag is ignored (XU-041).
func examplesOfProfile(doc *object, projection *directory.Projection) {
	for _, obj := range doc.objects("examples") {
		example := directory.Example{
			ID: obj.text("id"), Text: obj.need("text"), Tags: obj.tags("tags"),
			InputSchema:  obj.member("input_schema", "{", "an object"),
			OutputSchema: obj.member("output_schema", "{", "an object"),
		}
		if example.Language = obj.text("language"); !isLanguage(example.Language) {
			example.Language = ""
		} else {
			projection.Languages = addNew(projection.Languages, example.Language)
		}

		projection.Examples = append(projection.Examples, example)
	}
}

// IgnoredLanguage returns the JSON pointer to the first language of a profile's
// examples that is no language tag, and is ignored (XU-041); "" if all are tags,
// and for documents of other kinds.
func IgnoredLanguage(doc directory.Document) string {
	if doc.Kind() != directory.KindProfile || !bytes.Contains(doc.Bytes(), []byte(`"language"`)) {
		return ""
	}

	for _, o := range readDocument(doc).objects("examples") {
		if l := o.text("language"); l != "" && !isLanguage(l) {
			return o.pointer("language")
		}
	}

	return ""
}

// isLanguage reports whether s is a well-formed language tag (BCP 47), registered
// or not.
func isLanguage(s string) bool {
	if s == "" {
		return false
	}

	_, err := language.Parse(s)

	// A well-formed tag that is not registered has an error of its own type.
	var unknown language.ValueError

	return err == nil || errors.As(err, &unknown)
}

func addNew(all []string, s string) []string {
	if s == "" || slices.Contains(all, s) {
		return all
	}

	return append(all, s)
}

// instant returns a time in RFC 3339 form, or the zero time if it is absent.
func (o *object) instant(name string) time.Time {
	s := o.text(name)
	if s == "" {
		// An empty string reads as an absent one, so the member itself shows which it is.
		if o.member(name, `"`, "a string") != nil {
			o.refuse(name, "%q is empty; it must be a time as RFC 3339 writes it, such as 2026-06-01T12:00:00Z", name)
		}

		return time.Time{}
	}

	at, err := directory.ParseInstant(s)
	if err != nil {
		o.refuse(name, "%q is %.100q; it must be a time as RFC 3339 writes it, such as 2026-06-01T12:00:00Z", name, s)
	}

	return at
}

// Dates are a document's own dates (xu 4.8). Absent times are zero, as in every document that
// is no profile.
type Dates struct {
	Updated, Expires time.Time
	Version          string
}

// DatesOf returns the dates of a document.
func DatesOf(d directory.Document) Dates {
	if d.Kind() != directory.KindProfile {
		return Dates{}
	}

	doc := readDocument(d)

	return Dates{doc.instant("updated_at"), doc.instant("expires_at"), doc.text("version")}
}
