package signed_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A document that is taken reads the same again, is projected or refused with a
// sentence, and has a statement whose every disclosure opens to the same bytes.
//
// Requirement: AD-042, AD-046
func FuzzDocument(f *testing.F) {
	names := directory.KindNames()
	for _, body := range []string{jimenez41, card, sample, `{"a":{"_sd":1}}`, `{"\u005fsd":1}`,
		`{"name":"x","remotes":[{"url":"https://a.test"}]}`, gaikwadB, oasfRecord} {
		for k := range names {
			f.Add(byte(k), []byte(body))
		}
	}

	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		kind := directory.Kind(names[int(k)%len(names)])
		// A damaged store must not bring the node down.
		if _, err := kinds.Reproject("agent", directory.LoadDocument(kind, body)); err != nil {
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
		if err != nil || !slices.EqualFunc(members, d.Members(), func(a, b strictjson.Member) bool {
			return a.Name == b.Name && bytes.Equal(a.Value, b.Value)
		}) {
			t.Fatalf("its members read differently: %v", err)
		}

		p, err := kinds.Project("agent", d)

		var e *directory.Error
		if err != nil && (!errors.As(err, &e) || !utf8.ValidString(e.Detail)) {
			t.Fatalf("refused without a sentence: %v", err)
		}

		if q, err2 := kinds.Reproject("agent", d); err2 != nil || err == nil && q.Base != p.Base {
			t.Fatalf("projects differently again: %v", err2)
		}

		if name, err := kinds.DefaultName(d); err == nil {
			if n, err := directory.ParseName(name); err != nil || n != name {
				t.Fatalf("brings the name %q: %v", name, err)
			}
		}

		c := put(t)
		c.Document = d
		payload := statement(t, c)

		got, err := signed.OpenRecord(payload, texts(c.Disclosures()))
		if err != nil || !bytes.Equal(got.Document.Bytes(), d.Bytes()) {
			t.Fatalf("its record does not open: %v", err)
		}

		if r := (signed.Record{JWS: strings.Repeat("h", 300) + strings.Repeat("p", len(payload)*4/3+2),
			Disclosures: texts(c.Disclosures())}); len(r.String()) > signed.MaxRecord {
			t.Fatalf("its record has %d bytes", len(r.String()))
		}
	})
}
