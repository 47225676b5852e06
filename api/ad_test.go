package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// rid makes the text of a registration id.
func rid(n int) string {
	return "01JWNTC0000000000000000" + "000"[len(strconv.Itoa(n)):] + strconv.Itoa(n)
}

// A region that is cut off keeps discovering until its answers are too old.
func TestDefaultReadsEndWithTheirAge(t *testing.T) {
	for _, x := range []struct {
		heard  time.Duration
		query  string
		status int
	}{
		{0, "", 200}, {300 * time.Second, "", 200}, {301 * time.Second, "", 503},
		{301 * time.Second, "?consistency=default", 503}, {time.Hour, "?consistency=stale", 200},
	} {
		s := newTestServer(t, func(cfg *Config) {
			cfg.Registry = cutOff{heard: x.heard}
		}, entry(t, alpha, rid(1), "one", 1, aDocument))
		for _, target := range []string{"/ad/l", "/ad/r/" + rid(1)} {
			resp := ask(t, s, "", "GET", target+x.query, "")
			wantStatus(t, resp, x.status)

			if got := resp.Header.Get("Roster-Stale"); got != strconv.Itoa(int(x.heard.Seconds())) {
				t.Errorf("%s after %s: Roster-Stale is %s", target, x.heard, got)
			}

			if (resp.Header.Get("Retry-After") != "") != (x.status == 503) {
				t.Errorf("%s after %s: Retry-After is %q", target, x.heard, resp.Header.Get("Retry-After"))
			}
		}

		wantStatus(t, ask(t, s, "", "GET", "/.well-known/ad", ""), 200)
	}
}

// A node that has not caught up with its own domain answers what is of other domains alone, on every
// surface.
func TestOtherDomainsAreReadBeforeTheOwnIsCaughtUp(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) { cfg.CaughtUp = func() bool { return false } },
		entry(t, beta, rid(1), "one", 1, aDocument))

	for target, want := range map[string]int{
		"/ad/l": 503, "/ad/l?origin=beta.test": 200, "/ad/l?origin=alpha.test": 503,
		"/agents": 503, "/agents?origin=beta.test": 200, "/agents?origin=alpha.test": 503,
		"/ad/watch?scope=all": 503, "/ad/r/one": 503, "/ad/r/beta.test/" + rid(1): 200,
		"/agents/one?origin=beta.test": 503, // a filter of lists alone
	} {
		if resp := ask(t, s, "", "GET", target, ""); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, resp.StatusCode, want)
		}
	}
}

// What policy hides isn't there, but for its owner and commissioning tools: not by
// rid or name, not for a condition, not in a page's count.
//
// Requirement: AD-002, AD-035, AD-043
func TestHiddenRegistrations(t *testing.T) {
	hidden := entry(t, alpha, rid(1), "secret-one", 1, aDocument)

	s := newTestServer(t, nil, hidden, entry(t, alpha, rid(2), "open-one", 2, aDocument))
	for caller, reads := range map[string]bool{"": false, "/agent/bob": false, "/agent/ada": true,
		"/tool/commissioner": true} {
		list := wantStatus(t, ask(t, s, caller, "GET", "/ad/l?agent=secret-*", ""), 200)["agents"].([]any)
		if (len(list) == 1) != reads {
			t.Errorf("%q finds %d", caller, len(list))
		}

		status := map[bool]int{false: 404, true: 200}[reads]
		for _, target := range []string{"/ad/r/" + rid(1), "/ad/r/secret-one"} {
			wantStatus(t, ask(t, s, caller, "GET", target, ""), status)
		}

		wantStatus(t, ask(t, s, caller, "GET", "/ad/r/"+rid(1), "", "If-None-Match", "*"),
			map[bool]int{false: 404, true: 304}[reads])

		for _, suffix := range []string{"/record", "/proof"} {
			if resp := ask(t, s, caller, "GET", "/ad/r/"+rid(1)+suffix, ""); (resp.StatusCode == 404) == reads {
				t.Errorf("%q gets %d for %s", caller, resp.StatusCode, suffix)
			}
		}

		page := ask(t, s, caller, "GET", "/ad/l?count=1", "")
		if more := page.Header.Get("Link") != ""; more != reads {
			t.Errorf("%q is told of another page: %v", caller, more)
		}

		if caller == "" {
			continue
		}

		// A write gets as far as the leader, who isn't there, where it may be made; where
		// it may not it gets as far as one to what isn't there either.
		for _, method := range []string{"POST", "DELETE"} {
			wantStatus(t, ask(t, s, caller, method, "/ad/r/"+rid(1), ""),
				ask(t, s, caller, method, "/ad/r/"+rid(9), "").StatusCode)
		}
	}
}

