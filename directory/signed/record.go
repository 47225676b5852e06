package signed

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Record is an SD-JWT (RFC 9901): a signed statement and the disclosures that
// its holder may see. Its name is (H, M).
type Record struct {
	JWS         string // compact
	Disclosures []string
}

// MaxRecord bounds a record's text: a document's disclosures in base64 and the
// statement.
const MaxRecord = 2*directory.MaxDocument + 32<<10

var errRecord = errors.New("not a record")

// ParseRecord splits the compact serialization JWS~disclosure~…~. It checks
// nothing but the form.
func ParseRecord(s string) (Record, error) {
	if len(s) > MaxRecord {
		return Record{}, fmt.Errorf("%w: it has %d bytes; at most %d are allowed", errRecord, len(s), MaxRecord)
	}

	parts := strings.Split(s, "~")
	if len(parts) < 2 || parts[len(parts)-1] != "" || parts[0] == "" {
		return Record{}, errRecord
	}

	return Record{parts[0], parts[1 : len(parts)-1]}, nil
}

// String returns the compact serialization.
func (r Record) String() string {
	size := len(r.JWS) + 1
	for _, d := range r.Disclosures {
		size += len(d) + 1
	}

	var out strings.Builder
	out.Grow(size)
	out.WriteString(r.JWS)
	out.WriteByte('~')

	for _, d := range r.Disclosures {
		out.WriteString(d)
		out.WriteByte('~')
	}

	return out.String()
}

func (r Record) payload() ([]byte, error) {
	// The dots stand in for parts that a malformed JWS lacks.
	payload, err := directory.B64.DecodeString(strings.SplitN(r.JWS+"..", ".", 3)[1])
	if err != nil {
		return nil, fmt.Errorf("%w: its payload is not base64url", errRecord)
	}

	return payload, nil
}

// Claims reads the statement, whose signature is the caller's to check.
func (r Record) Claims() (*Claims, error) {
	payload, err := r.payload()
	if err != nil {
		return nil, err
	}

	return ParseStatement(payload)
}

// RedactRecord returns a record, in its text form, without the disclosures that
// a Redaction doesn't show. The statement and its signature stay as they are.
func RedactRecord(text string, sight directory.Redaction) (string, error) {
	if sight.ShowsAll() {
		return text, nil
	}

	r, err := ParseRecord(text)
	if err != nil {
		return "", err
	}

	payload, err := r.payload()
	if err != nil {
		return "", err
	}

	contents, err := OpenRecord(payload, r.Disclosures)
	if err != nil {
		return "", err
	}

	kind := contents.Document.Kind()
	r.Disclosures = slices.DeleteFunc(r.Disclosures, func(text string) bool {
		member, err := openDisclosure(nil, text)

		// A name may be in reg and in doc; the hash decides which one is disclosed.
		object := "doc"
		if _, ours := contents.reg.find(directory.HashOf(strictjson.BytesOf(text))); ours {
			object = "reg"
		}

		return err != nil || !sight.Allows(kind, object, member.Name)
	})

	return r.String(), nil
}

// Contents is the disclosed contents of a record.
type Contents struct {
	*Claims
	H, M       directory.Hash
	Agent      string
	Owner      directory.Identity   // zero if it is withheld
	Provenance directory.Provenance // zero if the owner is withheld
	Document   directory.Document
	Redacted   bool // members are withheld
}

// OpenRecord is the record gate (federation.md): the disclosures belong to the
// statement, are strict JSON within limits, and name no reserved member. A
// statement's signature and hash are for the caller to compare; each is enough.
// With an error that is ErrUnsupported come contents that have the claims that
// ParseStatement returns then; nothing was checked of the disclosures.
func OpenRecord(payload []byte, disclosures []string) (*Contents, error) {
	return OwnDialect().OpenNamed(payload, disclosures, directory.HashOf(payload), HashDisclosures(disclosures))
}

