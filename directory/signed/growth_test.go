package signed_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// later is what a later release says beside the listed members: in any spacing,
// with names that this one doesn't know.
const later = `{"seen": {"by":[1, 2]},  "colour":"blue"}`

func extension(t testing.TB, object string, critical ...string) signed.Extension {
	t.Helper()

	e, err := signed.NewExtension([]byte(object), critical...)
	must(t, err)

	return e
}

// tailOf returns what an extension adds to a structure, before the closing brace.
func tailOf(e signed.Extension) (tail []byte) {
	if !e.IsZero() {
		tail = append([]byte(`,"ext":`), e.Object()...)
	}

	for i, name := range e.Critical() {
		separator := `,`
		if i == 0 {
			separator = `,"crit":[`
		}

		tail = strictjson.AppendString(append(tail, separator...), name)
	}

	if len(e.Critical()) > 0 {
		tail = append(tail, ']')
	}

	return tail
}

// A grown is one structure, how it is written with an extension and read again.
type grown struct {
	name  string
	write func(signed.Extension) []byte
	read  func([]byte) (signed.Extension, error)
	crit  bool // it may have crit
}

func structures(t testing.TB) []grown {
	return []grown{
		{"statement", func(e signed.Extension) []byte {
			c := put(t)
			c.Extension = e

			return statement(t, c)
		}, readStatement, true},
		{"end statement", func(e signed.Extension) []byte {
			return statement(t, &signed.Change{
				Issuer: alpha, RID: rid(1), Op: signed.OpEnd, Epoch: noon, Revision: 409, Extension: e,
			})
		}, readStatement, true},
		{"page", func(e signed.Extension) []byte {
			p := page()
			p.Extension = e

			return p.Payload()
		}, func(payload []byte) (signed.Extension, error) {
			p, err := signed.ParsePage(payload)
			if p == nil {
				return signed.Extension{}, err
			}

			return p.Extension, err
		}, true},
		{"head", func(e signed.Extension) []byte {
			h := head()
			h.Extension = e

			return h.Payload()
		}, func(payload []byte) (signed.Extension, error) {
			h, err := signed.OwnDialect().ParseHead(payload)
			if h == nil {
				return signed.Extension{}, err
			}

			return h.Extension, err
		}, true},
		{"key document", func(e signed.Extension) []byte {
			k := keyDocument(t)
			k.Extension = e

			return k.Payload()
		}, func(payload []byte) (signed.Extension, error) {
			k, err := signed.ParseKeyDocument(payload)
			if k == nil {
				return signed.Extension{}, err
			}

			return k.Extension, err
		}, false},
	}
}

func readStatement(payload []byte) (signed.Extension, error) {
	c, err := signed.ParseStatement(payload)
	if c == nil {
		return signed.Extension{}, err
	}

	return c.Extension, err
}

func head() *signed.Head {
	return &signed.Head{
		Format: 1, Issuer: alpha, Epoch: noon, Tip: 410, At: 412, Size: 99,
		Root: hash("root"), Keys: hash("keys"), IssuedAt: noon,
	}
}

// Requirement: FORM-001
func TestWhatALaterReleaseAddsIsIgnoredAndKept(t *testing.T) {
	for _, s := range structures(t) {
		want := extension(t, later)

		got, err := s.read(s.write(want))
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v", s.name, got, err)
		}

		bare, err := s.read(s.write(signed.Extension{}))
		if err != nil || !bare.IsZero() {
			t.Errorf("%s without an extension: got %+v, %v", s.name, bare, err)
		}
	}

	golden(t, "statement-1-put-ext.json", structures(t)[0].write(extension(t, later)))
	golden(t, "page-ext.json", structures(t)[2].write(extension(t, later)))
	golden(t, "head-ext.json", structures(t)[3].write(extension(t, later)))
}

