package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway/probe"
)

// elsewhere is an origin on loopback, and what an import from it takes.
func elsewhere(t *testing.T, w *world, h http.HandlerFunc) (url string, flags []string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	bundle := w.file("source.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	return s.URL, []string{"--insecure-loopback", "--source-bundle", bundle, "-o", "json"}
}

func reported(t *testing.T, out string) []item {
	t.Helper()
	var report struct{ Items []item }
	must(t, json.Unmarshal([]byte(out), &report))
	return report.Items
}

// Requirement: WOA-013, WOA-018, WOA-021, WOA-035
func TestImportOfAnOrigin(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	var lifetime string
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		lifetime = r.URL.Query().Get("lt")
		d.ServeHTTP(w, r)
	})
	agent := func(id, more string) string {
		return `{"id":"` + id + `","name":"N","description":"D","inputs":{"type":"object"},"outputs":{"type":"object"},"transports":["rest"]` + more + `}`
	}
	origin, flags := elsewhere(t, w, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/woa+json")
		w.Header().Set("Cache-Control", "max-age=600")
		fmt.Fprintf(w, `{"woa_version":"1","agents":[%s,%s],"transports":{"rest":{"base":"https://api.example.com/","invoke_path":"/a/{agent_id}"}}}`,
			agent("good", ``), agent("bad", `,"authz":{"password":"p"}`))
	})
	code, out, notes := w.run(append([]string{"import", "woa", origin}, flags...)...)
	items, host := reported(t, out), strings.TrimPrefix(origin, "https://")
	if code != 1 || len(items) != 2 || items[0].Agent != "good@"+host || items[0].Result != registered || len(items[0].Warnings) != 1 ||
		items[1].Result != refused || !strings.Contains(items[1].Pointer, "password") {
		t.Errorf("exit code %d, %+v, %s", code, items, notes)
	}
	if d.posts["good@"+host] != 1 || len(d.posts) != 1 || lifetime != "1860" {
		t.Errorf("registered %v for %s s", d.posts, lifetime)
	}
	code, _, notes = w.run("import", "woa", origin)
	if code != 1 || !strings.Contains(notes, "--insecure-loopback") {
		t.Errorf("from loopback: exit code %d, %s", code, notes)
	}
	if code, _, _ = w.run("import", "woa", "http"+origin[len("https"):], "--insecure-loopback"); code != 2 {
		t.Errorf("by plain HTTP: exit code %d", code)
	}
}

// A registry's list is read to its end; of each server the latest version is taken.
func TestImportOfARegistry(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)
	server := func(name, version, meta string) string {
		return fmt.Sprintf(`{"server":{"name":%q,"version":%q,"remotes":[{"url":"https://%s.example"}]},"_meta":{"io.modelcontextprotocol.registry/official":%s}}`,
			name, version, strings.TrimPrefix(name, "io."), meta)
	}
	registry, flags := elsewhere(t, w, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			fmt.Fprintf(w, `{"servers":[%s,%s],"metadata":{"nextCursor":"a:1&b"}}`,
				server("io.a", "1", `{"isLatest":false}`), server("io.a", "2", `{"isLatest":true,"status":"active"}`))
		case "a:1&b":
			fmt.Fprintf(w, `{"servers":[%s,%s],"metadata":{"count":2}}`, server("io.b", "1", `{"isLatest":true,"status":"deleted"}`), server("io.c", "1", `{}`))
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	code, out, notes := w.run(append([]string{"import", "mcp", registry + "/v0/servers?limit=2"}, flags...)...)
	if items := reported(t, out); code != 0 || len(items) != 2 || d.posts["io.a"] != 1 || d.posts["io.c"] != 1 || len(d.posts) != 2 {
		t.Errorf("exit code %d, %+v, %v, %s", code, items, d.posts, notes)
	}
}

// A list that never ends is not read for ever, and a cursor that is told by both of
// its names is one.
func TestImportOfAListThatTurnsBack(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)
	pages := 0
	list, flags := elsewhere(t, w, func(w http.ResponseWriter, r *http.Request) {
		pages++
		fmt.Fprintf(w, `{"servers":[],"metadata":{"nextCursor":"again","next_cursor":"again"}}`)
		if c := r.URL.Query().Get("cursor"); c != "" && c != "again" {
			t.Errorf("the cursor is %q", c)
		}
	})
	code, _, notes := w.run(append([]string{"import", "mcp", list + "/v0/servers"}, flags...)...)
	if code != 1 || pages != 2 || !strings.Contains(notes, "has no end") {
		t.Errorf("exit code %d after %d pages: %s", code, pages, notes)
	}
}

// Cards and records are read from URLs as well, alone or many: as registries list cards,
// too.
func TestImportOfLists(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)
	const record = `{"name":%q,"version":"v1","schema_version":"1.0.0","description":"D","authors":["A"],"skills":[{"name":"planning/routes","id":7}],"locators":[{"type":"container_image","urls":["https://ghcr.io/x"]}]}`
	origin, flags := elsewhere(t, w, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/agents":
			fmt.Fprintf(w, `{"agents":[%s,{"agent_card":%s,"registered":"yesterday"}],"count":2}`, card("A", "https://a.example"), card("B", "https://b.example"))
		case "/records":
			fmt.Fprintf(w, "["+record+","+record+"]", "org/x", "org/y")
		case "/record":
			fmt.Fprintf(w, record, "org/z")
		}
	})
	for kind, path := range map[string][]string{"a2a": {"/agents"}, "oasf": {"/records", "/record"}} {
		for _, path := range path {
			if code, out, notes := w.run(append([]string{"import", kind, origin + path}, flags...)...); code != 0 {
				t.Errorf("%s: exit code %d, %s %s", path, code, out, notes)
			}
		}
	}
	if names := slices.Sorted(maps.Keys(d.posts)); strings.Join(names, " ") != "a.example b.example org/x org/y org/z" {
		t.Errorf("registered %q", names)
	}
}