// The visibility is in the header, and in the body if it is not policy's default, at home, for
// each caller with an identity.
func TestVisibilityIsShown(t *testing.T) {
	for _, c := range []struct {
		visibility directory.Visibility
		header     string
		body       any
	}{
		{directory.Visibility{}, "domain", "domain"},
		{directory.Visibility{Mesh: true}, "mesh", nil},
	} {
		e := entry(t, alpha, "01JWNTC0000000000000000AD1", "shy", 17, aDocument)
		e.Visibility = c.visibility
		s := newTestServer(t, nil, e)

		for caller, want := range map[string]struct {
			header string
			body   any
		}{"/agent/bob": {c.header, c.body}, "": {}} {
			answer := ask(t, s, caller, "GET", "/ad/r/"+e.RID.String(), "")
			if got := answer.Header.Get(wire.HeaderVisibility); got != want.header {
				t.Errorf("to %q the header is %q, want %q", caller, got, want.header)
			}

			body := wantStatus(t, answer, 200)
			if got := body["provenance"].(map[string]any)["visibility"]; got != want.body {
				t.Errorf("to %q the body has %v, want %v", caller, got, want.body)
			}
		}
	}
}

// Requirement: AD-002, AD-081
func TestOnlyTheRegistrantWrites(t *testing.T) {
	s := newTestServer(t, nil, entry(t, alpha, rid(1), "one", 1, aDocument))
	for caller, status := range map[string]int{"": 401, "liar": 401, "/agent/bob": 403, "/agent/ada": 503,
		"/tool/commissioner": 503} {
		for _, method := range []string{"POST", "DELETE"} {
			resp := ask(t, s, caller, method, "/ad/r/"+rid(1), "")
			wantStatus(t, resp, status)

			if got := resp.Header.Get("WWW-Authenticate"); (got == "WPT") != (status == 401) {
				t.Errorf("%q %s: WWW-Authenticate is %q", caller, method, got)
			}
		}
	}
}

// Requirement: AD-068
func TestPolicyIsAskedFirst(t *testing.T) {
	taken := entry(t, alpha, rid(1), "reserved-one", 1, aDocument)
	s := newTestServer(t, nil, taken)

	body := wantStatus(t, ask(t, s, "/agent/bob", "POST", "/ad/r?agent=reserved-one", aDocument), 403)
	if names, ok := body["policies"].([]any); !ok || len(names) != 1 || names[0] != "reserved-names" {
		t.Errorf("the policies that decided are %v", body["policies"])
	}

	wantStatus(t, ask(t, s, "/agent/bob", "POST", "/ad/r?agent=free", aDocument), 503)
	// and on an update with a body, which claims anew
	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r/"+rid(1), `{"version":"2"}`), 403)
	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r/"+rid(1), ""), 403)
}

// A registration of another domain is found by its mirror path, and by its rid
// or name alone where there is one holder.
//
// Requirement: AD-064
func TestForeignRegistrations(t *testing.T) {
	s := newTestServer(t, nil,
		entry(t, beta, rid(1), "only-beta", 7, aDocument), entry(t, gamma, rid(2), "only-gamma", 8, aDocument),
		entry(t, beta, rid(3), "both", 9, aDocument), entry(t, gamma, rid(4), "both", 9, aDocument),
		entry(t, alpha, rid(5), "shared", 1, aDocument), entry(t, beta, rid(6), "shared", 9, aDocument))

	for _, target := range []string{"/ad/r/beta.test/" + rid(1), "/ad/r/" + rid(1), "/ad/r/only-beta"} {
		resp := ask(t, s, "", "GET", target, "")

		body := wantStatus(t, resp, 200)
		if body["href"] != "/ad/r/beta.test/"+rid(1) {
			t.Errorf("%s: href is %v", target, body["href"])
		}

		if got := resp.Header.Get("Roster-Index"); got != "alpha.test=1780315200.385, beta.test=1780000000.17" {
			t.Errorf("%s: Roster-Index is %q", target, got)
		}

		if got := resp.Header.Get("Content-Location"); (got == "") != strings.HasPrefix(target, "/ad/r/beta.test/") {
			t.Errorf("%s: Content-Location is %q", target, got)
		}
	}

	if body := wantStatus(t, ask(t, s, "", "GET", "/ad/r/shared", ""), 200); body["href"] != "/ad/r/"+rid(5) {
		t.Errorf("a name of our own and another's is %v, want our own", body["href"])
	}

	resp := ask(t, s, "", "GET", "/ad/r/both", "")

	body := wantStatus(t, resp, 300)
	if links := resp.Header.Values("Link"); len(body["agents"].([]any)) != 2 || len(links) != 2 ||
		links[0] != "</ad/r/beta.test/"+rid(3)+`>; rel="alternate"` {
		t.Errorf("several holders: %v, Link %q", body, resp.Header.Values("Link"))
	}

	for _, target := range []string{"/ad/r/beta.test/" + rid(2), "/ad/r/nowhere.test/" + rid(1),
		"/ad/r/Beta.test/" + rid(1), "/ad/r/beta.test/only-beta"} {
		wantStatus(t, ask(t, s, "", "GET", target, ""), 404)
	}
}

