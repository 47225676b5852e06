package kinds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// A server.json is found by the tools in its publisher's data. That data has no fixed shape, so
// nothing in it refuses a document.
func TestToolsOfAnMCPServer(t *testing.T) {
	var many strings.Builder
	for n := range directory.MaxCapabilities + 1 {
		fmt.Fprintf(&many, `"t%d",`, n)
	}

	for tools, want := range map[string]string{
		`[{"name":"a","description":"Adds.","inputSchema":{"type":5}},{"name":"b"}]`: "a=Adds. b=",
		`["a","b","a"]`:                      "a= b=",
		`["\u00e9","e\u0301"]`:               "é=",
		`["","x*","\u200b",{"name":5},7,[]]`: "",
		`{"name":"a"}`:                       "",
		`null`:                               "",
		`[{"name":"a","description":"` + strings.Repeat("x", directory.MaxDescription+1) + `"}]`: "",
		`[` + many.String() + `"last"]`: "128",
	} {
		p := mustProject(t, "x", mustDocument(t, directory.KindMCP, `{"name":"n/x","remotes":[{"url":"https://x.test"}],
			"_meta":{"io.modelcontextprotocol.registry/publisher-provided":{"tools":`+tools+`}}}`))

		var got []string
		for _, c := range p.Capabilities {
			if c.Type != directory.CapabilityTool || c.InputSchema != nil {
				t.Errorf("%s: %+v", tools, c)
			}

			got = append(got, c.Name+"="+c.Description)
		}

		if found := strings.Join(got, " "); found != want && fmt.Sprint(len(got)) != want {
			t.Errorf("%.100s: %q, want %q", tools, found, want)
		}
	}

	for _, meta := range []string{`null`, `[]`, `{"io.modelcontextprotocol.registry/publisher-provided":"x"}`} {
		p := mustProject(t, "x", mustDocument(t, directory.KindMCP,
			`{"name":"n/x","remotes":[{"url":"https://x.test"}],"_meta":`+meta+`}`))
		if p.Capabilities != nil {
			t.Errorf("_meta %s: %+v", meta, p.Capabilities)
		}
	}
}

// The tools of a server replace those in its document, and leave all else there.
func TestToolsAreAddedToAServer(t *testing.T) {
	tools := []directory.Capability{{Name: "a", Description: "Adds."}, {Name: "b"}}

	const (
		key   = `"io.modelcontextprotocol.registry/publisher-provided"`
		begin = `{"name":"n/x","remotes":[{"url":"https://x.test"}]`
		list  = `"tools":[{"name":"a","description":"Adds."},{"name":"b"}]`
	)
	for written, want := range map[string]string{
		begin + `}`: begin + `,"_meta":{` + key + `:{` + list + `}}}`,
		begin + `,"_meta":{"x":1,` + key + `:{"y":2,"tools":["old"],"z":3}},"version":"1"}`: begin +
			`,"_meta":{"x":1,` + key + `:{"y":2,` + list + `,"z":3}},"version":"1"}`,
	} {
		got, err := kinds.WithTools(mustDocument(t, directory.KindMCP, written), tools)
		if string(got) != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", written, got, err, want)
		}
	}

	_, err := kinds.WithTools(mustDocument(t, directory.KindMCP, begin+`,"_meta":{`+key+`:[]}}`), tools)
	if err == nil || !strings.Contains(err.Error(), "must be an object") {
		t.Errorf("publisher's data that is an array: %v", err)
	}
}
