package kinds_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/kinds"
)

// shared returns a file from beside the project; the test is skipped where it is
// absent.
func shared(t *testing.T, path ...string) []byte {
	t.Helper()

	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", "shared"}, path...)...))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("beside the project there is no", filepath.Join(path...))
	}

	must(t, err)

	return b
}

// The projections hold what the golden views of the AD surface show.
//
// Requirement: AD-031, AD-063
func TestProjectionsHoldWhatTheGoldenViewsShow(t *testing.T) {
	var views map[string]map[string]map[string]any
	must(t, json.Unmarshal(shared(t, "spec", "views.json"), &views))

	ad := mustDocument(t, directory.KindAD, jimenez41)
	a2a := mustDocument(t, directory.KindA2A, string(shared(t, "data", "agents", "a2a", "hello-world-agent.json")))

	name, err := kinds.DefaultName(a2a)
	must(t, err)

	compare := func(what string, got, want map[string]any) {
		t.Helper()

		for _, m := range []string{"href", "lt", "expires_at", "registered_at", "updated_at", "projected", "kind",
			"provenance"} {
			delete(want, m)
		}

		b, err := json.Marshal(got)
		must(t, err)

		got = nil
		must(t, json.Unmarshal(b, &got))

		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", what, got, want)
		}
	}

	full := map[string]any{"agent": "summarizer-v2"}
	must(t, json.Unmarshal(ad.Bytes(), &full))

	compare("ad in full", full, views["ad"]["ad"])
	compare("ad in a list", listed("summarizer-v2", mustProject(t, "summarizer-v2", ad)), views["ad"]["adl"])
	p := mustProject(t, name, a2a)
	compare("a2a in full", projected(name, p), views["a2a"]["ad"])
	compare("a2a in a list", listed(name, p), views["a2a"]["adl"])

	xu := views["a2a"]["xu"]["bindings"].([]any)[0].(map[string]any)
	if b := p.Bindings[0]; b.Protocol != xu["protocol"] || b.Endpoint != xu["endpoint"] ||
		b.Transport != xu["transport"] || len(b.MediaTypes) != len(xu["media_types"].([]any)) {
		t.Errorf("its binding is %+v, want %v", b, xu)
	}
}

func listed(agent string, p *directory.Projection) map[string]any {
	cs := []any{}
	for _, c := range p.Capabilities {
		cs = append(cs, map[string]any{"name": c.Name, "type": c.Type})
	}

	return map[string]any{"agent": agent, "base": p.Base, "description": p.Description, "protocols": p.Protocols,
		"capabilities": cs}
}

func projected(agent string, p *directory.Projection) map[string]any {
	v := listed(agent, p)
	v["name"], v["version"], v["vendor"], v["status"] = p.Name, p.Version, p.Vendor, p.Status

	var cs, es []any
	for _, c := range p.Capabilities {
		cs = append(cs, map[string]any{"name": c.Name, "type": c.Type, "description": c.Description, "tags": c.Tags})
	}

	for _, e := range p.Examples {
		es = append(es, map[string]any{"id": e.ID, "text": e.Text, "tags": e.Tags})
	}

	v["capabilities"], v["examples"] = cs, es

	return v
}

// register does what an import does with a document, up to the command, and
// demands that a refusal says what to do.
func register(t *testing.T, what string, kind directory.Kind, body []byte) bool {
	t.Helper()

	d, err := directory.ParseDocument(kind, body)
	if err == nil {
		var name string
		if name, err = kinds.DefaultName(d); err == nil {
			_, err = kinds.Project(name, d)
		}
	}

	if err == nil {
		return true
	}

	var e *directory.Error
	if !errors.As(err, &e) || e.Problem != directory.BadDocument || len(strings.Fields(e.Detail)) < 5 {
		t.Errorf("%s is refused as %v", what, err)
	}

	t.Logf("%s: %v", what, err)

	return false
}

func TestRealAgentCards(t *testing.T) {
	shared(t, "data", "agents", "a2a", "hello-world-agent.json")

	files, err := filepath.Glob("../../../shared/data/agents/a2a/*.json")
	must(t, err)

	taken := 0
	for _, file := range files {
		body, err := os.ReadFile(file)
		must(t, err)

		if register(t, filepath.Base(file), directory.KindA2A, body) {
			taken++
		}
	}

	t.Logf("took %d of %d agent cards", taken, len(files))

	if taken != 59 || len(files) != 59 {
		t.Errorf("took %d of %d agent cards, want all 59", taken, len(files))
	}
}

func TestRealMCPServers(t *testing.T) {
	var servers []json.RawMessage
	must(t, json.Unmarshal(shared(t, "data", "agents", "mcp-seed.json"), &servers))

	taken := 0
	for _, body := range servers {
		var s struct{ ID, Name string }
		must(t, json.Unmarshal(body, &s))

		if register(t, s.Name+" "+s.ID, directory.KindMCP, body) {
			taken++
		}
	}

	// Seven are empty shells without a name, one has a placeholder in its remote's URL.
	t.Logf("took %d of %d MCP servers", taken, len(servers))

	if taken != 463 || len(servers) != 471 {
		t.Errorf("took %d of %d MCP servers, want 463 of 471", taken, len(servers))
	}
}

var must = directorytest.Must
