package signed

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// StatementFormat is the format of statements that every release reads: the one
// to write until a domain and its peers have agreed on a higher one.
const StatementFormat = 1

// A Salt is a registration's master salt. It is in the command and never leaves
// the domain; every disclosure's own salt is derived from it.
type Salt [32]byte

// A Change is one change of a registration's contents: the contents of a statement.
type Change struct {
	Issuer   spiffeid.TrustDomain
	RID      directory.RID
	Op       Op // put or end
	Epoch    uint64
	Revision uint64
	Prev     directory.Hash // of the registration's previous statement; zero for its first
	IssuedAt int64          // Unix seconds, as Since
	Since    int64          // first registered
	Leaf     uint64         // index of the statement's leaf in the ledger
	Agent    string         // this and the following fields are of a put alone
	Owner    directory.Identity
	Document directory.Document
	Salt     Salt

	directory.Provenance           // of a put alone, as the fields above
	Extension            Extension // of either
}

// A Disclosure is one member of a statement with its salt, as SD-JWT writes it
// (RFC 9901, 4.2): the base64url of ["SALT","NAME",VALUE].
type Disclosure struct {
	Object string // reg or doc
	Name   string
	Text   string
}

// Disclosures returns all members of c as disclosures: ours first, then the
// document's in written order.
func (c *Change) Disclosures() []Disclosure { return c.DisclosuresTo([]directory.Grant{{All: true}}) }

// DisclosuresTo returns those of the disclosures that any of the grants shows.
func (c *Change) DisclosuresTo(grants []directory.Grant) []Disclosure {
	if c.Op == OpEnd {
		return nil
	}

	members := c.Document.Members()
	provenance := c.Provenance.Members()

	// One allocation has room for all texts, because a leader makes them for every registration.
	size := len(c.Agent) + len(c.Owner.String())
	for _, m := range provenance {
		size += len(m.Name) + len(m.Value)
	}

	for _, m := range members {
		size += len(m.Name) + len(m.Value)
	}

	d := &discloser{grants: grants, mac: hmac.New(sha256.New, c.Salt[:])}
	d.into = make([]Disclosure, 0, 3+len(provenance)+len(members))
	d.text = make([]byte, 0, directory.B64.EncodedLen(size+disclosureFrame*cap(d.into)))
	d.disclose("reg", strictjson.Member{Name: "agent", Value: strictjson.AppendString(nil, c.Agent)})
	d.disclose("reg", strictjson.Member{Name: "owner", Value: strictjson.AppendString(nil, c.Owner.String())})
	d.disclose("reg", strictjson.Member{Name: "kind", Value: strictjson.AppendString(nil, string(c.Document.Kind()))})

	for _, m := range provenance {
		d.disclose("reg", m)
	}

	for _, m := range members {
		d.disclose("doc", m)
	}

	return d.into
}

// A discloser makes the disclosures of one statement, one after the other in the
// same memory: a leader does this for every registration.
type discloser struct {
	grants []directory.Grant
	mac    hash.Hash // keyed by the master salt
	into   []Disclosure
	json   []byte
	salt   [sha256.Size]byte
	text   []byte // of all of them, which into shows parts of
}

// disclosureFrame is about the size of a disclosure without its name and value: a salt,
// brackets, quotation marks, and escapes.
const disclosureFrame = 48

func (d *discloser) disclose(object string, member strictjson.Member) {
	if !slices.ContainsFunc(d.grants, func(g directory.Grant) bool { return g.Allows(object, member.Name) }) {
		return
	}

	// The prefix separates these salts from other uses of the master salt, and zero bytes separate the parts.
	d.json = append(d.json[:0], "adrec1\x00"...)
	d.json = append(append(append(d.json, object...), 0), member.Name...)
	d.mac.Reset()
	d.mac.Write(d.json)
	d.mac.Sum(d.salt[:0])

	d.json = append(d.json[:0], '[', '"')
	d.json = append(directory.B64.AppendEncode(d.json, d.salt[:16]), '"', ',')
	d.json = append(strictjson.AppendString(d.json, member.Name), ',')
	d.json = append(append(d.json, member.Value...), ']')
	from := len(d.text)
	d.text = directory.B64.AppendEncode(d.text, d.json)
	d.into = append(d.into, Disclosure{object, member.Name, strictjson.TextOf(d.text[from:])})
}

