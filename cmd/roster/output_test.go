package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// hostile is a text of a registrant that attacks terminals and their readers.
const hostile = "see \x1b[2J\u202egnp.exe\u2066 \u200bnow"

// page is a lookup's response with unusual but valid spacing, and a hostile base.
func page(t *testing.T) string {
	t.Helper()
	base, err := json.Marshal(hostile)
	must(t, err)

	return fmt.Sprintf(`{"agents": [ {"agent":"weather","base":%s,"protocols":["a2a"],"capabilities":[],`+
		`"href":"/ad/r/%s",
  "provenance":{"origin_authority":"beta.test","revision":7,"expires_at":"2026-06-02T12:00:00.000Z",`+
		`"verification":{"state":"verified"}}},
  {"agent":"yes","base":"https://b.example","protocols":[],"capabilities":[{"name":"tell","type":"tool"}],`+
		`"href":"/ad/r/x","n":1e3,"f":false,"nil":null,"o":{}} ]}`+"\n", base, rid)
}

// Requirement: OPS-004
func TestJSONIsTheResponseByteForByte(t *testing.T) {
	w := newWorld(t, says(page(t)))
	if code, out, errs := w.run("lookup", "-o", "json"); code != 0 || out != page(t) {
		t.Errorf("exit code %d, notes %q, got\n%s\nwant\n%s", code, errs, out, page(t))
	}
}