// Requirement: FORM-001
func TestACriticalNameThatIsUnknownIsUnsupportedAndNotMalformed(t *testing.T) {
	for _, s := range structures(t) {
		payload := s.write(extension(t, later, "colour"))
		_, err := s.read(payload)

		var unsupported *signed.UnsupportedError
		switch is := errors.As(err, &unsupported); {
		case !s.crit && (err == nil || is):
			t.Errorf("%s with crit: got %v, want it refused as malformed", s.name, err)
		case s.crit && (!is || !errors.Is(err, signed.ErrUnsupported) || unsupported.Critical != "colour"):
			t.Errorf("%s: got %v, want it unsupported", s.name, err)
		}
	}

	golden(t, "statement-1-put-crit.json", structures(t)[0].write(extension(t, later, "colour")))
	golden(t, "page-crit.json", structures(t)[2].write(extension(t, later, "colour")))
	golden(t, "head-crit.json", structures(t)[3].write(extension(t, later, "colour")))

	knows := signed.Dialect{Critical: []string{"colour"}}
	if _, err := knows.ParseStatement(structures(t)[0].write(extension(t, later, "colour"))); err != nil {
		t.Errorf("a reader that knows the name: %v", err)
	}

	if _, err := knows.ParsePage(structures(t)[2].write(extension(t, later, "colour", "seen"))); err == nil {
		t.Error("a reader takes a page of which it knows one critical name of two")
	}
}

