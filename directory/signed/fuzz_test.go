package signed_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// seed adds the golden files whose names have a beginning.
func seed(f *testing.F, pattern string) {
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		f.Fatal("no golden files", pattern, err)
	}

	for _, file := range files {
		b, err := os.ReadFile(file)
		must(f, err)

		f.Add(b)
	}
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
	canonical(f, signed.ParsePage, (*signed.Page).Payload)
}

func FuzzHead(f *testing.F) {
	seed(f, "head*.json")
	canonical(f, signed.OwnDialect().ParseHead, (*signed.Head).Payload)
}

func FuzzKeyDocument(f *testing.F) {
	seed(f, "keys*.json")
	canonical(f, signed.ParseKeyDocument, (*signed.KeyDocument).Payload)
}

func FuzzRecordText(f *testing.F) {
	seed(f, "record.txt")
	canonical(f, func(b []byte) (signed.Record, error) { return signed.ParseRecord(string(b)) },
		func(r signed.Record) []byte { return []byte(r.String()) })
}

// A statement that is read has one line, the issuer's own form, and all its
// members in the order of the format; what follows them is its extension alone.
func FuzzStatement(f *testing.F) {
	seed(f, "statement-*.json")
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := signed.ParseStatement(b)
		if err != nil {
			return
		}

		head, err := signed.Statement(int(c.Format), &signed.Change{
			Issuer: c.Issuer, RID: c.RID, Op: c.Op, Epoch: c.Epoch, Revision: c.Revision, Prev: c.Prev,
			IssuedAt: c.IssuedAt, Since: c.Since, Leaf: c.Leaf,
		}, nil)
		must(t, err)

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
		head := signed.Head{Format: 1, Issuer: alpha, Epoch: 1}
		payload := append(bytes.TrimSuffix(head.Payload(), []byte("}")), `,"ext":`...)

		payload = append(payload, object...)
		if critical != "" {
			payload = append(strictjson.AppendString(append(payload, `,"crit":[`...), critical), ']')
		}

		read, err := signed.Dialect{Critical: []string{critical}}.ParseHead(append(payload, '}'))
		if err != nil {
			return
		}

		members, err := directory.ParseObject(read.Extension.Object())
		if err != nil || len(members) == 0 || len(read.Extension.Object()) > 4<<10 {
			t.Fatalf("read %q", payload)
		}

		for _, name := range read.Extension.Critical() {
			if _, found := strictjson.FindMember(members, name); !found {
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

		c, err := signed.OpenRecord(signedBy(t, reg, doc), append(reg, doc...))
		if err != nil {
			return
		}

		again, err := directory.ParseDocument(directory.KindAD, c.Document.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), c.Document.Bytes()) || len(again.Members()) != len(doc) {
			t.Fatalf("opened %s: %v", c.Document.Bytes(), err)
		}
	})
}