// Only the origin writes; whoever tries elsewhere is told where that is.
func TestForeignRegistrationsAreReadOnly(t *testing.T) {
	s := newTestServer(t, nil, entry(t, beta, rid(1), "beta-one", 7, aDocument),
		entry(t, gamma, rid(2), "gamma-one", 7, aDocument), entry(t, beta, rid(3), "secret", 7, aDocument))
	for _, method := range []string{"POST", "DELETE"} {
		for _, caller := range []string{"/agent/ada", "/agent/bob", "/tool/commissioner"} {
			for _, target := range []string{"/ad/r/beta.test/" + rid(1), "/ad/r/" + rid(1), "/ad/r/beta-one"} {
				body := wantStatus(t, ask(t, s, caller, method, target, ""), 403)
				if body["type"] != publicURL+"/problems/foreign-registration" ||
					body["origin_authority"] != "beta.test" ||
					body["origin_href"] != "https://ad.beta.test:8401/ad/r/"+rid(1) {
					t.Errorf("%s %s by %s: %v", method, target, caller, body)
				}
			}
		}

		if body := wantStatus(t, ask(t, s, "/agent/ada", method, "/ad/r/"+rid(2), ""),
			403); body["origin_href"] != nil {
			t.Errorf("an origin whose URL is not known: %v", body)
		}

		wantStatus(t, ask(t, s, "/agent/ada", method, "/ad/r/beta.test/"+rid(3), ""), 404)
		wantStatus(t, ask(t, s, "", method, "/ad/r/beta.test/"+rid(1), ""), 401)
	}
}

// Requirement: AD-079
func TestEntityTags(t *testing.T) {
	e := entry(t, alpha, rid(1), "one", 381, aDocument)
	s := newTestServer(t, nil, e)

	tag := ask(t, s, "", "GET", "/ad/r/"+rid(1), "").Header.Get("ETag")
	if !strings.HasPrefix(tag, `"381.`) || len(tag) != len(`"381.01234567"`) {
		t.Fatalf("ETag is %s", tag)
	}

	if other := ask(t, s, "/agent/bob", "GET", "/ad/r/"+rid(1), "").Header.Get("ETag"); other == tag {
		t.Error("another view of the registration has the same strong tag")
	}

	for header, status := range map[string]int{tag: 304, "W/" + tag: 304, `"1.aa", ` + tag: 304, "*": 304,
		`"381.00000000"`: 200, "": 200} {
		resp := ask(t, s, "", "GET", "/ad/r/"+rid(1), "", "If-None-Match", header)
		wantStatus(t, resp, status)

		if resp.Header.Get("ETag") != tag || resp.Header.Get("Cache-Control") != "private, no-cache" {
			t.Errorf("If-None-Match %s: %v", header, resp.Header)
		}
	}

	list := ask(t, s, "", "GET", "/ad/l", "")
	if weak := list.Header.Get("ETag"); !strings.HasPrefix(weak, `W/"`) {
		t.Errorf("a list's ETag is %s", weak)
	} else {
		wantStatus(t, ask(t, s, "", "GET", "/ad/l", "", "If-None-Match", weak), 304)
	}
}

// Following next lists everything once, also while registrations come and go.
//
// Requirement: AD-032, AD-065, AD-066
func TestFollowingNextListsEverythingOnce(t *testing.T) {
	var entries []*directory.Entry
	for i := range 25 {
		entries = append(entries, entry(t, alpha, rid(i), "page "+strconv.Itoa(i), uint64(i+1), aDocument))
		entries = append(entries, entry(t, beta, rid(i+100), "page "+strconv.Itoa(i), uint64(i+1), aDocument))
	}

	s := newTestServer(t, nil, entries...)

	target, pages, seen := "/ad/l?protocol=mcp&agent=page+*&count=7&unknown=x&consistency=stale", 0, map[string]bool{}
	for target != "" {
		resp := ask(t, s, "", "GET", target, "")
		for _, item := range wantStatus(t, resp, 200)["agents"].([]any) {
			href := item.(map[string]any)["href"].(string)
			if seen[href] {
				t.Fatalf("%s comes twice", href)
			}

			seen[href] = true
		}

		pages++
		link := resp.Header.Get("Link")

		want := "</ad/l?protocol=mcp&agent=page+*&count=7&consistency=stale&page=" + strconv.Itoa(pages) + "&after="
		if link != "" && !strings.HasPrefix(link, want) {
			t.Fatalf("Link is %s, want %s…", link, want)
		}

		target, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")

		if pages == 2 {
			s.cfg.View.Own().Delete(entries[0].RID)
			s.cfg.View.Own().Put(entry(t, alpha, rid(200), "page late", 100, aDocument))
			seen["/ad/r/"+rid(200)] = false
		}
	}

	if len(seen) != 51 || !seen["/ad/r/"+rid(200)] || pages != 8 {
		t.Errorf("%d were seen on %d pages", len(seen), pages)
	}
}

