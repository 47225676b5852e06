package directory

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// ImportedFrom is the member in which an imported document names its source: an object with
// source, sha256 and further known properties.
const ImportedFrom = "imported_from"

// A Kind is the shape of a document.
type Kind string

// The kinds (docs/spec/views.md, "Registration").
const (
	KindAD      Kind = "ad"      // draft-jimenez-agent-directory, 4.1
	KindProfile Kind = "profile" // draft-xu-efficient-agent-discovery-profile, 4
	KindAIDIP   Kind = "aidip"   // draft-cui-ai-agent-discovery-invocation, 3
	KindWoA     Kind = "woa"     // draft-gaikwad-woa, 4
	KindA2A     Kind = "a2a"     // an A2A agent card
	KindMCP     Kind = "mcp"     // an MCP registry's server.json
	KindOASF    Kind = "oasf"    // an OASF record
)

// kinds are all kinds that this release takes.
var kinds = [...]Kind{KindA2A, KindAD, KindAIDIP, KindMCP, KindOASF, KindProfile, KindWoA}

// KindNames returns the kinds that documents can be registered as by this
// release, sorted.
func KindNames() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}

	return names
}

// shared returns k in memory that all documents share, unless no release before
// this one knew it.
func (k Kind) shared() Kind {
	for _, known := range kinds {
		if k == known {
			return known
		}
	}

	return k
}

// ParseKind parses a kind that documents can be registered as by this release;
// an empty text is KindAD.
func ParseKind(s string) (Kind, error) {
	if s == "" {
		return KindAD, nil
	}

	if !slices.Contains(kinds[:], Kind(s)) {
		return "", Refuse(BadRequest, "kind must be one of %s, got %.40q", strings.Join(KindNames(), ", "), s)
	}

	return Kind(s), nil
}

// Bounds on a document (AD-042).
const (
	MaxDocument = 64 << 10 // bytes
	// MaxMembers bounds the top-level members, each of which is a disclosure of the
	// document's record.
	MaxMembers = 512
)

// reserved are the members that the node writes itself. A registrant's are
// dropped, a peer's are refused (spec/views.md, 3).
var reserved = []string{"rid", "href", "lt", "registered_at", "provenance", "projected", "kind", "revision", "gateway",
	"redacted"}

// isReserved reports whether name is the node's own in a document of kind k.
func (k Kind) isReserved(name string) bool {
	return slices.Contains(reserved, name) ||
		k == KindAD && (name == "agent" || name == "expires_at" || name == "updated_at")
}

// required are the members without which a document of this kind says nothing.
func (k Kind) required() []string {
	switch k {
	case KindAIDIP:
		return []string{"name", "endpoint"}
	case KindWoA:
		return []string{"woa_version", "agents", "transports"}
	case KindProfile:
		return []string{"id", "name", "description", "bindings"}
	case KindA2A:
		// A card of 0.3 is reached at its url, one of 1.0 at its interfaces.
		return []string{"name", "url", "supportedInterfaces"}
	case KindMCP:
		// The base can be made from any of the latter three.
		return []string{"name", "remotes", "packages", "repository"}
	case KindOASF:
		// It is reached by any of the latter three.
		return []string{"name", "modules", "extensions", "locators"}
	}

	return []string{"base"}
}

// A Document is the JSON of a registrant, without the members that the node adds. It keeps the
// bytes of every value, known or not, and the order of its members. The zero value is no
// document.
type Document struct {
	kind Kind
	raw  string // an object, without white space between its top-level members; or at rest
}

// ParseDocument reads a registrant's document strictly and drops the members
// that are the node's own. Whether it is a good one of its kind is for Project
// to say.
func ParseDocument(kind Kind, body []byte) (Document, error) {
	if len(body) > MaxDocument {
		return Document{}, Refuse(TooLarge, "the document has %d bytes; at most %d are allowed", len(body), MaxDocument)
	}

	members, err := ParseObject(body)
	if err != nil {
		return Document{}, err
	}

	// A projection leaves members out, which would be lost if it were written back.
	if slices.ContainsFunc(members, func(m strictjson.Member) bool {
		return m.Name == "projected" && string(m.Value) == "true"
	}) {
		return Document{}, Refuse(WrongKind,
			"this body is a projection of a registration of another kind; write that through its own surface").
			At("/projected")
	}

	members = slices.DeleteFunc(members, func(m strictjson.Member) bool { return kind.isReserved(m.Name) })

	return NewDocument(kind, members)
}

// ParseObject is strictjson.ParseObject of a request's body: its errors are BadRequest,
// with a pointer to the fault.
func ParseObject(body []byte) ([]strictjson.Member, error) {
	members, err := strictjson.ParseObject(body)

	return members, refuseJSON(err)
}

// UnmarshalBody is strictjson.Unmarshal of a request's body, with the errors of ParseObject.
func UnmarshalBody(body []byte, into any, options ...json.Options) error {
	return refuseJSON(strictjson.Unmarshal(body, into, options...))
}

