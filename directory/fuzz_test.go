package directory_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
)

// seed adds the golden files whose names have a beginning.
func seed(f *testing.F, pattern string) {
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		f.Fatal("no golden files", pattern, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// A document that is taken reads the same again, is projected or refused with a
// sentence, and has a statement whose every disclosure opens to the same bytes.
//
// Requirement: AD-042, AD-046
func FuzzDocument(f *testing.F) {
	kinds := directory.KindNames()
	for _, body := range []string{jimenez41, card, sample, `{"a":{"_sd":1}}`, `{"\u005fsd":1}`, `{"name":"x","remotes":[{"url":"https://a.test"}]}`, gaikwadB, oasfRecord} {
		for k := range kinds {
			f.Add(byte(k), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		kind := directory.Kind(kinds[int(k)%len(kinds)])
		// A damaged store must not bring the node down.
		if _, err := directory.Reproject("agent", directory.LoadDocument(kind, body)); err != nil {
			t.Fatal(err)
		}
		d, err := directory.ParseDocument(kind, body)
		if err != nil {
			if directory.ProblemOf(err) == directory.Internal {
				t.Fatalf("refused without a problem: %v", err)
			}
			return
		}
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatal("took what is not JSON")
		}
		again, err := directory.ParseDocument(kind, d.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), d.Bytes()) || len(d.Bytes()) > directory.MaxDocument {
			t.Fatalf("reads differently again: %v", err)
		}
		members, err := directory.ParseObject(d.Bytes())
		if err != nil || !slices.EqualFunc(members, d.Members(), func(a, b directory.Member) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }) {
			t.Fatalf("its members read differently: %v", err)
		}
		p, err := directory.Project("agent", d)
		var e *directory.Error
		if err != nil && (!errors.As(err, &e) || !utf8.ValidString(e.Detail)) {
			t.Fatalf("refused without a sentence: %v", err)
		}
		if q, err2 := directory.Reproject("agent", d); err2 != nil || err == nil && q.Base != p.Base {
			t.Fatalf("projects differently again: %v", err2)
		}
		if name, err := directory.DefaultName(d); err == nil {
			if n, err := directory.ParseName(name); err != nil || n != name {
				t.Fatalf("brings the name %q: %v", name, err)
			}
		}
		c := put(t)
		c.Document = d
		payload := statement(t, c)
		got, err := directory.OpenRecord(payload, texts(c.Disclosures()))
		if err != nil || !bytes.Equal(got.Document.Bytes(), d.Bytes()) {
			t.Fatalf("its record does not open: %v", err)
		}
		if r := (directory.Record{JWS: strings.Repeat("h", 300) + strings.Repeat("p", len(payload)*4/3+2), Disclosures: texts(c.Disclosures())}); len(r.String()) > directory.MaxRecord {
			t.Fatalf("its record has %d bytes", len(r.String()))
		}
	})
}

// canonical demands that a reader takes no bytes but those that the writer makes
// of what was read.
func canonical[T any](f *testing.F, parse func([]byte) (T, error), write func(T) []byte) {
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parse(b)
		if err != nil {
			return
		}
		if again := write(v); !bytes.Equal(again, b) {
			t.Fatalf("read %q, writes %q", b, again)
		}
	})
}

func FuzzPage(f *testing.F) {
	seed(f, "page*.json")
	canonical(f, directory.ParsePage, (*directory.SignedPage).Payload)
}

func FuzzHead(f *testing.F) {
	seed(f, "head*.json")
	canonical(f, directory.ParseHead, (*directory.Head).Payload)
}

func FuzzKeyDocument(f *testing.F) {
	seed(f, "keys*.json")
	canonical(f, directory.ParseKeyDocument, (*directory.KeyDocument).Payload)
}

func FuzzRecordText(f *testing.F) {
	seed(f, "record.txt")
	canonical(f, func(b []byte) (directory.Record, error) { return directory.ParseRecord(string(b)) },
		func(r directory.Record) []byte { return []byte(r.String()) })
}

