package api

import (
	"io"
	"strings"
	"testing"
)

// The page at / says for people and as JSON which directory it is, where its documentation is, and
// what this node serves, from the route table. notes/users.md: "the root URL / is a bare 404".
func TestThePageAtTheRootNamesWhatIsServed(t *testing.T) {
	s := newTestServer(t, whole)

	page := wantStatus(t, ask(t, s, "", "GET", "/", ""), 200)
	if page["domain"] != alpha.Name() || page["url"] == "" || len(page["documentation"].([]any)) == 0 {
		t.Errorf("it says %v", page)
	}

	listed := map[string]bool{}

	for _, route := range page["routes"].([]any) {
		route := route.(map[string]any)
		listed[route["method"].(string)+" "+route["path"].(string)] = true
	}

	resp := ask(t, s, "", "GET", "/", "", "Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	text, err := io.ReadAll(resp.Body)
	must(t, err)

	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "text/html; charset=utf-8" ||
		!strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Accept") ||
		!strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") ||
		!strings.Contains(string(text), "<h1>"+alpha.Name()) {
		t.Errorf("for people: %d %s %v\n%.300s", resp.StatusCode, got, resp.Header, text)
	}

	served := map[string]bool{}

	for _, route := range s.table() {
		served[route.method+" "+route.path] = true

		if !listed[route.method+" "+route.path] || !strings.Contains(string(text), "<code>"+route.path+"</code>") {
			t.Errorf("%s %s is served and not on the page", route.method, route.path)
		}
	}

	for route := range listed {
		if !served[route] {
			t.Errorf("%s is on the page and not served", route)
		}
	}
}
