package directory_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// realDocuments are what agents and MCP servers say of themselves; the test is
// skipped where they are absent.
func realDocuments(t testing.TB) map[directory.Kind][]directory.Document {
	t.Helper()
	data := filepath.Join("..", "..", "shared", "data", "agents")

	seed, err := os.ReadFile(filepath.Join(data, "mcp-seed.json"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("beside the project there is no", data)
	}

	all := map[directory.Kind][]directory.Document{}
	add := func(kind directory.Kind, body []byte) {
		if d, err := directory.ParseDocument(kind, body); err == nil {
			all[kind] = append(all[kind], d)
		}
	}

	var servers []json.RawMessage
	must(t, errors.Join(err, json.Unmarshal(seed, &servers)))

	for _, s := range servers {
		add(directory.KindMCP, s)
	}

	cards, err := filepath.Glob(filepath.Join(data, "a2a", "*.json"))
	if err != nil || len(cards) == 0 {
		t.Fatal(cards, err)
	}

	for _, file := range cards {
		body, err := os.ReadFile(file)
		must(t, err)

		add(directory.KindA2A, body)
	}

	if len(all[directory.KindMCP]) == 0 || len(all[directory.KindA2A]) == 0 {
		t.Fatalf("%d MCP servers and %d agent cards are read", len(all[directory.KindMCP]), len(all[directory.KindA2A]))
	}

	return all
}

// rested returns an entry of d that is at rest, and is found to be the same as it
// was.
func rested(t testing.TB, d directory.Document) *directory.Entry {
	t.Helper()

	p, err := kinds.Reproject("agent", d)
	if err != nil {
		p = &directory.Projection{Name: "agent"}
	}

	awake := &directory.Entry{Agent: "agent", Document: d, Packed: directory.Pack(d, p)}

	e := *awake
	for range 2 { // the second changes nothing
		e.Compact()

		if size := e.Document.Size(); size != len(d.Bytes()) || d.Size() != size {
			t.Fatalf("a document of %d bytes is said to have %d at rest and %d awake", len(d.Bytes()), size, d.Size())
		}

		if e.Agent != awake.Agent || !bytes.Equal(e.Document.Bytes(), d.Bytes()) || e.Document.Kind() != d.Kind() {
			t.Fatalf("%s at rest is %q, %s", d.Bytes(), e.Agent, e.Document.Bytes())
		}

		if !reflect.DeepEqual(e.Projection(), awake.Projection()) ||
			!reflect.DeepEqual(e.Document.Members(), d.Members()) {
			t.Fatalf("%s at rest is projected otherwise", d.Bytes())
		}
	}

	again, err := directory.LoadStored(d.Kind(), e.Document.StoredBytes())
	if err != nil || !bytes.Equal(again.Bytes(), d.Bytes()) {
		t.Fatalf("%s at rest is loaded as %s: %v", d.Bytes(), again.Bytes(), err)
	}

	return &e
}

func TestDocumentsAtRestAreWhatTheyWere(t *testing.T) {
	var noise strings.Builder
	for i := range 400 {
		noise.WriteString(directory.HashOf([]byte{byte(i), byte(i >> 8)}).String())
	}

	for _, raw := range []string{
		"", "{}", `{"base":"https://a.example"}`, `{"x":"` + noise.String() + `"}`,
		`{"x":"` + strings.Repeat("say it again, ", 1000) + `"}`,
		`{"x":"` + strings.Repeat("x", directory.MaxDocument-8) + `"}`,
		"not an object",
	} {
		rested(t, directory.LoadDocument(directory.KindAD, []byte(raw)))
	}
}

func TestRealDocumentsRestInHalfTheRoom(t *testing.T) {
	for kind, docs := range realDocuments(t) {
		awake, resting := 0, 0
		for _, d := range docs {
			awake += len(d.Bytes())
			resting += len(rested(t, d).Document.StoredBytes())
		}

		share := float64(resting) / float64(awake)
		t.Logf("%s: %d documents of %d bytes rest in %.0f %%", kind, len(docs), awake/len(docs), 100*share)

		if share > .52 {
			t.Errorf("%s: %d bytes rest in %d", kind, awake, resting)
		}
	}
}

// Snapshots are read by these words.
func TestTheWordsOfAFormNeverChange(t *testing.T) {
	const want = "CNKahe0ydnf7OiKtAqHiJKTUOpdTN253928LnVJVWXQ"
	if got := directory.HashOf(directory.RestWords).String(); directory.RestForm != 1 || got != want {
		t.Errorf("form %d has words %s; this test knows form 1 with %s", directory.RestForm, got, want)
	}
}

func TestADamagedDocumentAtRest(t *testing.T) {
	d := directory.LoadDocument(directory.KindAD,
		[]byte(`{"description":"`+strings.Repeat("An agent that says it again. ", 20)+`"}`))

	resting := rested(t, d).Document.StoredBytes()
	if len(resting) >= len(d.Bytes())/2 {
		t.Fatalf("it rests in %d bytes", len(resting))
	}

	bomb := binary.AppendUvarint([]byte{directory.RestForm}, directory.MaxDocument+1)
	for name, raw := range map[string][]byte{
		"cut off": resting[:len(resting)-3], "without its length": {directory.RestForm},
		"too long":           append(bomb, resting[3:]...),
		"one within another": append([]byte{directory.RestForm}, directory.RestDictionary().Encode(nil, resting)...),
	} {
		if got, err := directory.LoadStored(directory.KindAD, raw); err == nil || !got.IsZero() {
			t.Errorf("%s: it is %.40s", name, got.Bytes())
		}

		d := directory.LoadDocument(directory.KindAD, raw)
		if p, err := directory.Unpack(d, directory.Pack(d, &directory.Projection{}).Code()); err == nil {
			t.Errorf("%s: it is taken for a document of %+v", name, p)
		}
	}
}

func FuzzLoadResting(f *testing.F) {
	for _, s := range []string{"", "{}", "\x01\x05\x10hello", "\x01\xff\xff\xff\x7f"} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := directory.LoadStored(directory.KindAD, raw)
		if err == nil && len(d.Bytes()) > max(directory.MaxDocument, len(raw)) {
			t.Fatalf("%d bytes hold a document of %d", len(raw), len(d.Bytes()))
		}

		if err == nil && !bytes.Equal(directory.LoadDocument(directory.KindAD, d.Bytes()).Bytes(), d.Bytes()) {
			t.Fatalf("%q is %q", raw, d.Bytes())
		}
	})
}

func TestAtRestAndAwake(t *testing.T) {
	for _, text := range []string{`{"a":1}`, `{"description":"` + strings.Repeat("An agent. ", 100) + `"}`, ""} {
		d := directory.LoadDocument(directory.KindAD, []byte(text))

		rest := d.Compressed()
		if again := rest.Compressed(); again != rest || rest.Kind() != directory.KindAD ||
			len(text) > 1000 && len(rest.StoredBytes()) > len(text)/2 {
			t.Errorf("%.20q rests in %d bytes", text, len(rest.StoredBytes()))
		}

		if awake, err := rest.Decompressed(); err != nil || awake != d {
			t.Errorf("%.20q awakes as %q, %v", text, awake.Bytes(), err)
		}

		if whole := rest.StoredBytes(); len(text) > 1000 {
			if _, err := directory.LoadDocument(directory.KindAD, whole[:len(whole)-3]).Decompressed(); err == nil {
				t.Error("a damaged one awakes")
			}
		}
	}
}