// Requirement: OPS-004
func TestJSONLinesHasOneItemPerLine(t *testing.T) {
	w := newWorld(t, says(page(t)))
	_, out, _ := w.run("lookup", "-o", "jsonl")

	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"agent":"weather",`) ||
		!strings.HasPrefix(lines[1], `{"agent":"yes",`) {
		t.Errorf("got\n%s", out)
	}
}

// The YAML output has the same data as the JSON for a YAML library, and no control
// characters.
//
// Requirement: OPS-004, AD-072
func TestYAMLHasTheDataOfJSON(t *testing.T) {
	w := newWorld(t, says(page(t)))
	_, out, _ := w.run("lookup", "-o", "yaml")

	var got, want any
	must(t, yaml.Unmarshal([]byte(out), &got))
	must(t, json.Unmarshal([]byte(page(t)), &want))
	again, err := json.Marshal(got)
	must(t, err)

	var same any
	must(t, json.Unmarshal(again, &same))

	if !reflect.DeepEqual(same, want) {
		t.Errorf("YAML\n%s\nsays %s", out, again)
	}

	if line := strings.ReplaceAll(out, "\n", ""); cli.Printable(line) != line {
		t.Errorf("unprintable characters in\n%q", out)
	}
}

// Requirement: OPS-004
func TestTablesAreAlignedOnATerminalAndTabbedInAPipe(t *testing.T) {
	w := newWorld(t, says(page(t)))
	_, piped, _ := w.run("lookup")

	lines := strings.Split(piped, "\n")
	if lines[0] != "AGENT\tORIGIN\tRID\tPROTOCOLS\tBASE (CLAIMED)\tEXPIRES" ||
		!strings.HasPrefix(lines[1], "weather\tbeta.test\t"+rid+"\ta2a\t") {
		t.Errorf("piped:\n%s", piped)
	}

	if strings.Contains(piped, "\x1b") {
		t.Errorf("an escape code in a pipe: %q", piped)
	}

	if _, wide, _ := w.run("lookup", "-o", "wide"); !strings.Contains(wide, "\tSTATE\t") ||
		!strings.Contains(wide, "\tverified\t") {
		t.Errorf("wide:\n%s", wide)
	}

	w.terminal = true
	w.env["NO_COLOR"] = "1"

	_, plain, _ := w.run("lookup")
	if strings.Contains(plain, "\x1b") || strings.Contains(plain, "\t") {
		t.Errorf("NO_COLOR on a terminal: %q", plain)
	}

	lines = strings.Split(plain, "\n")
	if strings.Index(lines[0], "ORIGIN") != strings.Index(lines[1], "beta.test") {
		t.Errorf("not aligned:\n%s", plain)
	}

	delete(w.env, "NO_COLOR")

	_, bold, _ := w.run("lookup")

	lines = strings.Split(bold, "\n")
	if !strings.HasPrefix(lines[0], "\x1b[1mAGENT\x1b[m ") || strings.Contains(lines[1], "\x1b") {
		t.Errorf("the heading alone stands out: %q", bold)
	}
}

// Text of a registrant is escaped for the terminal and marked as claimed.
//
// Requirement: AD-072, WOA-015
func TestTextOfRegistrantsIsEscapedAndMarked(t *testing.T) {
	const escaped = `see \x1b[2J\u202egnp.exe\u2066 \u200bnow`

	w := newWorld(t, says(page(t)))
	if _, out, _ := w.run("lookup"); !strings.Contains(out, "BASE (CLAIMED)") || !strings.Contains(out, escaped) {
		t.Errorf("lookup shows\n%q", out)
	}

	text, err := json.Marshal(hostile)
	must(t, err)

	w = newWorld(t, says(fmt.Sprintf(`{"agent":"weather","description":%s,"href":"/ad/r/%s"}`, text, rid)))
	if _, out, _ := w.run("get", "weather"); !strings.Contains(out, "description\tclaimed\t"+escaped+"\n") ||
		!strings.Contains(out, "rid\tdirectory\t"+rid+"\n") {
		t.Errorf("get shows\n%q", out)
	}

	w = newWorld(t, problem(403, "forbidden", hostile))
	if _, _, errs := w.run("get", "weather"); !strings.Contains(errs, escaped) {
		t.Errorf("an error shows\n%q", errs)
	}
}

// Requirement: OPS-005
func TestAnEmptyLookupSucceeds(t *testing.T) {
	w := newWorld(t, says(`{"agents":[]}`))

	code, out, errs := w.run("lookup", "--agent", "nobody")
	if code != 0 || out != "" || errs != "No agent matches.\n" {
		t.Errorf("exit code %d, data %q, notes %q", code, out, errs)
	}
}

func TestLookupFollowsThePages(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		n := r.URL.Query().Get("after")
		if n == "" {
			n = "0"
		}

		if n < "2" {
			w.Header().Set("Link", fmt.Sprintf(`</ad/l?page=1&after=%c>; rel="next"`, n[0]+1))
		}

		says(fmt.Sprintf(`{"agents":[{"agent":"a%s", "x": 1}]}`, n))(w, r)
	})

	code, out, errs := w.run("lookup", "--all", "-o", "json")
	if want := `{"agents":[{"agent":"a0", "x": 1},{"agent":"a1", "x": 1},{"agent":"a2", "x": 1}]}` + "\n"; code != 0 ||
		out != want || errs != "" {
		t.Errorf("exit code %d, notes %q, got\n%s", code, errs, out)
	}

	if _, out, errs = w.run("lookup"); strings.Count(out, "\n") != 2 || !strings.Contains(errs, "--all") {
		t.Errorf("one page: %q, notes %q", out, errs)
	}
}

func TestLookupSendsItsFilters(t *testing.T) {
	var asked string
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Encode()
		says(`{"agents":[{"agent":"weather"}]}`)(w, r)
	})
	w.run("lookup", "--agent", "w*", "--cap", "sum*", "--type", "tool", "--tag", "a", "--tag", "b", "--protocol", "mcp",
		"--origin", "beta.test", "--scope", "mesh", "--status", "active", "--count", "5")

	if want := "agent=w%2A&cap_name=sum%2A&cap_type=tool&count=5&origin=beta.test&protocol=mcp&scope=mesh&" +
		"status=active&tag=a&tag=b"; asked != want {
		t.Errorf("asked for %s\nwant %s", asked, want)
	}
}

// A domain of which nothing is visible is named; that is no error.
func TestAnUnknownOriginIsNamed(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		agents := `{"agents":[]}`
		if q := r.URL.Query(); q.Get("origin") == "beta.test" && q.Get("agent") == "" {
			agents = `{"agents":[{"agent":"weather"}]}`
		}

		says(agents)(w, r)
	})

	for args, want := range map[string]string{
		"lookup --origin nowhere.test":            "no agent of nowhere.test is visible to you\n",
		"lookup --origin beta.test --agent other": "No agent matches.\n",
		"lookup --agent other":                    "No agent matches.\n",
	} {
		if code, out, errs := w.run(words(args)...); code != 0 || out != "" || errs != want {
			t.Errorf("%s: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}

// Changes print what they did with -o json, also if the answer has no body, and with the revision;
// a refresh prints the new deadline in a table too.
// notes/users.md: "writes print nothing on stdout even with -o json".
//
// Requirement: OPS-004
func TestChangesPrintWhatTheyDid(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			says(`{"version":1,"policy":"","peers":[{"domain":"beta.test"}]}`)(w, r)
			return
		}

		if r.URL.Path == "/v1/operator/policy/preview" {
			says(`{"peers":[]}`)(w, r)
			return
		}

		w.Header().Set("Roster-Index", "alpha.test=1780315200.42")

		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/ad/r/") {
			w.Header().Set("Sunset", "Wed, 25 Nov 2026 03:00:00 GMT")
		}

		w.WriteHeader(http.StatusNoContent)
	})
	policy := w.file("policy.cedar", "@id(\"all\")\npermit (principal, action, resource);\n")

	const key = "hTcAJlfmaYsKuS-7FkzfT2tmfb2fWCoQWOyG_QcFNsw"

	const position = `,"revision":42,"index":"alpha.test=1780315200.42"}`

	for args, want := range map[string]string{
		"refresh weather": `{"href":"/ad/r/weather","result":"refreshed","revision":42,` +
			`"index":"alpha.test=1780315200.42","expires_at":"2026-11-25T03:00:00Z"}`,
		"deregister weather": `{"href":"/ad/r/weather","result":"removed"` + position,
		"raft remove " + nodeID: `{"href":"/v1/operator/raft","subject":"` + nodeID + `","result":"removed"` +
			position,
		"raft admit " + nodeID: `{"href":"/v1/operator/raft","subject":"` + nodeID + `","result":"admitted"` +
			position,
		"raft transfer": `{"href":"/v1/operator/raft","result":"transferred"` + position,
		"raft leave":    `{"href":"/v1/operator/raft","result":"left"` + position,
		"history erase 01M6A6FT000410600000000000": `{"href":"/ad/r/01M6A6FT000410600000000000/history",` +
			`"subject":"01M6A6FT000410600000000000","result":"erased"` + position,
		"keys rotate":            `{"href":"/v1/operator/keys","result":"rotated"` + position,
		"keys revoke " + key:     `{"href":"/v1/operator/keys","subject":"` + key + `","result":"revoked"` + position,
		"policy apply " + policy: `{"href":"/v1/operator/policy","result":"applied"` + position,
		"raft confirm-clock --step -1h": `{"href":"/v1/operator/status","result":"confirmed"` +
			position,
		"peer set beta.test --records 5": `{"href":"/v1/operator/peers","subject":"beta.test","result":"updated"` +
			position,
		"peer export beta.test": `{"href":"/v1/operator/peers","subject":"beta.test","result":"export"` + position,
	} {
		code, out, errs := w.run(append(words(args), "-o", "json")...)
		if code != 0 || strings.TrimSpace(out) != want {
			t.Errorf("%s: exit code %d, %s%s\nwant %s", args, code, out, errs, want)
		}

		w.env["ROSTER_OUTPUT"] = "yaml"

		code, out, errs = w.run(append(words(args), "-q")...)
		if code != 0 || !strings.HasPrefix(out, "href: ") || errs != "" {
			t.Errorf("%s: exit code %d, %q, %q", args, code, out, errs)
		}

		delete(w.env, "ROSTER_OUTPUT")
	}

	if _, out, _ := w.run("refresh", "weather", "--no-headers"); out != "weather\t2026-11-25T03:00:00Z\n" {
		t.Errorf("a refresh prints %q", out)
	}

	if _, _, errs := w.run("refresh", "weather", "-v"); !strings.Contains(errs, "POST "+w.env["ROSTER_ADDRESS"]+
		"/ad/r/weather: 204 No Content") {
		t.Errorf("-v prints %q", errs)
	}

	w.env["ROSTER_OUTPUT"] = "xml"
	if code, _, errs := w.run("lookup"); code != 2 || !strings.Contains(errs, "ROSTER_OUTPUT must be one of") {
		t.Errorf("exit code %d: %s", code, errs)
	}

	delete(w.env, "ROSTER_OUTPUT")

	w.env["ROSTER_ADDRESS"] += "," + w.env["ROSTER_ADDRESS"]
	if code, _, errs := w.run("raft", "leave"); code != 2 || !strings.Contains(errs, "--address") {
		t.Errorf("leave with two addresses: exit code %d: %s", code, errs)
	}
}

const nodeID = "spiffe://alpha.test/roster/node/4"

// Lines of an audit log that have no numbers are read by page no further than the first one, and
// the failure says how to read them.
func TestAuditLinesWithoutNumbers(t *testing.T) {
	w := newWorld(t, says(`{"node":"spiffe://alpha.test/roster/node/1","lines":[{"time":"2026-01-02T03:04:05Z",`+
		`"phase":"outcome","action":"register"}],"more":true}`))

	code, _, errs := w.run("audit")
	if code != 1 || !strings.Contains(errs, "have no numbers") || !strings.Contains(errs, "--file") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// In JSON, malformed lines of an audit log are left out, and the command fails.
func TestMalformedAuditLines(t *testing.T) {
	w := newWorld(t, nil)
	file := w.file("audit.jsonl", "\nnot JSON\n{}\n"+
		`{"time":"2026-01-02T03:04:05Z","phase":"outcome","action":"register"}`+"\n")

	code, out, errs := w.run("audit", "--file", file, "-o", "json")
	if code == 0 || !strings.HasPrefix(out, `{"node":`) || strings.Count(out, "\n") != 1 || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