// OpenNamed is OpenRecord, with the dialect d, of a record whose hashes the caller has compared
// with those in the reference to it.
func (d Dialect) OpenNamed(payload []byte, disclosures []string, h, m directory.Hash) (*Contents, error) {
	claims, err := d.ParseStatement(payload)

	contents := &Contents{Claims: claims, H: h, M: m}
	if errors.Is(err, ErrUnsupported) {
		return contents, err
	}

	if err != nil {
		return nil, err
	}

	if contents.Op == OpEnd {
		if len(disclosures) > 0 {
			return nil, fmt.Errorf("%w: an end statement discloses nothing", errRecord)
		}

		return contents, nil
	}

	room := openingRooms.Get().(*[]byte)
	defer openingRooms.Put(room)

	o := newOpening(contents, disclosures, *room)
	defer func() { *room = o.room[:0] }() // nothing of contents is a part of it

	for _, text := range disclosures {
		if err := o.take(text); err != nil {
			return nil, err
		}
	}

	if contents.Agent == "" || o.kind == "" {
		return nil, fmt.Errorf("%w: it withholds the agent's name or kind", errRecord)
	}

	if contents.Owner.IsZero() && !contents.Provenance.IsZero() {
		return nil, fmt.Errorf("%w: it withholds the owner and shows who registered for them", errRecord)
	}

	if contents.Document, err = directory.JoinDocument(o.kind, o.members); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}

	// Each disclosure has a digest of its own, so fewer disclosures than digests leave members out.
	contents.Redacted = len(disclosures) < len(claims.reg)+len(claims.doc)

	return contents, nil
}

// An opening is a record whose disclosures are being taken, one by one.
type opening struct {
	c         *Contents
	kind      directory.Kind
	members   []strictjson.Member // parts of room
	size      int
	room      []byte // for all disclosures, decoded
	reg, doc  []bool // the digests of the statement whose disclosures were taken
	disclosed map[string]bool
}

func newOpening(contents *Contents, disclosures []string, room []byte) *opening {
	size := 0
	for _, text := range disclosures {
		size += directory.B64.DecodedLen(len(text))
	}

	return &opening{c: contents, room: slices.Grow(room[:0], size), reg: make([]bool, len(contents.reg)),
		doc: make([]bool, len(contents.doc)), disclosed: make(map[string]bool, 3),
		members: make([]strictjson.Member, 0, len(disclosures))}
}

// openingRooms are rooms of openings, which grow to a record's size.
var openingRooms = sync.Pool{New: func() any { return new([]byte) }}

// take adds the member of one disclosure.
func (o *opening) take(text string) error {
	member, err := openDisclosure(&o.room, text)
	if err != nil {
		return err
	}

	hash := directory.HashOf(strictjson.BytesOf(text))
	inReg, ours := o.c.reg.find(hash)

	inDoc, theirs := o.c.doc.find(hash)
	switch {
	case ours && o.reg[inReg] || theirs && o.doc[inDoc]:
		return fmt.Errorf("%w: a disclosure occurs twice", errRecord)
	case !ours && !theirs:
		return fmt.Errorf("%w: the statement holds no hash of the disclosure %q", errRecord, member.Name)
	case ours && o.disclosed[member.Name]:
		// A holder could otherwise choose among two owners.
		return fmt.Errorf("%w: %s is disclosed twice", errRecord, member.Name)
	}

	// A record must not carry a larger document than a registration may have.
	if o.size += len(member.Name) + len(member.Value); o.size > directory.MaxDocument+maxReg {
		return fmt.Errorf("%w: its members have over %d bytes", errRecord, directory.MaxDocument)
	}

	if ours {
		o.reg[inReg] = true
		o.disclosed[member.Name] = true

		return o.c.setReg(member, &o.kind)
	}

	o.doc[inDoc] = true
	o.members = append(o.members, member)

	return nil
}

// maxReg bounds the members of reg in bytes: ours, escaped, and those that later
// releases have.
const maxReg = 2*(directory.MaxName+4*directory.MaxIdentity+directory.MaxSource) + 4<<10

// setReg takes a member of reg. A name that this release doesn't know is ignored:
// later ones have others (federation.md, "Formats over time").
func (c *Contents) setReg(member strictjson.Member, kind *directory.Kind) error {
	if !directory.IsRegMember(member.Name) {
		return checkUnknown(member)
	}

	s, err := textOf(member.Value)
	if err != nil {
		return fmt.Errorf("%w: %s is not a string", errRecord, member.Name)
	}

	switch member.Name {
	case "agent":
		// A peer's name in another form would be a second text of one name.
		if c.Agent, err = directory.ParseName(s); err == nil && c.Agent != s {
			err = errors.New("not in NFC")
		}

		if s == c.RID.String() { // a registration's own rid is its name where none was given
			c.Agent, err = s, nil
		}
	case directory.MemberOwner:
		c.Owner, err = directory.ParseIdentity(s)
	case "kind":
		*kind = directory.Kind(s)
		if s == "" || len(s) > 32 || strings.ContainsFunc(s, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
		}) {
			err = errors.New("not a kind")
		}
	default:
		err = c.Provenance.SetMember(member.Name, s)
	}

	if err != nil {
		return fmt.Errorf("%w: %s: %w", errRecord, member.Name, err)
	}

	return nil
}

