package kinds_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

func recognised(t *testing.T, document string) (directory.Kind, bool) {
	t.Helper()

	members, err := strictjson.ParseObject([]byte(document))
	must(t, err)

	return kinds.Recognise(members)
}

// notes/users.md: "register NAME card.json with an A2A card".
//
// Requirement: OPS-006
func TestKindsAreRecognised(t *testing.T) {
	for _, c := range []struct {
		document string
		kind     directory.Kind
		certain  bool
	}{
		{jimenez41, directory.KindAD, true},
		{xu131, directory.KindProfile, true},
		{cui3, directory.KindAIDIP, true},
		{gaikwadB, directory.KindWoA, true},
		{card, directory.KindA2A, true},
		{oasfRecord, directory.KindOASF, true},
		{`{"name":"x","url":"https://a.test","skills":[{"id":"s"}]}`, directory.KindA2A, true},
		{`{"$schema":"https://static.modelcontextprotocol.io/x.json","name":"a/b"}`, directory.KindMCP, true},
		{`{"base":"https://a.test","protocolVersion":"1","packages":[]}`, directory.KindAD, true},
		{`{"name":"x","url":"https://a.test"}`, directory.KindA2A, false},
		{`{"name":"x","repository":{}}`, directory.KindMCP, false},
		{`{"protocolVersion":"1","packages":[]}`, directory.KindA2A, false},
		{`{"protocols":["mcp"]}`, "", false},
		{`{}`, "", false},
	} {
		if kind, certain := recognised(t, c.document); kind != c.kind || certain != c.certain {
			t.Errorf("%.80s: %q, certain: %t, want %q, %t", c.document, kind, certain, c.kind, c.certain)
		}
	}
}

// notes/users.md: a member that is one edit from a known one. The document is kept as written.
//
// Requirement: XU-003, XU-044
func TestMisspeltMembersAreFound(t *testing.T) {
	for _, c := range []struct {
		kind     directory.Kind
		document string
		want     []kinds.Misspelling
	}{
		{directory.KindAD, `{"base":"https://a.test","protcols":["mcp"]}`,
			[]kinds.Misspelling{{"/protcols", "/protocols"}}},
		{directory.KindAD, `{"base":"https://a.test","vendor":"x","color":"blue","x":1}`, nil},
		{directory.KindAD, `{"base":"https://a.test","tags":["a"],"tag":"b"}`, []kinds.Misspelling{{"/tag", "/tags"}}},
		{directory.KindAD, `{"base":"https://a.test","capabilities":[{"name":"a","type":"tool"},` +
			`{"name":"b","type":"tool","inputSchema":{},"desciption":"c"}]}`, []kinds.Misspelling{
			{"/capabilities/1/desciption", "/capabilities/1/description"},
			{"/capabilities/1/inputSchema", "/capabilities/1/input_schema"},
		}},
		{directory.KindA2A, strings.Replace(card, `"preferredTransport"`, `"preferedTransport"`, 1),
			[]kinds.Misspelling{{"/preferedTransport", "/preferredTransport"}}},
		{directory.KindAD, jimenez41, nil},
		{directory.KindProfile, xu131, nil},
		{directory.KindAIDIP, cui3, nil},
		{directory.KindWoA, gaikwadB, nil},
		{directory.KindOASF, oasfRecord, nil},
	} {
		if got := misspellings(t, c.kind, c.document); !slices.Equal(got, c.want) {
			t.Errorf("%.100s: %v, want %v", c.document, got, c.want)
		}
	}
}

func misspellings(t *testing.T, kind directory.Kind, document string) []kinds.Misspelling {
	t.Helper()

	d := mustDocument(t, kind, document)

	agent, err := kinds.DefaultName(d)
	if err != nil {
		agent = "agent"
	}

	_, found, err := kinds.Check(agent, d)
	if err != nil {
		t.Logf("%.100s: %v", document, err)
	}

	return found
}

// A missing member is found under a name that is near to it.
func TestAMissingMemberMayBeMisspelt(t *testing.T) {
	_, err := kinds.Project("agent", mustDocument(t, directory.KindAD, `{"bsae":"https://a.test"}`))
	if err == nil || !strings.Contains(err.Error(), `is "bsae" meant?`) {
		t.Errorf("refused as %v", err)
	}
}

func TestRealDocumentsAreRecognised(t *testing.T) {
	var servers []json.RawMessage
	must(t, json.Unmarshal(shared(t, "data", "agents", "mcp-seed.json"), &servers))

	for _, body := range servers {
		if kind, certain := recognised(t, string(body)); kind != directory.KindMCP || !certain {
			t.Errorf("%.100s: %q, certain: %t", body, kind, certain)
		}

		if found := misspellings(t, directory.KindMCP, string(body)); found != nil {
			t.Errorf("%.100s: %v", body, found)
		}
	}

	files, err := filepath.Glob("../../../shared/data/agents/a2a/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}

	for _, file := range files {
		body, err := os.ReadFile(file)
		must(t, err)

		if kind, certain := recognised(t, string(body)); kind != directory.KindA2A || !certain {
			t.Errorf("%s: %q, certain: %t", file, kind, certain)
		}

		if found := misspellings(t, directory.KindA2A, string(body)); found != nil {
			t.Errorf("%s: %v", file, found)
		}
	}
}

// A document that is refused as one kind names the kind that it has, before its faults.
func TestARefusalNamesTheKind(t *testing.T) {
	document := mustDocument(t, directory.KindAD, strings.Replace(card, `"name":"Route Planner",`, `"tags":5,`, 1))

	_, err := kinds.Project("planner", document)
	if err == nil || !strings.HasPrefix(err.Error(), "this looks like an A2A agent card: add kind=a2a") {
		t.Fatalf("refused as %v", err)
	}

	var refusal *directory.Error
	if !errors.As(err, &refusal) || len(refusal.Violations) < 3 || refusal.Violations[0].Detail != refusal.Detail ||
		refusal.Violations[1].Pointer != "/base" {
		t.Errorf("its faults are %+v", refusal.Violations)
	}
}
