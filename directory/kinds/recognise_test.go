package kinds_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

func recognised(t *testing.T, document string) (directory.Kind, bool) {
	t.Helper()

	members, err := strictjson.ParseObject([]byte(document))
	if err != nil {
		t.Fatal(err)
	}

	return kinds.Recognise(members)
}

// notes/users.md: "register NAME card.json with an A2A card".
//
// Requirement: OPS-003
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

func TestRealDocumentsAreRecognised(t *testing.T) {
	var servers []json.RawMessage
	if err := json.Unmarshal(shared(t, "data", "agents", "mcp-seed.json"), &servers); err != nil {
		t.Fatal(err)
	}

	for _, body := range servers {
		if kind, certain := recognised(t, string(body)); kind != directory.KindMCP || !certain {
			t.Errorf("%.100s: %q, certain: %t", body, kind, certain)
		}
	}

	files, err := filepath.Glob("../../../shared/data/agents/a2a/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}

	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if kind, certain := recognised(t, string(body)); kind != directory.KindA2A || !certain {
			t.Errorf("%s: %q, certain: %t", file, kind, certain)
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

	refusal := err.(*directory.Error)
	if len(refusal.Violations) < 3 || refusal.Violations[0].Detail != refusal.Detail ||
		refusal.Violations[1].Pointer != "/base" {
		t.Errorf("its faults are %+v", refusal.Violations)
	}
}