// Statement builds the payload of c in the given format. It is the same bytes on
// every member of the domain, and there is no other encoder of statements.
func Statement(format int, c *Change, ds []Disclosure) ([]byte, error) {
	return StatementOf(format, c, DigestsOf(ds))
}

// StatementOf is Statement of disclosures whose digests are known.
func StatementOf(format int, change *Change, digests Digests) ([]byte, error) {
	if format < 1 || format > newestFormat {
		return nil, &UnsupportedError{Structure: StructureStatement, Format: uint(max(0, format)), Newest: newestFormat}
	}

	data := make([]byte, 0, 512+2*(len(digests.Reg)+len(digests.Doc)))

	return append(change.Extension.Append(appendListed(data, uint(format), change, digests)), '}'), nil
}

// appendListed appends the members that the format of a statement lists, without a closing
// brace.
func appendListed(data []byte, format uint, change *Change, digests Digests) []byte {
	data = appendStatementPreamble(data, format, change)

	data = strictjson.AppendUint(data, "rev", change.Revision)
	if !change.Prev.IsZero() {
		data = strictjson.AppendText(data, "prev", change.Prev.String())
	}

	data = strconv.AppendInt(strictjson.AppendName(data, "iat"), change.IssuedAt, 10)
	data = strconv.AppendInt(strictjson.AppendName(data, "since"), change.Since, 10)
	data = strictjson.AppendUint(data, "log", change.Leaf)
	data = appendSD(strictjson.AppendName(data, "reg"), digests.Reg)
	data = appendSD(strictjson.AppendName(data, "doc"), digests.Doc)

	return appendLaterMembers(data, format)
}

// appendStatementPreamble appends the members with which a statement of every format begins.
func appendStatementPreamble(data []byte, format uint, change *Change) []byte {
	data = append(data, '{')
	data = strictjson.AppendUint(data, "v", 1)
	data = strictjson.AppendUint(data, "format", uint64(format))
	data = strictjson.AppendText(data, "iss", change.Issuer.IDString())
	data = strictjson.AppendText(data, "uid", change.RID.String())
	data = strictjson.AppendText(data, "op", string(change.Op))

	return strictjson.AppendUint(data, "epoch", change.Epoch)
}

// Digests are those of a statement's disclosures, SHA-256 each, one behind the
// other in the order of their text: of our own members and of the document's.
type Digests struct{ Reg, Doc []byte }

// DigestsOf returns the digests of disclosures.
func DigestsOf(ds []Disclosure) Digests {
	return Digests{digestsOf(ds, "reg"), digestsOf(ds, "doc")}
}

func digestsOf(ds []Disclosure, object string) []byte {
	var few [fewMembers]directory.Hash // on the stack, for nearly every statement

	hs := few[:0]
	for _, d := range ds {
		if d.Object == object {
			hs = append(hs, directory.HashOf(strictjson.BytesOf(d.Text)))
		}
	}

	return inOrder(hs)
}

// inOrder returns hashes one behind the other, in the order of their text.
func inOrder(hs []directory.Hash) []byte {
	type written struct {
		text [hashText]byte
		at   int
	}

	var few [fewMembers]written

	order := few[:0]
	for i := range hs {
		order = append(order, written{at: i})
		directory.B64.Encode(order[i].text[:], hs[i][:])
	}

	// The order of base64 text is not that of the bytes.
	slices.SortFunc(order, func(a, b written) int { return bytes.Compare(a.text[:], b.text[:]) })

	all := make([]byte, 0, len(hs)*sha256.Size)
	for _, w := range order {
		all = append(all, hs[w.at][:]...)
	}

	return all
}

// fewMembers is the number of members that nearly no statement exceeds.
const fewMembers = 16

// hashText is how long a hash is as text.
const hashText = (sha256.Size*8 + 5) / 6

// appendSD appends {"_sd":[…]} with digests that are in order, or {} where there
// are none.
func appendSD(data, digests []byte) []byte {
	if len(digests) == 0 {
		return append(data, '{', '}')
	}

	data = append(data, `{"_sd":[`...)
	for h := range slices.Chunk(digests, sha256.Size) {
		data = append(directory.B64.AppendEncode(append(data, '"'), h), '"', ',')
	}

	return append(data[:len(data)-1], ']', '}')
}

// Disclosed returns the texts of those disclosures that a grant allows, in
// order, and their hash m.
func Disclosed(ds []Disclosure, g directory.Grant) ([]string, directory.Hash) {
	texts := DisclosedTexts(ds, g)
	return texts, HashDisclosures(texts)
}