func refuseJSON(err error) error {
	var fault *strictjson.Error
	if !errors.As(err, &fault) {
		return err
	}

	refusal := Refuse(BadRequest, "%s", fault.Detail).At(fault.Pointer)
	refusal.Err = fault.Err

	return refusal
}

// NewDocument makes a document of members that are strict JSON already. It refuses the node's
// own members, names that SD-JWT uses, and documents beyond the bounds.
func NewDocument(kind Kind, members []strictjson.Member) (Document, error) {
	return newDocument(kind, members, strictjson.AppendObject(make([]byte, 0, objectSize(members)), members))
}

// JoinDocument is NewDocument of members that came one by one. It refuses them unless they
// make one strict JSON object from which each member is read back unchanged: no name occurs
// twice, and no value reaches into the next member.
func JoinDocument(kind Kind, members []strictjson.Member) (Document, error) {
	raw := strictjson.AppendObject(make([]byte, 0, objectSize(members)), members)
	if !strictjson.IsObjectOf(raw, members) {
		return Document{}, Refuse(BadDocument, "the members are not one strict JSON object")
	}

	return newDocument(kind, members, raw)
}

// objectSize is the size of an object with these members, whose names need no escapes.
func objectSize(members []strictjson.Member) int {
	size := len(`{}`)
	for _, m := range members {
		size += len(m.Name) + len(`"":,`) + len(m.Value)
	}

	return size - min(1, len(members)) // the last has no comma
}

// newDocument makes a document of raw, which has these members. It keeps raw.
func newDocument(kind Kind, members []strictjson.Member, raw []byte) (Document, error) {
	for _, m := range members {
		if kind.isReserved(m.Name) {
			return Document{}, Refuse(BadDocument, "the member %q is the directory's own", m.Name).
				At(strictjson.Pointer("", m.Name))
		}
	}

	if len(members) > MaxMembers {
		return Document{}, Refuse(BadDocument, "the document has %d members; at most %d are allowed", len(members),
			MaxMembers)
	}

	if len(raw) > MaxDocument {
		return Document{}, Refuse(TooLarge, "the document has %d bytes; at most %d are allowed", len(raw), MaxDocument)
	}

	if at, found := usesSDJWT(raw); found {
		return Document{}, Refuse(BadDocument, "a member is called _sd or ..., which signed records use themselves").
			At(at)
	}

	if cap(raw) > len(raw) {
		raw = bytes.Clone(raw) // without the room that appending left
	}

	return Document{kind, strictjson.TextOf(raw)}, nil
}

// usesSDJWT reports whether an object within raw has a member named as SD-JWT
// names its own (RFC 9901, 4.2.4), and where.
func usesSDJWT(raw []byte) (string, bool) {
	// An escape may spell such a name, so a text with escapes is read as well.
	if !bytes.Contains(raw, []byte("_sd")) && !bytes.Contains(raw, []byte("...")) &&
		!bytes.Contains(raw, []byte(`\u`)) {
		return "", false
	}

	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return "", false
		}

		// Names and values alternate in an object, so an odd number is that of a name.
		if in, n := d.StackIndex(d.StackDepth()); t.Kind() == '"' && in == '{' && n%2 == 1 {
			if s := t.String(); s == "_sd" || s == "..." {
				return string(d.StackPointer()), true
			}
		}
	}
}

// LoadDocument returns a document from its own Bytes, as a log or a store kept
// them. It keeps raw, which must not be modified any more.
func LoadDocument(kind Kind, raw []byte) Document {
	return Document{kind.shared(), strictjson.TextOf(raw)}
}

// Kind returns the document's shape.
func (d Document) Kind() Kind { return d.kind }

// Bytes returns the document as one JSON object. It must not be modified.
func (d Document) Bytes() []byte { return strictjson.BytesOf(d.text()) }

// IsZero reports whether there is no document.
func (d Document) IsZero() bool { return d.raw == "" }

// Members returns the top-level members in written order. Their values are bytes
// of d that others may read, and must not be modified.
func (d Document) Members() []strictjson.Member { return strictjson.SplitObject(d.Bytes()) }

// Merge returns d with the members of body in place of its own of the same names, new ones at
// the end (jimenez 4.4, AD-021). A null does not stand for a missing member; validation of the
// result reports it.
func (d Document) Merge(body []byte) (Document, error) {
	patch, err := ParseDocument(d.kind, body)
	if err != nil {
		return Document{}, err
	}

	members := d.Members()
	for _, member := range patch.Members() {
		// A member keeps its place, so that the rest stays as it is written.
		if i := slices.IndexFunc(members, func(m strictjson.Member) bool { return m.Name == member.Name }); i >= 0 {
			members[i] = member
		} else {
			members = append(members, member)
		}
	}

	return NewDocument(d.kind, members)
}
