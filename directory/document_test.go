package directory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/kinds"
)

// Requirement: AD-015
func TestDocumentDropsTheNodesOwnMembers(t *testing.T) {
	own := `"rid":1,"href":"x","lt":{},"registered_at":[],"provenance":{"verification":{"state":"verified"}},` +
		`"projected":false,"kind":"woa","revision":9,"gateway":"g","redacted":true`

	d := mustDocument(t, directory.KindAD, `{"base":"https://a.test",`+own+
		`,"agent":"x","expires_at":1,"updated_at":2,"x-mine": [ 1 ]}`)
	if got, want := string(d.Bytes()), `{"base":"https://a.test","x-mine":[ 1 ]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	d = mustDocument(t, directory.KindMCP, `{"name":"x",`+own+`,"agent":"x","expires_at":1,"updated_at":2}`)
	if got, want := string(d.Bytes()), `{"name":"x","agent":"x","expires_at":1,"updated_at":2}`; got != want {
		t.Errorf("another kind: got %s, want %s", got, want)
	}
}

func TestDocumentRefusesAProjection(t *testing.T) {
	_, err := directory.ParseDocument(directory.KindAD, []byte(`{"base":"https://a.test","projected":true}`))
	wantRefusal(t, err, directory.WrongKind, "/projected")
}

// Requirement: AD-042
func TestDocumentHasBounds(t *testing.T) {
	fill := func(n int) string { return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}` }
	mustDocument(t, directory.KindAD, fill(directory.MaxDocument))
	_, err := directory.ParseDocument(directory.KindAD, []byte(fill(directory.MaxDocument+1)))
	wantRefusal(t, err, directory.TooLarge, "")

	// A name is written anew with longer escapes; what counts is what is kept.
	_, err = directory.ParseDocument(directory.KindAD, []byte(`{"`+strings.Repeat(`\n`, 20_000)+`":1}`))
	wantRefusal(t, err, directory.TooLarge, "")

	_, err = directory.ParseDocument(directory.KindAD, []byte(manyMembers(directory.MaxMembers+1)))
	wantRefusal(t, err, directory.BadDocument, "")
}

// manyMembers returns an object with n members.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":%d`, i, i)
	}

	return "{" + b.String()[1:] + "}"
}

func TestDocumentRefusesNamesOfSDJWT(t *testing.T) {
	for body, pointer := range map[string]string{
		`{"_sd":1}`:                         "/_sd",
		`{"...":1}`:                         "/...",
		`{"\u005fsd":1}`:                    "/_sd",
		`{"\u002e..":1}`:                    "/...",
		`{"a":{"_sd":[]}}`:                  "/a/_sd",
		`{"a":{"_\u0073d":[]}}`:             "/a/_sd",
		`{"a":[1,{"b":{"..\u002E":"x"}}]}`:  "/a/1/b/...",
		`{"a/b":{"x":"_sd","y":{"_sd":1}}}`: "/a~1b/y/_sd",
	} {
		_, err := directory.ParseDocument(directory.KindAD, []byte(body))
		wantRefusal(t, err, directory.BadDocument, pointer)
	}

	for _, body := range []string{`{"a":"_sd"}`, `{"a":["_sd","..."]}`, `{"a":{"b":"\u005fsd"}}`,
		`{"_SD":1,"_sd_alg":1,"....":1}`} {
		mustDocument(t, directory.KindAD, body)
	}
}

func TestDocumentKeepsBytes(t *testing.T) {
	// Numbers that no float holds, escapes, order and inner white space stay.
	body := `{"n":9007199254740993,"f":1.0e+2,"s":"\u0041\/","o":{ "b":1,"a": [ ] }}`

	d := mustDocument(t, directory.KindA2A, body)
	if string(d.Bytes()) != body {
		t.Errorf("got %s", d.Bytes())
	}

	if again := directory.LoadDocument(d.Kind(), d.Bytes()); string(again.Bytes()) != body ||
		again.Kind() != directory.KindA2A {
		t.Errorf("loaded: %s", again.Bytes())
	}

	if m := d.Members(); len(m) != 4 || m[0].Name != "n" || string(m[0].Value) != "9007199254740993" {
		t.Errorf("members: %v", m)
	}
}

// Requirement: AD-021, AD-056
func TestMergeReplacesTopLevelMembers(t *testing.T) {
	d := mustDocument(t, directory.KindAD,
		`{"base":"https://a.test","x":1,"capabilities":[{"name":"a","type":"tool"}]}`)

	m, err := d.Merge([]byte(`{"new":true,"capabilities":[],"x":{"y":2},"href":"forged"}`))
	must(t, err)

	if want := `{"base":"https://a.test","x":{"y":2},"capabilities":[],"new":true}`; string(m.Bytes()) != want {
		t.Errorf("got %s, want %s", m.Bytes(), want)
	}

	if m, err = d.Merge([]byte(`{}`)); err != nil || string(m.Bytes()) != string(d.Bytes()) {
		t.Errorf("merged with nothing: %s, %v", m.Bytes(), err)
	}

	m, err = d.Merge([]byte(`{"base":null}`))
	must(t, err)

	_, err = kinds.Project("a", m)
	wantRefusal(t, err, directory.BadDocument, "/base")

	half := `{"big":"` + strings.Repeat("x", 40_000) + `"}`
	if d, err = d.Merge([]byte(half)); err != nil {
		t.Fatal(err)
	}

	_, err = d.Merge([]byte(strings.Replace(half, "big", "bigger", 1)))
	wantRefusal(t, err, directory.TooLarge, "")
	_, err = d.Merge([]byte(`[]`))
	wantRefusal(t, err, directory.BadRequest, "")
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]directory.Kind{"": directory.KindAD, "ad": directory.KindAD,
		"a2a": directory.KindA2A, "mcp": directory.KindMCP,
		"aidip": directory.KindAIDIP, "woa": directory.KindWoA, "oasf": directory.KindOASF} {
		if k, err := directory.ParseKind(text); k != want || err != nil {
			t.Errorf("%q: got %q, %v", text, k, err)
		}
	}

	for _, text := range []string{"AD", "card", "x", "ad "} {
		_, err := directory.ParseKind(text)
		wantRefusal(t, err, directory.BadRequest, "")
	}
}

var must = directorytest.Must