// DisclosedTexts is Disclosed without the hash.
func DisclosedTexts(ds []Disclosure, grant directory.Grant) []string {
	texts := make([]string, 0, len(ds))
	for _, d := range ds {
		if grant.Allows(d.Object, d.Name) {
			texts = append(texts, d.Text)
		}
	}

	return texts
}

// HashDisclosures returns m: the SHA-256 over disclosures sorted as text and
// joined by ~.
func HashDisclosures(texts []string) directory.Hash {
	// The caller's texts stay in the order of the record.
	texts = slices.Clone(texts)
	slices.Sort(texts)

	room := hashRooms.Get().(*[]byte)
	defer hashRooms.Put(room)

	data := (*room)[:0]
	for i, t := range texts {
		if i > 0 {
			data = append(data, '~')
		}

		data = append(data, t...)
	}

	*room = data

	return directory.HashOf(data)
}

// hashRooms are buffers of HashDisclosures, which grow to a record's size.
var hashRooms = sync.Pool{New: func() any { return new([]byte) }}

var errStatement = errors.New("not a canonical statement")

// A Claims is a statement as its reader sees it: hashes in place of members.
type Claims struct {
	Format    uint
	Issuer    spiffeid.TrustDomain
	RID       directory.RID
	Op        Op
	Epoch     uint64
	Revision  uint64
	Prev      directory.Hash
	IssuedAt  int64
	Since     int64
	Leaf      uint64
	Extension Extension
	reg, doc  hashSet
}

// BroughtBy returns the member of the statement's domain that brought the change to the leader, by the
// word of the domain; zero if the statement names none, as that of an end at the deadline.
func (c *Claims) BroughtBy() spiffeid.ID {
	var ext struct {
		From string `json:"from"`
	}

	object := c.Extension.Object()
	if object == nil || json.Unmarshal(object, &ext) != nil {
		return spiffeid.ID{}
	}

	member, err := spiffeid.FromString(ext.From)
	if err != nil || !member.MemberOf(c.Issuer) {
		return spiffeid.ID{}
	}

	return member
}

// ParseStatement is Dialect.ParseStatement with the dialect of this build.
func ParseStatement(payload []byte) (*Claims, error) { return OwnDialect().ParseStatement(payload) }

// ParseStatement reads a statement's payload and refuses any bytes that no writer
// makes. With an error that is ErrUnsupported come claims that have their Format,
// Issuer, RID, Op and Epoch alone.
func (d Dialect) ParseStatement(payload []byte) (*Claims, error) {
	room := statementRooms.Get().(*[]byte)
	defer statementRooms.Put(room)

	in := scan{rest: payload}

	format, change, err := in.statementPreamble(payload, room)
	if err != nil {
		return nil, err
	}

	bare := &Claims{Format: format, Issuer: change.Issuer, RID: change.RID, Op: change.Op, Epoch: change.Epoch}
	if err := d.readable(StructureStatement, format, payload); errors.Is(err, ErrUnsupported) {
		return bare, err
	} else if err != nil {
		return nil, err
	}

	change.Revision = in.member(`,"rev":`)
	if in.has(`,"prev":"`) {
		change.Prev = in.hash()
		in.text(`"`)
	}

	change.IssuedAt = int64(in.member(`,"iat":`))
	change.Since = int64(in.member(`,"since":`))
	change.Leaf = in.member(`,"log":`)

	reg, doc := in.digests(`,"reg":`), in.digests(`,"doc":`)
	if in.bad {
		return nil, errStatement
	}

	// The scan accepts several encodings of a value; the writer has one.
	*room = appendListed((*room)[:0], format, &change, Digests{reg, doc})

	extension, err := ExtensionBehind(*room, payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStatement, err)
	}

	claims := &Claims{
		Format: format, Issuer: change.Issuer, RID: change.RID, Op: change.Op, Epoch: change.Epoch,
		Revision: change.Revision, Prev: change.Prev,
		IssuedAt: change.IssuedAt, Since: change.Since, Leaf: change.Leaf, Extension: extension, reg: set(reg),
		doc: set(doc),
	}
	if (change.Op == OpEnd) != (len(reg)+len(doc) == 0) {
		return nil, errStatement
	}

	for _, h := range claims.reg {
		if _, twice := claims.doc.find(h); twice { // RFC 9901, 7.1: no digest occurs twice
			return nil, errStatement
		}
	}

	// It is judged last, so that a malformed statement is the sender's fault in any dialect.
	if err := d.Supports(StructureStatement, format, extension); err != nil {
		return bare, err
	}

	return claims, nil
}

