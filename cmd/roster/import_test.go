package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// An item is one document in the report of an import.
type item struct {
	Source, Agent, Result, RID, Reason, Pointer, Signature string
	Warnings                                               []string
}

func card(name, url string) string { return `{"name":"` + name + `","url":"` + url + `"}` }

// A registry is a directory that accepts all registrations except the names in refuse.
type registry struct {
	refuse map[string]http.HandlerFunc

	mu    sync.Mutex // guards posts
	posts map[string]int
}

func (d *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		problem(404, "not-found", "none")(w, r)
		return
	}

	name := r.URL.Query().Get("agent")
	if refuse := d.refuse[name]; r.Header.Get("If-Match") != "" && refuse == nil {
		problem(412, "precondition-failed", "another revision")(w, r)
		return
	}

	d.mu.Lock()
	d.posts[name]++
	d.mu.Unlock()

	if refuse := d.refuse[name]; refuse != nil {
		refuse(w, r)
		return
	}

	w.Header().Set("Location", "/ad/r/"+rid)
	w.WriteHeader(http.StatusCreated)
}

// importInto imports files with these contents and returns the report.
func importInto(t *testing.T, d *registry, kind string, files map[string]string, flags ...string) (code int,
	items []item, notes string) {
	t.Helper()
	d.posts = map[string]int{}
	w := newWorld(t, d.ServeHTTP)
	dir := filepath.Join(w.dir, "in")
	must(t, os.Mkdir(dir, 0o700))

	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	code, out, notes := w.run(append([]string{"import", kind, dir, "-o", "json"}, flags...)...)

	var report struct{ Items []item }
	must(t, json.Unmarshal([]byte(out), &report))

	return code, report.Items, notes
}

// A refused document doesn't stop the others, and the report has its reason.
func TestImportContinuesAfterARefusal(t *testing.T) {
	d := &registry{refuse: map[string]http.HandlerFunc{"taken.example": problem(409, "agent-name-taken",
		"held by another")}}
	code, items, notes := importInto(t, d, "a2a", map[string]string{
		"1.json": card("A", "https://a.example/x/"), "2.json": card("T", "https://taken.example"), "3.json": "{",
		"4.json": card("A2", "https://a.example/x"),
		"5.json": `{"url":"https://nameless.example"}`, "6.json": card("B", "https://b.example"), "README": "not read",
	})

	var got []string
	for _, i := range items {
		got = append(got, i.Source+" "+i.Agent+" "+i.Result)
	}

	want := "1.json a.example/x registered|2.json taken.example refused|3.json  refused|4.json a.example/x " +
		"refused|5.json nameless.example refused|6.json b.example registered"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}

	if code != 1 || !strings.HasPrefix(notes, `{"error":"imported 2 of 6: 4 refused",`) {
		t.Errorf("exit code %d, notes %q", code, notes)
	}

	for n, reason := range map[int]string{1: "held by another", 2: "JSON", 3: "1.json has the same name", 4: "name"} {
		if !strings.Contains(items[n].Reason, reason) {
			t.Errorf("%s is refused because %q; want a word on %s", items[n].Source, items[n].Reason, reason)
		}
	}

	if d.posts["a.example/x"] != 1 {
		t.Errorf("one document replaced another: %v", d.posts)
	}
}

func TestImportReadsLists(t *testing.T) {
	const a, b = `{"name":"io.a/x","remotes":[{"url":"https://a.example"}]}`,
		`{"name":"io.b/y","remotes":[{"url":"https://b.example"}]}`
	for name, text := range map[string]string{
		"an array":          `[` + a + `,` + b + `]`,
		"a registry's list": `{"servers":[` + a + `,` + b + `],"metadata":{"count":2}}`,
		"with envelopes":    `{"servers":[{"server":` + a + `,"_meta":{}},{"server":` + b + `,"_meta":{}}]}`,
	} {
		d := &registry{}

		code, items, notes := importInto(t, d, "mcp", map[string]string{"list.json": text})
		if code != 0 || len(items) != 2 || d.posts["io.a/x"] != 1 || d.posts["io.b/y"] != 1 ||
			items[1].Source != "list.json#2" || notes != "imported 2 of 2\n" {
			t.Errorf("%s: exit code %d, %+v, %v, %q", name, code, items, d.posts, notes)
		}
	}

	// A document that is not strict JSON is refused alone.
	code, items, _ := importInto(t, &registry{}, "mcp",
		map[string]string{"list.json": `[` + a + `,{"name":"io.c/z","name":"io.d/z"},` + b + `]`})
	if code != 1 || len(items) != 3 || items[1].Result != "refused" || items[2].Result != "registered" {
		t.Errorf("exit code %d, %+v", code, items)
	}
}