// Of an origin, the agent card is where A2A has it.
func TestImportOfACard(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)
	origin, flags := elsewhere(t, w, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != probe.CardPath {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, card("A", "https://a.example"))
	})
	code, out, notes := w.run(append([]string{"import", "a2a", origin}, flags...)...)
	if items := reported(t, out); code != 0 || len(items) != 1 || items[0].Source != origin+probe.CardPath || d.posts["a.example"] != 1 {
		t.Errorf("exit code %d, %+v, %s", code, items, notes)
	}
	if code, _, _ := w.run(append([]string{"import", "a2a", origin + "/elsewhere"}, flags...)...); code != 1 {
		t.Errorf("what is not there: exit code %d", code)
	}
}

// An import that stays follows what the origin lists: it refreshes what is as it was,
// registers what is new or has changed, and removes what it registered and is listed
// no more. What it did not register it leaves alone.
//
// Requirement: WOA-013, WOA-032
func TestAnImportFollowsTheOrigin(t *testing.T) {
	var mu sync.Mutex // guards what the directory had to do
	var did []string
	made := map[string]string{} // by rid
	d := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		rid := strings.TrimPrefix(r.URL.Path, "/ad/r/")
		name := r.URL.Query().Get("agent")
		id, _, _ := strings.Cut(name, "@")
		switch {
		case r.Method == http.MethodDelete:
			did = append(did, "remove "+made[rid])
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/ad/r" && name != "":
			did = append(did, "register "+id)
			rid = fmt.Sprintf("01JWNTC0000000000000000%03d", len(made))
			made[rid] = id
			w.Header().Set("Location", "/ad/r/"+rid)
			w.WriteHeader(http.StatusCreated)
		default:
			var asked []struct{ ID string }
			must(t, json.NewDecoder(r.Body).Decode(&asked))
			told := []map[string]any{}
			for _, one := range asked {
				did = append(did, "refresh "+made[one.ID])
				told = append(told, map[string]any{"id": one.ID, "status": 204, "lt": 1860})
			}
			must(t, json.NewEncoder(w).Encode(told))
		}
	}))
	defer d.Close()
	w := newWorld(t, http.NotFound)
	agent := func(id, description string) string {
		return `{"id":"` + id + `","name":"N","description":"` + description + `","inputs":{"type":"object"},"outputs":{"type":"object"},"transports":["rest"]}`
	}
	listed, away := []string{agent("stays", "D"), agent("changes", "D"), agent("goes", "D")}, false
	origin, _ := elsewhere(t, w, func(w http.ResponseWriter, r *http.Request) {
		if away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		text := `{"woa_version":"1","agents":[` + strings.Join(listed, ",") + `],"transports":{"rest":{"base":"https://api.example.com","invoke_path":"/a/{agent_id}"}}}`
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text)))
		w.Header().Set("Content-Type", "application/woa+json")
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, text)
	})
	var notes bytes.Buffer
	a := &app{stdout: io.Discard, stderr: &notes, program: "roster", connection: connection{
		getenv: func(string) string { return "" }, dial: func() (*apiclient.Client, error) { return apiclient.NewDirect(d.URL, d.Client()), nil },
	}}
	im := &importing{fetching: fetching{app: a, loopback: true, sourceBundle: filepath.Join(w.dir, "source.pem")}, kind: directory.KindWoA}
	client, err := a.client()
	must(t, err)
	defer a.close()
	items, err := im.gather(t.Context(), origin)
	must(t, err)
	im.check(items)
	must(t, im.each(t.Context(), items, func(ctx context.Context, i *item) error { return im.registerOne(ctx, client, i) }))
	kept := map[string]*item{}
	for _, i := range registeredOf(items) {
		kept[i.Agent] = i
	}
	step := func(what string, fails bool, want ...string) {
		t.Helper()
		did = nil
		if err := im.followOnce(t.Context(), client, origin, kept); (err != nil) != fails {
			t.Fatalf("%s: %v", what, err)
		}
		if slices.Sort(did); !slices.Equal(did, want) {
			t.Errorf("%s: %q, want %q", what, did, want)
		}
	}
	step("as it was", false, "refresh changes", "refresh goes", "refresh stays")
	listed = []string{agent("stays", "D"), agent("changes", "E"), agent("comes", "D")}
	step("changed", false, "refresh stays", "register changes", "register comes", "remove goes")
	away = true
	step("away", true)
	away = false
	step("back", false, "refresh changes", "refresh comes", "refresh stays")
	listed = []string{strings.Replace(agent("stays", "D"), `"inputs":{"type":"object"},`, ``, 1)}
	step("broken", false, "remove changes", "remove comes")
	step("and so on", false)
	if !strings.Contains(notes.String(), "is listed no more, and removed") {
		t.Errorf("it says %s", notes.String())
	}
}