// textOf decodes a JSON string.
func textOf(value []byte) (s string, err error) {
	if n := len(value) - 1; n > 0 && value[0] == '"' && value[n] == '"' {
		// Nearly all are written as they are. The text outlives the record, so it is copied.
		plain := strictjson.TextOf(value[1:n])
		if strictjson.PlainPrefix(plain) == len(plain) && utf8.ValidString(plain) {
			return strings.Clone(plain), nil
		}
	}

	err = json.Unmarshal(value, &s)

	return s, err
}

// checkUnknown refuses a member of reg whose value is not strict JSON, or whose
// name is SD-JWT's own (RFC 9901, 4.2.1).
func checkUnknown(member strictjson.Member) error {
	if strictjson.IsDeeper(member.Value, strictjson.MaxDepth) || !jsontext.Value(member.Value).IsValid() {
		return fmt.Errorf("%w: %.64q in reg is not strict JSON", errRecord, member.Name)
	}

	if member.Name == "_sd" || member.Name == "..." {
		return fmt.Errorf("%w: %q is reserved", errRecord, member.Name)
	}

	return nil
}

// openDisclosure decodes ["SALT","NAME",VALUE]. The member shares the memory of room, if
// there is one, to which the decoded text is appended. The caller checks that the value is
// strict JSON, and its depth, for all disclosures at once.
func openDisclosure(room *[]byte, text string) (strictjson.Member, error) {
	if room == nil {
		room = new([]byte)
	}

	begin := len(*room)
	all, err := directory.B64.AppendDecode(*room, strictjson.BytesOf(text))

	data := all[begin:len(all):len(all)]
	*room = all

	if err != nil || directory.B64.EncodedLen(len(data)) != len(text) { // the decoder skips line ends
		return strictjson.Member{}, fmt.Errorf("%w: a disclosure is not base64url", errRecord)
	}

	if m, ok := plainDisclosure(data); ok {
		return m, nil
	}

	var parts []jsontext.Value
	if err := json.Unmarshal(data, &parts); err != nil || len(parts) != 3 {
		return strictjson.Member{}, fmt.Errorf("%w: a disclosure is not [salt, name, value]", errRecord)
	}

	var salt, name string
	if json.Unmarshal(parts[0], &salt) != nil || json.Unmarshal(parts[1], &name) != nil {
		return strictjson.Member{}, fmt.Errorf("%w: a disclosure is not [salt, name, value]", errRecord)
	}

	if raw, err := directory.B64.DecodeString(salt); err != nil || len(raw) != saltSize || len(salt) != saltText {
		return strictjson.Member{}, fmt.Errorf("%w: a disclosure's salt is not 16 bytes", errRecord)
	}

	return strictjson.Member{Name: name, Value: parts[2]}, nil
}

// plainDisclosure takes a disclosure apart that is written as a domain of this kind
// writes it, without white space, and whose name needs no escapes. That is nearly
// every one, and a parser takes longer for each than all else that is done with it.
func plainDisclosure(data []byte) (strictjson.Member, bool) {
	const name = len(`["`) + saltText + len(`","`)
	if len(data) < name || string(data[:2]) != `["` || string(data[name-3:name]) != `","` || data[len(data)-1] != ']' {
		return strictjson.Member{}, false
	}

	var salt [saltSize]byte
	if n, err := directory.B64.Decode(salt[:], data[2:2+saltText]); err != nil || n < saltSize {
		return strictjson.Member{}, false
	}

	rest := data[name : len(data)-1]
	n := strictjson.PlainPrefix(strictjson.TextOf(rest))

	value, ok := bytes.CutPrefix(rest[n:], []byte(`",`))
	if !ok || len(value) == 0 || value[0] <= ' ' || value[len(value)-1] <= ' ' {
		return strictjson.Member{}, false
	}

	return strictjson.Member{Name: strictjson.TextOf(rest[:n]), Value: value}, true
}

// The size of a disclosure's salt, and of its text.
const (
	saltSize = 16
	saltText = (saltSize*8 + 5) / 6
)