// statementPreamble reads the members with which a statement of every format begins. It uses room
// to write them again.
func (s *scan) statementPreamble(payload []byte, room *[]byte) (format uint, change Change, err error) {
	s.text(`{"v":1,"format":`)
	format = s.format()

	if change.Issuer, err = spiffeid.TrustDomainFromString(s.between(`,"iss":"`)); err != nil {
		return 0, change, errStatement
	}

	if change.RID, err = directory.ParseRID(s.between(`,"uid":"`)); err != nil {
		return 0, change, errStatement
	}

	change.Op = Op(s.between(`,"op":"`))
	change.Epoch = s.member(`,"epoch":`)

	// The scan accepts several encodings of a value; the writer has one.
	*room = appendStatementPreamble((*room)[:0], format, &change)
	if s.bad || format == 0 || change.Op != OpPut && change.Op != OpEnd || !bytes.HasPrefix(payload, *room) {
		return 0, change, errStatement
	}

	return format, change, nil
}

// statementRooms are buffers of ParseStatement, which grow to a statement's size.
var statementRooms = sync.Pool{New: func() any { return new([]byte) }}

// A scan reads the writer's output, from its beginning to its end. After a mismatch it stays
// bad and finds nothing more.
type scan struct {
	rest []byte
	bad  bool
}

// has skips a text if it comes next.
func (s *scan) has(text string) bool {
	rest, ok := bytes.CutPrefix(s.rest, []byte(text))
	s.rest = rest

	return ok
}

// text skips a text that must come next.
func (s *scan) text(text string) { s.bad = !s.has(text) || s.bad }

// between returns the bytes between a text and the next quotation mark.
func (s *scan) between(text string) string {
	s.text(text)
	found, rest, ok := bytes.Cut(s.rest, []byte(`"`))
	s.rest, s.bad = rest, s.bad || !ok

	return string(found)
}

func (s *scan) member(text string) uint64 {
	s.text(text)
	return s.number()
}

func (s *scan) number() uint64 {
	n := 0
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' {
		n++
	}

	v, err := strconv.ParseUint(string(s.rest[:n]), 10, 64)
	s.rest, s.bad = s.rest[n:], s.bad || err != nil

	return v
}

// format reads the number of a format; 0 if it is out of range.
func (s *scan) format() uint {
	format := s.number()
	if format > math.MaxUint32 {
		s.bad = true
		return 0
	}

	return uint(format)
}

func (s *scan) hash() (h directory.Hash) {
	if len(s.rest) < hashText {
		s.bad = true
		return h
	}

	_, err := directory.B64.Decode(h[:], s.rest[:hashText])
	s.rest, s.bad = s.rest[hashText:], s.bad || err != nil

	return h
}

// digests reads {"_sd":[…]}, whose digests must come in the order of their text and
// each once; or {}.
func (s *scan) digests(text string) (all []byte) {
	if s.text(text); !s.has(`{"_sd":[`) {
		s.text(`{}`)
		return nil
	}

	for last := []byte(nil); !s.bad; {
		s.text(`"`)
		written := s.rest[:min(len(s.rest), hashText)]
		h := s.hash()
		s.bad = s.bad || bytes.Compare(last, written) >= 0
		all, last = append(all, h[:]...), written

		if s.text(`"`); s.has(`]}`) {
			break
		}

		s.text(`,`)
	}

	return all
}

// A hashSet has hashes in ascending order, each once. A map takes longer to make for the few
// hashes of a statement.
type hashSet []directory.Hash

func set(digests []byte) hashSet {
	if len(digests) == 0 {
		return nil
	}

	all := make(hashSet, 0, len(digests)/sha256.Size)
	for h := range slices.Chunk(digests, sha256.Size) {
		all = append(all, directory.Hash(h))
	}

	slices.SortFunc(all, compareHashes)

	return all
}

// find returns the place of a hash in the set.
func (s hashSet) find(h directory.Hash) (at int, found bool) {
	return slices.BinarySearchFunc(s, h, compareHashes)
}

func compareHashes(a, b directory.Hash) int { return bytes.Compare(a[:], b[:]) }