// A saved list of a registry has every version of a server: one rule for it and for an array.
//
// Requirement: FLD-003
func TestAnImportTakesTheLatestVersion(t *testing.T) {
	server := func(version, status string, latest bool) string {
		return fmt.Sprintf(`{"server":{"name":"io.a/x","description":"d","version":%q,`+
			`"remotes":[{"type":"sse","url":"https://a.example/%s"}]},`+
			`"_meta":{"io.modelcontextprotocol.registry/official":{"status":%q,"isLatest":%t}}}`,
			version, version, status, latest)
	}
	inside := `{"name":"io.b/y","version":"1","remotes":[{"type":"sse","url":"https://b.example"}],` +
		`"_meta":{"io.modelcontextprotocol.registry/official":{"isLatest":false}}}`
	deleted := `{"name":"io.c/z","version":"1","status":"deleted","remotes":[{"type":"sse","url":"https://c.example"}]}`
	all := server("0.2.2", "active", false) + "," + server("0.30.1", "active", true) + "," +
		strings.ReplaceAll(server("1.0.0", "deleted", true), "io.a/x", "io.d/w") + "," + inside + "," + deleted

	for _, list := range []string{`[` + all + `]`, `{"servers":[` + all + `]}`} {
		d := &registry{}

		code, items, notes := importInto(t, d, "mcp", map[string]string{"list.json": list})
		if code != 0 || len(items) != 1 || items[0].Source != "list.json#2" || d.posts["io.a/x"] != 1 ||
			!strings.Contains(notes, "left out 4 of 5") {
			t.Errorf("exit code %d, %+v, %v, %q", code, items, d.posts, notes)
		}
	}

	// One element of a list is a server with its registry's data, too.
	for text, want := range map[string]int{server("2", "active", true): 1, server("1", "active", false): 0} {
		d := &registry{}
		if code, _, notes := importInto(t, d, "mcp", map[string]string{"one.json": text}); code != 0 ||
			d.posts["io.a/x"] != want || strings.Contains(notes, "left out 1 of 1") != (want == 0) {
			t.Errorf("exit code %d, %v, %q", code, d.posts, notes)
		}
	}
}

// Requirement: FLD-014
func TestADryRunRefusesANameThatNoDirectoryTakes(t *testing.T) {
	code, items, _ := importInto(t, &registry{}, "a2a",
		map[string]string{"1.json": card("A", "https://a.example/a2a/../b")}, "--dry-run")
	if code != 1 || items[0].Result != "refused" || !strings.Contains(items[0].Reason, `".."`) {
		t.Errorf("exit code %d, %+v", code, items)
	}
}

// Requirement: FLD-019
func TestWhiteSpaceOfADocumentCountsForNothing(t *testing.T) {
	skills := `"skills":[` + strings.Repeat("\n", 90_000) + `{"id":"a","name":"a"}],`
	text := strings.Replace(card("A", "https://a.example"), "{", "{"+skills, 1)

	d := &registry{}
	if code, items, _ := importInto(t, d, "a2a", map[string]string{"1.json": text}); code != 0 ||
		d.posts["a.example"] != 1 {
		t.Errorf("exit code %d, %+v", code, items)
	}
}

func TestADryRunRegistersNothing(t *testing.T) {
	d := &registry{}

	code, items, notes := importInto(t, d, "a2a",
		map[string]string{"1.json": card("A", "https://a.example"), "2.json": card("B", "ftp://")}, "--dry-run")
	if code != 1 || items[0].Result != "new" || items[1].Result != "refused" || len(d.posts) != 0 ||
		!strings.Contains(notes, "1 of 2 can be imported") {
		t.Errorf("exit code %d, %+v, %v, %q", code, items, d.posts, notes)
	}
}

// A dry run that is interrupted has not found out that the rest can be imported.
func TestAnInterruptedDryRunFails(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()

	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	})

	code, out, notes := w.runWith(ctx, "import", "a2a", w.file("a.json", card("A", "https://a.example")), "--dry-run")
	if code != 130 || !strings.Contains(out, "untried") ||
		!strings.Contains(notes, "0 of 1 can be imported, then stopped") {
		t.Errorf("exit code %d: %s %s", code, out, notes)
	}
}