// Requirement: FORM-001
func TestExtensionsThatNoWriterMakesAreMalformed(t *testing.T) {
	for name, tail := range map[string]string{
		"an empty ext":           `,"ext":{}`,
		"an empty ext, spaced":   `,"ext":{ }`,
		"a null ext":             `,"ext":null`,
		"a list as ext":          `,"ext":[1]`,
		"a string as ext":        `,"ext":"x"`,
		"a space before ext":     `, "ext":{"a":1}`,
		"a space before its {":   `,"ext": {"a":1}`,
		"a space behind its }":   `,"ext":{"a":1} `,
		"ext twice":              `,"ext":{"a":1},"ext":{"b":1}`,
		"a name twice":           `,"ext":{"a":1,"a":2}`,
		"a name twice, escaped":  `,"ext":{"a":1,"\u0061":2}`,
		"a name twice within":    `,"ext":{"a":{"b":1,"b":2}}`,
		"invalid UTF-8":          ",\"ext\":{\"a\":\"\xff\"}",
		"nine deep":              `,"ext":{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`,
		"over 4 KiB":             `,"ext":{"a":"` + strings.Repeat("x", 4<<10) + `"}`,
		"ext that does not end":  `,"ext":{"a":1`,
		"crit alone":             `,"crit":["a"]`,
		"crit first":             `,"crit":["a"],"ext":{"a":1}`,
		"an empty crit":          `,"ext":{"a":1},"crit":[]`,
		"a null crit":            `,"ext":{"a":1},"crit":null`,
		"a name that ext lacks":  `,"ext":{"a":1},"crit":["b"]`,
		"a crit name twice":      `,"ext":{"a":1},"crit":["a","a"]`,
		"a crit name escaped":    `,"ext":{"a":1},"crit":["\u0061"]`,
		"a spaced crit":          `,"ext":{"a":1,"b":1},"crit":["a", "b"]`,
		"a number in crit":       `,"ext":{"a":1},"crit":[1]`,
		"another member":         `,"ext":{"a":1},"more":1`,
		"another member instead": `,"more":1`,
	} {
		for _, s := range structures(t) {
			bare := bytes.TrimSuffix(s.write(signed.Extension{}), []byte("}"))

			_, err := s.read(append(append(bare, tail...), '}'))
			if err == nil || errors.Is(err, signed.ErrUnsupported) {
				t.Errorf("%s with %s: got %v, want it malformed", s.name, name, err)
			}
		}
	}

	// At the limits it is taken.
	for _, object := range []string{
		`{"a":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `}`,
		`{"a":"` + strings.Repeat("x", 4<<10-8) + `"}`,
	} {
		for _, s := range structures(t) {
			if _, err := s.read(s.write(extension(t, object))); err != nil {
				t.Errorf("%s with an ext of %d bytes: %v", s.name, len(object), err)
			}
		}
	}

	for _, object := range []string{"", "{}", "[]", `{"a":1,"a":1}`, ` {"a":1}`} {
		if _, err := signed.NewExtension([]byte(object), "a"); err == nil {
			t.Errorf("an extension of %q is made", object)
		}
	}
}

// What a format says up to the epoch is the same in each, so that the origin of
// what can't be read yet is known.
//
// Requirement: FORM-001
func TestAFormatThatIsUnknownIsUnsupportedAndItsPreambleIsRead(t *testing.T) {
	statement := golden99(t, "statement-1-put.json")
	page := golden99(t, "page.json")
	head := golden99(t, "head.json")

	claims, err := signed.ParseStatement(statement)

	want := &signed.Claims{Format: 99, Issuer: alpha, RID: rid(1), Op: signed.OpPut, Epoch: noon}
	if !errors.Is(err, signed.ErrUnsupported) || !reflect.DeepEqual(claims, want) {
		t.Errorf("got %+v, %v", claims, err)
	}

	p, err := signed.ParsePage(page)
	if !errors.Is(err, signed.ErrUnsupported) ||
		!reflect.DeepEqual(p, &signed.Page{Format: 99, Issuer: alpha, Epoch: noon}) {
		t.Errorf("got %+v, %v", p, err)
	}

	h, err := signed.OwnDialect().ParseHead(head)
	if !errors.Is(err, signed.ErrUnsupported) || *h != (signed.Head{Format: 99, Issuer: alpha, Epoch: noon}) {
		t.Errorf("got %+v, %v", h, err)
	}

	var unsupported *signed.UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.Structure != signed.StructureHead || unsupported.Format != 99 {
		t.Errorf("got %+v", unsupported)
	}

	if !strings.Contains(err.Error(), "99") || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("the error does not say what to do: %v", err)
	}

	if _, err := signed.Statement(99, put(t), nil); !errors.Is(err, signed.ErrUnsupported) {
		t.Errorf("a statement of format 99 is written: %v", err)
	}
}

// golden99 returns a golden file as format 99 would have it.
func golden99(t *testing.T, name string) []byte {
	t.Helper()

	b, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, err)

	number := `"v":1,"iss"`
	if strings.HasPrefix(name, "statement") {
		number = `"format":1,`
	}

	newer := bytes.Replace(b, []byte(number), []byte(strings.Replace(number, "1", "99", 1)), 1)

	return append(bytes.TrimSuffix(newer, []byte("}")), `,"more":[{"x" : 1}]}`...)
}

// Requirement: FORM-001
func TestWhatIsNoJSONIsMalformedInEveryFormat(t *testing.T) {
	read := map[string]func([]byte) error{
		"statement-1-put.json": func(b []byte) error { _, err := signed.ParseStatement(b); return err },
		"page.json":            func(b []byte) error { _, err := signed.ParsePage(b); return err },
		"head.json":            func(b []byte) error { _, err := signed.OwnDialect().ParseHead(b); return err },
	}

	for name, parse := range read {
		good := string(golden99(t, name))
		if err := parse([]byte(good)); !errors.Is(err, signed.ErrUnsupported) {
			t.Fatal(err)
		}

		for _, bad := range []string{
			good[:len(good)-1], good + " ]", good + "x", strings.Replace(good, `"more"`, `"iss"`, 1),
			strings.Replace(good, `"x" : 1`, `"x":1,"x":2`, 1), strings.Replace(good, "99", "099", 1),
			strings.Replace(good, "99", "0", 1), strings.Replace(good, "99", "-1", 1),
			strings.Replace(good, "99", "99999999999", 1), strings.Replace(good, "{", "{ ", 1),
			strings.Replace(good, "spiffe://", "", 1),
			strings.Replace(good, `"x" : 1`, `"x":`+strings.Repeat("[", 64)+strings.Repeat("]", 64), 1),
		} {
			if err := parse([]byte(bad)); err == nil || errors.Is(err, signed.ErrUnsupported) {
				t.Errorf("%s: got %v, want it malformed: %s", name, err, bad)
			}
		}
	}
}

// Requirement: FORM-001
func TestStoresTellDialectsApart(t *testing.T) {
	texts := map[string]bool{}

	for _, d := range []signed.Dialect{
		{}, {Formats: signed.Formats{"page": {1, 2}}}, {Critical: []string{"a"}}, {Critical: []string{"a", "b"}},
	} {
		texts[d.String()] = true
	}

	if len(texts) != 4 {
		t.Errorf("got %v", texts)
	}

	same := signed.Dialect{Formats: signed.Formats{"page": {1}}, Critical: []string{"b", "a", "b"}}
	if !texts[same.String()] {
		t.Errorf("%s is another dialect than one that reads the same", same)
	}
}

// Requirement: FORM-002
func TestKeyDocumentsNameFormatsAndCosigningKeys(t *testing.T) {
	k := keyDocument(t)
	k.Formats = signed.Formats{"statement": {1, 2}, "page": {1, 3}, "of a later release": {1, 2}}
	k.Keys[1].Cosign = publicKey(t, strings.Repeat("03", 32))
	k.Extension = extension(t, later)
	golden(t, "keys-grown.json", k.Payload())

	back, err := signed.ParseKeyDocument(k.Payload())
	if err != nil || !reflect.DeepEqual(back, k) {
		t.Errorf("got %+v, %v", back, err)
	}

	good := string(k.Payload())
	for name, bad := range map[string]string{
		"formats in another order": strings.Replace(good, `"page":[1,3],"statement":[1,2]`,
			`"statement":[1,2],"page":[1,3]`, 1),
		"formats behind keys":     moved(good),
		"a structure in format 1": strings.Replace(good, `"page":[1,3]`, `"page":[1]`, 1),
		"formats without 1":       strings.Replace(good, `"page":[1,3]`, `"page":[3]`, 1),
		"formats out of order":    strings.Replace(good, `"page":[1,3]`, `"page":[1,3,2]`, 1),
		"no formats": strings.Replace(string(keyDocument(t).Payload()), `,"keys"`,
			`,"formats":{},"keys"`, 1),
		"an empty cosigning key": strings.Replace(string(keyDocument(t).Payload()), `,"attestations"`,
			`,"cosign":"","attestations"`, 1),
		"a short cosigning key": strings.Replace(string(keyDocument(t).Payload()), `,"attestations"`,
			`,"cosign":"AA","attestations"`, 1),
		"another version": strings.Replace(good, `"v":1`, `"v":2`, 1),
	} {
		_, err := signed.ParseKeyDocument([]byte(bad))
		if bad == good || err == nil || errors.Is(err, signed.ErrUnsupported) {
			t.Errorf("%s: got %v, want it malformed", name, err)
		}
	}
}

// moved puts formats behind keys.
func moved(document string) string {
	from := strings.Index(document, `,"formats"`)
	to := strings.Index(document, `,"keys"`)
	formats := document[from:to]
	rest := document[:from] + document[to:]

	return strings.Replace(rest, `,"ext"`, formats+`,"ext"`, 1)
}

// byTool returns the change of a registration that a tool made for its owner and
// an operator moved then.
func byTool(t testing.TB) *signed.Change {
	c := put(t)
	c.Provenance = directory.Provenance{
		Registrant:    mustIdentity(t, "spiffe://alpha.test/tool/commissioning"),
		RegisteredBy:  mustIdentity(t, "spiffe://alpha.test/tool/commissioning"),
		TransferredBy: mustIdentity(t, "spiffe://alpha.test/operator/otto"),
		ImportedFrom:  "https://registry.example.com/v0/servers/x?version=1",
	}

	return c
}

// Requirement: FORM-001
func TestRecordsSayWhoRegisteredForTheOwner(t *testing.T) {
	c := byTool(t)
	golden(t, "statement-1-put-provenance.json", statement(t, c))

	got, err := signed.OpenRecord(statement(t, c), texts(c.Disclosures()))
	if err != nil || got.Provenance != c.Provenance || got.Redacted {
		t.Errorf("got %+v, %v", got, err)
	}

	if len(got.Provenance.Identities()) != 3 {
		t.Errorf("got the identities %v", got.Provenance.Identities())
	}
}

// Requirement: FORM-001, TRUST-008
func TestProvenanceIsDisclosedWithTheOwnerOrNotAtAll(t *testing.T) {
	c := byTool(t)

	for _, sight := range []directory.Redaction{
		{}, directory.Withhold("n"), directory.Withhold(directory.MemberRegistrant), directory.ShowOnly("n"),
		directory.ShowOnly("n", directory.MemberRegistrant),
	} {
		grant := directory.GrantOf(directory.Mesh, sight, c.Document)
		shown := texts(c.DisclosuresTo([]directory.Grant{grant}))

		byGrant, err := signed.OpenRecord(statement(t, c), shown)
		must(t, err)

		whole := signed.Record{JWS: "e30." + directory.B64.EncodeToString(statement(t, c)) + ".AA",
			Disclosures: texts(c.Disclosures())}

		withheld, err := signed.RedactRecord(whole.String(), sight)
		must(t, err)

		record, err := signed.ParseRecord(withheld)
		must(t, err)

		bySight, err := signed.OpenRecord(statement(t, c), record.Disclosures)
		must(t, err)

		for _, got := range []*signed.Contents{byGrant, bySight} {
			if got.Owner.IsZero() != got.Provenance.IsZero() || !got.Owner.IsZero() && got.Provenance != c.Provenance {
				t.Errorf("%+v shows the owner %q with %+v", sight, got.Owner, got.Provenance)
			}
		}
	}
}

// Requirement: FORM-001
func TestNamesOfRegThatAreUnknownAreIgnoredAndKept(t *testing.T) {
	reg := []string{
		disclose("agent", `"a"`), disclose("kind", `"ad"`), disclose("owner", `"spiffe://alpha.test/a"`),
		disclose("colour", ` {"r": 1} `), disclose("role", `null`),
	}
	payload := signedBy(t, reg, nil)

	got, err := signed.OpenRecord(payload, reg)
	if err != nil || got.Redacted || got.M != signed.HashDisclosures(reg) {
		t.Fatalf("got %+v, %v", got, err)
	}

	without, err := signed.OpenRecord(payload, reg[:4])
	if err != nil || !without.Redacted {
		t.Errorf("one of them is withheld, and the record is not redacted: %v", err)
	}

	// Who sees everything is given them; of others this release doesn't know
	// whether they may.
	whole := signed.Record{JWS: "e30." + directory.B64.EncodeToString(payload) + ".AA", Disclosures: reg}
	for sight, want := range map[directory.Redaction]int{{}: 5, directory.Withhold("x"): 3} {
		text, err := signed.RedactRecord(whole.String(), sight)
		must(t, err)

		record, err := signed.ParseRecord(text)
		if err != nil || len(record.Disclosures) != want || !slices.Equal(record.Disclosures, reg[:want]) {
			t.Errorf("got %d disclosures, want %d: %v", len(record.Disclosures), want, err)
		}
	}
}

// A build with the tag compatnext plays the next release: it writes and reads a
// format 2 of each structure, which this one keeps for later.
//
// Requirement: FORM-001, FORM-003
func TestFormat2IsTheNextReleases(t *testing.T) {
	c := byTool(t)
	p := page()
	h := head()
	p.Format, h.Format = 2, 2
	end := &signed.Change{Issuer: alpha, RID: rid(1), Op: signed.OpEnd, Epoch: noon, Revision: 409}

	next := signed.OwnDialect().Formats.Reads(signed.StructurePage, 2)
	if next {
		c.Extension = extension(t, `{"next":1}`, "next")
		for name, change := range map[string]*signed.Change{"put": c, "end": end} {
			b, err := signed.Statement(2, change, change.Disclosures())
			must(t, err)

			golden(t, "statement-2-"+name+".json", b)
		}

		golden(t, "page-2.json", p.Payload())
		golden(t, "head-2.json", h.Payload())
	}

	for name, read := range map[string]func([]byte) (uint, error){
		"statement-2-put.json": func(b []byte) (uint, error) {
			c, err := signed.ParseStatement(b)
			return c.Format, err
		},
		"statement-2-end.json": func(b []byte) (uint, error) {
			c, err := signed.ParseStatement(b)
			return c.Format, err
		},
		"page-2.json": func(b []byte) (uint, error) { p, err := signed.ParsePage(b); return p.Format, err },
		"head-2.json": func(b []byte) (uint, error) {
			h, err := signed.OwnDialect().ParseHead(b)
			return h.Format, err
		},
	} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		must(t, err)

		format, err := read(b)
		if format != 2 || next != (err == nil) || !next && !errors.Is(err, signed.ErrUnsupported) {
			t.Errorf("%s: read as format %d: %v", name, format, err)
		}

		if !next {
			continue
		}

		// A reader of format 1 alone, whatever its build can do.
		var older signed.Dialect
		if _, err := older.ParsePage(b); strings.HasPrefix(name, "page") && !errors.Is(err, signed.ErrUnsupported) {
			t.Errorf("%s: a reader of format 1 takes it: %v", name, err)
		}
	}
}

var must = directorytest.Must