// A statement that is read has one line, the issuer's own form, and all its
// members in the order of the format; what follows them is its extension alone.
func FuzzStatement(f *testing.F) {
	seed(f, "statement-*.json")
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := directory.ParseStatement(b)
		if err != nil {
			return
		}
		head, err := directory.Statement(int(c.Format), &directory.Change{
			Issuer: c.Issuer, RID: c.RID, Op: c.Op, Epoch: c.Epoch, Revision: c.Revision, Prev: c.Prev, IssuedAt: c.IssuedAt, Since: c.Since, Leaf: c.Leaf,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ = bytes.Cut(head, []byte(`{},"doc":{}`))
		tail, ends := bytes.CutSuffix(b, append(tailOf(c.Extension), '}'))
		if !bytes.HasPrefix(b, head) || !ends || !json.Valid(b) || bytes.ContainsAny(tail[len(head):], " \t\r\n\\") {
			t.Fatalf("read %q", b)
		}
	})
}

// An extension that is read is one object of bounded size and depth, and crit
// names members of it.
func FuzzExtension(f *testing.F) {
	f.Add([]byte(`{"a":1}`), "a")
	f.Add([]byte(`{ "a" : {"b":[1, 2]}, "c":null }`), "c")
	f.Add([]byte(`{"a":1,"a":2}`), "a")
	f.Add([]byte(`{"a":[[[[[[[[[]]]]]]]]]}`), "")
	f.Fuzz(func(t *testing.T, object []byte, critical string) {
		head := directory.Head{Format: 1, Issuer: alpha, Epoch: 1}
		payload := append(bytes.TrimSuffix(head.Payload(), []byte("}")), `,"ext":`...)
		payload = append(payload, object...)
		if critical != "" {
			payload = append(directory.AppendString(append(payload, `,"crit":[`...), critical), ']')
		}

		read, err := directory.Dialect{Critical: []string{critical}}.ParseHead(append(payload, '}'))
		if err != nil {
			return
		}

		members, err := directory.ParseObject(read.Extension.Object())
		if err != nil || len(members) == 0 || len(read.Extension.Object()) > 4<<10 {
			t.Fatalf("read %q", payload)
		}
		for _, name := range read.Extension.Critical() {
			if _, found := directory.FindMember(members, name); !found {
				t.Fatalf("crit names %q, which %q lacks", name, object)
			}
		}
	})
}

// Whatever an origin signs as disclosures, what opens is a document that a
// registrant could have written, and forges nothing of ours.
//
// Requirement: MESH-004
func FuzzRecordDisclosures(f *testing.F) {
	disclose := func(body string) string { return directory.B64.EncodeToString([]byte(body)) }
	salt := strings.Repeat("A", 22)
	f.Add(`["`+salt+`","x",{"y":[1]}]`, `["`+salt+`","base","https://a.test"]`)
	f.Add(`["`+salt+`","provenance",{}]`, `["`+salt+`","_sd",[]]`)
	f.Add(`["`+salt+`","x",1]`, `["`+salt+`","\u0078",2]`)
	f.Add(`["`+salt+`","x", [ 1 ] ]`, ` ["`+salt+`" ,"z","\ud83d\ude00"]`)
	f.Fuzz(func(t *testing.T, a, b string) {
		reg := []string{disclose(`["` + salt + `","agent","a"]`), disclose(`["` + salt + `","kind","ad"]`)}
		doc := slices.Compact([]string{disclose(a), disclose(b)})
		c, err := directory.OpenRecord(signedBy(t, reg, doc), append(reg, doc...))
		if err != nil {
			return
		}
		again, err := directory.ParseDocument(directory.KindAD, c.Document.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), c.Document.Bytes()) || len(again.Members()) != len(doc) {
			t.Fatalf("opened %s: %v", c.Document.Bytes(), err)
		}
	})
}