// An import that is interrupted says what it registered, and that the rest was not tried.
func TestAnInterruptedImportSaysHowFarItCame(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()

	var waiting atomic.Int32

	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("agent") == "0.example" {
			w.Header().Set("Location", "/ad/r/"+rid)
			w.WriteHeader(http.StatusCreated)

			return
		}

		// As many as are asked at once wait, so the first has its answer.
		if waiting.Add(1) == connect.MaxParallel {
			interrupt()
		}

		<-r.Context().Done()
	})

	dir := filepath.Join(w.dir, "in")
	must(t, os.Mkdir(dir, 0o700))

	for i := range connect.MaxParallel + 1 {
		text := card("A", fmt.Sprintf("https://%d.example", i))
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.json", i)), []byte(text), 0o600))
	}

	code, out, notes := w.runWith(ctx, "import", "a2a", dir)

	want := fmt.Sprintf("imported 1 of %d, then stopped", connect.MaxParallel+1)
	if code != 130 || strings.Count(out, "registered") != 1 || strings.Count(out, "untried") != connect.MaxParallel ||
		!strings.Contains(notes, want) {
		t.Errorf("exit code %d: %s %s", code, out, notes)
	}
}

// A dry run tells what an import would find: new names, those of other domains alone and refusals by the
// directory.
func TestADryRunComparesWithTheDirectory(t *testing.T) {
	const base = `"agent":"a.example","href":"/ad/r/` + rid + `"`

	accepts, absent := problem(412, "precondition-failed", "none"), problem(404, "not-found", "none")
	copied := says(`{` + base + `,"provenance":{"verification":{"state":"verified"}}}`)

	for name, x := range map[string]struct {
		get, post http.HandlerFunc
		result    string
		code      int
		reason    string
	}{
		"new":        {absent, accepts, "new", 0, ""},
		"of several": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(300) }, accepts, "new", 0, ""},
		"of a peer":  {copied, accepts, "new", 0, ""},
		"another's":  {absent, problem(403, "forbidden", "not yours"), "refused", 1, "not yours"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					x.get(w, r)
					return
				}

				if r.Header.Get("If-Match") == "" {
					t.Error("a dry run registers")
				}

				x.post(w, r)
			})
			file := w.file("a.json", card("A", "https://a.example"))
			code, out, notes := w.run("import", "a2a", file, "--dry-run", "-o", "json")

			var report struct{ Items []item }
			must(t, json.Unmarshal([]byte(out), &report))

			if code != x.code || len(report.Items) != 1 || report.Items[0].Result != x.result ||
				!strings.Contains(report.Items[0].Reason, x.reason) {
				t.Errorf("exit code %d: %s %s", code, out, notes)
			}
		})
	}
}

// The import stops at an error that the next document would have too.
func TestImportStopsWhenTheDirectoryIsUnreachable(t *testing.T) {
	files := map[string]string{}
	for _, n := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		files[n+".json"] = card(n, "https://"+n+".example")
	}

	for _, c := range []struct {
		answer http.HandlerFunc
		code   int
	}{{problem(503, "unavailable", "no leader"), 6}, {problem(401, "unauthenticated", "who are you"), 4},
		{problem(429, "rate-limited", "later"), 6}} {
		// The other requests get no response before the first failure, however slow that is.
		d := &registry{refuse: map[string]http.HandlerFunc{"a.example": c.answer}}
		for name := range files {
			if host := strings.TrimSuffix(name, "json") + "example"; host != "a.example" {
				d.refuse[host] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
			}
		}

		code, items, notes := importInto(t, d, "a2a", files)
		if code != c.code || items[0].Result != "untried" || !strings.Contains(notes, "then stopped") {
			t.Errorf("exit code %d, want %d, notes %q", code, c.code, notes)
		}

		if items[25].Result != "untried" {
			t.Errorf("it went on to the end")
		}
	}
}

// The real cards and servers beside the project are imported, or refused with a reason.
func TestImportOfRealDocuments(t *testing.T) {
	for _, c := range []struct {
		kind, source string
		total, taken int
	}{{"a2a", "a2a", 59, 59}, {"mcp", "mcp-seed.json", 464, 460}} { // 7 of 471 are not current
		source := filepath.Join("..", "..", "..", "shared", "data", "agents", c.source)
		if _, err := os.Stat(source); err != nil {
			t.Skipf("no data beside the project: %v", err)
		}

		d := &registry{posts: map[string]int{}}
		w := newWorld(t, d.ServeHTTP)
		_, out, notes := w.run("import", c.kind, source, "-o", "jsonl")

		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != c.total || len(d.posts) < c.taken {
			t.Errorf("%s: %d of %d were taken: %s", c.kind, len(d.posts), len(lines), notes)
		}

		for _, line := range lines {
			var i item
			must(t, json.Unmarshal([]byte(line), &i))

			if i.Result == "refused" && i.Reason == "" || i.Result == "untried" {
				t.Errorf("no reason: %s", line)
			}
		}
	}
}
