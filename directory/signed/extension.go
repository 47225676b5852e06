package signed

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Bounds of ext (federation.md, "Formats over time").
const (
	maxExtension      = 4 << 10 // bytes, as written
	maxExtensionDepth = 8
)

// An Extension is the part of a signed structure after its listed members: ext, an object, and
// crit, those of its names that a reader must understand. It keeps the signed bytes. Extensions
// are comparable; the zero value is no extension.
type Extension struct {
	object   string // the value of ext, in the spacing in which it was written
	critical string // the value of crit, a compact array; or ""
}

var (
	errExtension = errors.New("ext and crit are not in canonical form")
	errListed    = errors.New("the listed members are not in canonical form")
)

// NewExtension returns the extension of an object, written as it is. critical names the members
// that a reader must understand.
func NewExtension(object []byte, critical ...string) (Extension, error) {
	extension := Extension{object: string(object)}

	if len(critical) > 0 {
		extension.critical = string(strictjson.AppendStrings(nil, critical))
	}

	return extension, extension.validate()
}

// BroughtBy returns the extension of a statement that names the member of its domain which brought
// the change to the leader; none for the zero ID.
func BroughtBy(member spiffeid.ID) Extension {
	if member.IsZero() {
		return Extension{}
	}

	return Extension{object: string(append(strictjson.AppendText([]byte{'{'}, nameFrom, member.String()), '}'))}
}

// nameFrom is the name of ext that BroughtBy writes.
const nameFrom = "from"

// IsZero reports whether e is empty.
func (e Extension) IsZero() bool { return e == Extension{} }

// Object returns the value of ext as it was written, or nil.
func (e Extension) Object() []byte {
	if e.object == "" {
		return nil
	}

	return []byte(e.object)
}

// Critical returns the names in crit, in the order in which they were written.
func (e Extension) Critical() []string {
	if e.critical == "" {
		return nil
	}

	var names []string
	if json.Unmarshal([]byte(e.critical), &names) != nil {
		return nil // validate has decoded it
	}

	return names
}

// Append appends ext and crit to an object under way.
func (e Extension) Append(data []byte) []byte {
	if e.object != "" {
		data = strictjson.AppendRaw(data, "ext", []byte(e.object))
	}

	if e.critical != "" {
		data = strictjson.AppendRaw(data, "crit", []byte(e.critical))
	}

	return data
}

// validate refuses an ext that is not one strict, bounded object with a member,
// and a crit that is not a compact list of distinct names of ext.
func (e Extension) validate() error {
	if e.object == "" {
		if e.critical != "" {
			return fmt.Errorf("%w: crit without ext", errExtension)
		}

		return nil
	}

	if len(e.object) > maxExtension || strictjson.IsDeeper([]byte(e.object), maxExtensionDepth) {
		return fmt.Errorf("%w: ext has over %d bytes or is nested over %d deep",
			errExtension, maxExtension, maxExtensionDepth)
	}

	// The parser would accept white space around the object, which no writer makes.
	if e.object[0] != '{' || e.object[len(e.object)-1] != '}' {
		return fmt.Errorf("%w: ext is not an object", errExtension)
	}

	members, err := directory.ParseObject([]byte(e.object))
	if err != nil {
		return fmt.Errorf("%w: %w", errExtension, err)
	}

	if len(members) == 0 {
		return fmt.Errorf("%w: ext is empty", errExtension)
	}

	return e.validateCritical(members)
}

func (e Extension) validateCritical(members []strictjson.Member) error {
	if e.critical == "" {
		return nil
	}

	var names []string

	err := json.Unmarshal([]byte(e.critical), &names)
	if err != nil || len(names) == 0 || string(strictjson.AppendStrings(nil, names)) != e.critical {
		return fmt.Errorf("%w: crit is not a compact list of names", errExtension)
	}

	for i, name := range names {
		_, found := strictjson.FindMember(members, name)
		if !found || slices.Contains(names[:i], name) {
			return fmt.Errorf("%w: crit names %.64q, which ext lacks, or names it twice", errExtension, name)
		}
	}

	return nil
}

// ExtensionBehind reads the extension of a payload that begins with the listed members in their
// encoding. A payload is encoded again only as far as the listed members, because ext has no
// unique encoding.
func ExtensionBehind(listed, payload []byte) (Extension, error) {
	tail, begins := bytes.CutPrefix(payload, listed)
	if !begins {
		return Extension{}, errListed
	}

	return parseExtension(tail)
}

// parseExtension reads the rest of a structure after its listed members, up to and with the
// closing brace. It accepts only ext and crit.
func parseExtension(tail []byte) (Extension, error) {
	var extension Extension

	// The order is fixed: ext, then crit.
	if rest, found := bytes.CutPrefix(tail, []byte(`,"ext":`)); found {
		object, err := leadingValue(rest)
		if err != nil {
			return Extension{}, err
		}

		extension.object = string(object)
		tail = rest[len(object):]
	}

	if rest, found := bytes.CutPrefix(tail, []byte(`,"crit":`)); found {
		list, err := leadingValue(rest)
		if err != nil {
			return Extension{}, err
		}

		extension.critical = string(list)
		tail = rest[len(list):]
	}

	if string(tail) != "}" {
		return Extension{}, fmt.Errorf("%w: something else follows the listed members", errExtension)
	}

	return extension, extension.validate()
}

// leadingValue returns the object or array with which b begins, without a space
// in front of it.
func leadingValue(data []byte) ([]byte, error) {
	if len(data) == 0 || data[0] != '{' && data[0] != '[' {
		return nil, fmt.Errorf("%w: not an object or list", errExtension)
	}

	if strictjson.IsDeeper(data, strictjson.MaxDepth) {
		return nil, fmt.Errorf("%w: nested too deep", errExtension)
	}

	decoder := strictjson.Decoder(data)
	defer strictjson.Release(decoder)

	value, err := decoder.ReadValue()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errExtension, err)
	}

	return value, nil
}