// No query makes the directory fail, and every next link works.
//
// Requirement: AD-030, AD-059
func FuzzLookup(f *testing.F) {
	for _, q := range []string{"", "agent=*&count=1", "cap_name=p*e", "after=x", "page=99999", "%zz=1&agent=%zz",
		"tag=a&tag=b&status=active",
		"origin=beta.test&scope=domain", "count=-1", "brief=maybe", "agent=%ff", ";&=&&;=", "consistency=linearizable",
		"agent=caf%C3%A9"} {
		f.Add(q)
	}

	var entries []*directory.Entry
	for i := range 5 {
		entries = append(entries, entry(f, alpha, rid(i), "a"+strconv.Itoa(i), uint64(i+1), aDocument))
	}

	s := newTestServer(f, nil, entries...)
	f.Fuzz(func(t *testing.T, query string) {
		r, err := http.NewRequest("GET", "https://ad.alpha.test:8400/ad/l", nil)
		must(t, err)

		r.URL.RawQuery = query
		for range 10 {
			w := newBuffer()
			s.Handler().ServeHTTP(w, r)

			if w.status != 200 && w.status != 400 && w.status != 503 { // 503: nothing is linearizable without a leader
				t.Fatalf("%q: status %d", r.URL.RawQuery, w.status)
			}

			link := w.header.Get("Link")
			if link == "" {
				return
			}

			if w.status != 200 {
				t.Fatalf("%q: status %d with a Link", r.URL.RawQuery, w.status)
			}

			target, _, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
			if r, err = http.NewRequest("GET", "https://ad.alpha.test:8400"+target, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A buffer is the least that a handler can answer to.
type buffer struct {
	header http.Header
	status int
}

func newBuffer() *buffer                      { return &buffer{header: http.Header{}} }
func (b *buffer) Header() http.Header         { return b.header }
func (b *buffer) WriteHeader(status int)      { b.status = status }
func (b *buffer) Write(p []byte) (int, error) { return len(p), nil }

// A behind is the registry of a node that lacks what the others have until it is
// asked to make sure.
type behind struct {
	cutOff
	view   *index.View
	lacks  *directory.Entry
	linear *int // how often it was asked
}

func (b behind) Linearize(context.Context) error {
	b.view.Own().Put(b.lacks)
	*b.linear++

	return nil
}

// A write that names its registration is not told that there is none by a node
// that has only not heard of it yet; one that names a rid is for the leader anyway.
//
// Requirement: AD-021
func TestAWriteByANameThatIsNewToTheNode(t *testing.T) {
	for name, write := range map[string]func(*Server) *http.Response{
		"refresh":    func(s *Server) *http.Response { return ask(t, s, "/agent/ada", "POST", "/ad/r/new-one", "") },
		"deregister": func(s *Server) *http.Response { return ask(t, s, "/agent/ada", "DELETE", "/ad/r/new-one", "") },
		"list": func(s *Server) *http.Response {
			return ask(t, s, "/agent/ada", "POST", "/ad/refresh", `[{"id":"new-one"},{"id":"no-one"},{"id":"nobody"}]`,
				"Content-Type", "application/json")
		},
	} {
		asked := 0

		s := newTestServer(t, func(cfg *Config) {
			cfg.Registry = behind{view: cfg.View, lacks: entry(t, alpha, rid(1), "new-one", 1, aDocument),
				linear: &asked}
		})
		if resp := write(s); resp.StatusCode != 503 || asked != 1 { // it gets as far as the leader that isn't there
			t.Errorf("%s: %d, and the node made sure %d times", name, resp.StatusCode, asked)
		}

		for _, id := range []string{"no-one", "new-one-2"} {
			wantStatus(t, ask(t, s, "/agent/ada", "DELETE", "/ad/r/"+id, ""), 404)
		}
	}

	s := newTestServer(t, nil)
	wantStatus(t, ask(t, s, "/agent/ada", "DELETE", "/ad/r/no-one", ""), 503) // nobody can say
}
