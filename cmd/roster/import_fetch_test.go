package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/gateway/probe"
)

// startOrigin starts an origin on loopback and returns the flags for an import from it.
func startOrigin(t *testing.T, w *world, h http.HandlerFunc) (url string, flags []string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	bundle := w.file("source.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))

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
		return `{"id":"` + id +
			`","name":"N","description":"D","inputs":{"type":"object"},"outputs":{"type":"object"},` +
			`"transports":["rest"]` + more + `}`
	}
	origin, flags := startOrigin(t, w, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/woa+json")
		w.Header().Set("Cache-Control", "max-age=600")
		fmt.Fprintf(w,
			`{"woa_version":"1","agents":[%s,%s],"transports":{"rest":{"base":"https://api.example.com/",`+
				`"invoke_path":"/a/{agent_id}"}}}`,
			agent("good", ``), agent("bad", `,"authz":{"password":"p"}`))
	})
	code, out, notes := w.run(append([]string{"import", "woa", origin}, flags...)...)

	items, host := reported(t, out), strings.TrimPrefix(origin, "https://")
	if code != 1 || len(items) != 2 || items[0].Agent != "good@"+host || items[0].Result != "registered" ||
		len(items[0].Warnings) != 1 ||
		items[1].Result != "refused" || !strings.Contains(items[1].Pointer, "password") {
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

// A registry's list is read to its end, and the latest version of each server imported.
func TestImportOfARegistry(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)
	server := func(name, version, meta string) string {
		return fmt.Sprintf(`{"server":{"name":%q,"version":%q,"remotes":[{"url":"https://%s.example"}]},`+
			`"_meta":{"io.modelcontextprotocol.registry/official":%s}}`,
			name, version, strings.TrimPrefix(name, "io."), meta)
	}
	registry, flags := startOrigin(t, w, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			fmt.Fprintf(w, `{"servers":[%s,%s],"metadata":{"nextCursor":"a:1&b"}}`,
				server("io.a", "1", `{"isLatest":false}`), server("io.a", "2", `{"isLatest":true,"status":"active"}`))
		case "a:1&b":
			fmt.Fprintf(w, `{"servers":[%s,%s],"metadata":{"count":2}}`,
				server("io.b", "1", `{"isLatest":true,"status":"deleted"}`), server("io.c", "1", `{}`))
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	})

	code, out, notes := w.run(append([]string{"import", "mcp", registry + "/v0/servers?limit=2"}, flags...)...)
	if items := reported(t, out); code != 0 || len(items) != 2 || d.posts["io.a"] != 1 || d.posts["io.c"] != 1 ||
		len(d.posts) != 2 {
		t.Errorf("exit code %d, %+v, %v, %s", code, items, d.posts, notes)
	}
}

// A list whose pages lead back to an earlier one is refused. A cursor under both of its
// names is one cursor.
func TestImportRefusesAnEndlessList(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)
	pages := 0
	list, flags := startOrigin(t, w, func(w http.ResponseWriter, r *http.Request) {
		pages++
		fmt.Fprintf(w, `{"servers":[],"metadata":{"nextCursor":"again","next_cursor":"again"}}`)

		if c := r.URL.Query().Get("cursor"); c != "" && c != "again" {
			t.Errorf("the cursor is %q", c)
		}
	})

	code, _, notes := w.run(append([]string{"import", "mcp", list + "/v0/servers"}, flags...)...)
	if code != 1 || pages != 2 || !strings.Contains(notes, "never ends") {
		t.Errorf("exit code %d after %d pages: %s", code, pages, notes)
	}
}

// A URL may hold one card or record, an array, or a registry's list of cards.
func TestImportOfLists(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)

	const record = `{"name":%q,"version":"v1","schema_version":"1.0.0","description":"D","authors":["A"],` +
		`"skills":[{"name":"planning/routes","id":7}],"locators":[{"type":"container_image",` +
		`"urls":["https://ghcr.io/x"]}]}`

	origin, flags := startOrigin(t, w, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/agents":
			fmt.Fprintf(w, `{"agents":[%s,{"agent_card":%s,"registered":"yesterday"}],"count":2}`,
				card("A", "https://a.example"), card("B", "https://b.example"))
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

// For an origin, the card at A2A's well-known path is imported.
func TestImportOfACard(t *testing.T) {
	d := &registry{posts: map[string]int{}}
	w := newWorld(t, d.ServeHTTP)
	origin, flags := startOrigin(t, w, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != probe.CardPath {
			http.NotFound(w, r)
			return
		}

		fmt.Fprint(w, card("A", "https://a.example"))
	})

	code, out, notes := w.run(append([]string{"import", "a2a", origin}, flags...)...)
	if items := reported(t, out); code != 0 || len(items) != 1 || items[0].Source != origin+probe.CardPath ||
		d.posts["a.example"] != 1 {
		t.Errorf("exit code %d, %+v, %s", code, items, notes)
	}

	if code, _, _ := w.run(append([]string{"import", "a2a", origin + "/startOrigin"}, flags...)...); code != 1 {
		t.Errorf("what is not there: exit code %d", code)
	}
}
