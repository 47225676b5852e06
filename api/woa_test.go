package api

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/catalog"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// frontAll is a gateway that calls every agent but those that are called grpc.
func frontAll(cfg *Config) {
	cfg.Invocable = func(e *directory.Entry) bool { return !strings.HasPrefix(e.Agent, "grpc") }
}

func woaIDs(t *testing.T, body map[string]any) (ids []string) {
	t.Helper()

	for _, a := range body["agents"].([]any) {
		ids = append(ids, a.(map[string]any)["id"].(string))
	}

	return ids
}

// The list names the agents that this node's gateway invokes. notes/users.md: "README says the
// domain's agents".
//
// Requirement: WOA-001, WOA-002, WOA-004, WOA-019, WOA-020, WOA-037
func TestWoAListsWhatIsFronted(t *testing.T) {
	s := newTestServer(t, frontAll,
		entry(t, alpha, "01JWNTC0000000000000000AD1", "one", 1, aDocument),
		entry(t, alpha, "01JWNTC0000000000000000AD2", "secret", 2, aDocument),
		entry(t, alpha, "01JWNTC0000000000000000AD3", "grpc-only", 3, aDocument),
		entry(t, beta, "01JWNTC0000000000000000AD4", "foreign", 4, aDocument),
		// What has the same rid elsewhere can't be told from it by its id.
		entry(t, beta, "01JWNTC0000000000000000AD1", "squatter", 5, aDocument),
		entry(t, beta, "01JWNTC0000000000000000AD6", "twin", 6, aDocument),
		entry(t, gamma, "01JWNTC0000000000000000AD6", "twin", 7, aDocument),
	)
	for _, caller := range []string{"", "/tool/commissioner"} {
		resp := ask(t, s, caller, "GET", catalog.WebOfAgentsPath, "")
		body := wantStatus(t, resp, 200)

		want := []string{"01JWNTC0000000000000000AD1", "01JWNTC0000000000000000AD4"}
		if got := woaIDs(t, body); !slices.Equal(got, want) {
			t.Errorf("to %q it lists %v, want %v", caller, got, want)
		}

		same(t, "the transports", body["transports"],
			parse(t, []byte(`{"rest":{"base":"`+publicURL+`","invoke_path":"/agents/{agent_id}/invoke"}}`)))

		if body["woa_version"] != "1" || resp.Header.Get("Content-Type") != "application/woa+json" {
			t.Errorf("version %v, type %q", body["woa_version"], resp.Header.Get("Content-Type"))
		}
	}

	for accept, want := range map[string]string{"application/json": "application/json",
		"text/html": "application/woa+json", "application/json, */*": "application/woa+json"} {
		if got := ask(t, s, "", "GET", catalog.WebOfAgentsPath, "", "Accept",
			accept).Header.Get("Content-Type"); got != want {
			t.Errorf("to Accept: %s it is %s", accept, got)
		}
	}

	if got := woaIDs(t, wantStatus(t, ask(t, s, "", "GET", catalog.WebOfAgentsPath+"?origin=beta.test", ""),
		200)); len(got) != 1 {
		t.Errorf("of beta.test it lists %v", got)
	}

	wantStatus(t, ask(t, s, "", "GET", catalog.WebOfAgentsPath+"?scope=galaxy", ""), 400)
}

// A node without a gateway says so in a document, so that a crawler can tell that
// from one that is broken; one that does not know what there is says that.
//
// Requirement: WOA-034
func TestWoAWithoutGateway(t *testing.T) {
	one := entry(t, alpha, "01JWNTC0000000000000000AD1", "one", 1, aDocument)
	body := wantStatus(t, ask(t, newTestServer(t, nil, one), "", "GET", catalog.WebOfAgentsPath, ""), 200)
	same(t, "the document", body, parse(t, []byte(`{"woa_version":"1","agents":[],"transports":{}}`)))

	unsettled := func(cfg *Config) { frontAll(cfg); cfg.CaughtUp = func() bool { return false } }
	alone := func(cfg *Config) { frontAll(cfg); cfg.Registry = cutOff{heard: time.Hour} }

	for _, ignorant := range []func(*Config){unsettled, alone} {
		for _, filter := range []string{"", "?agent=one"} {
			s := newTestServer(t, ignorant, one)
			wantStatus(t, ask(t, s, "", "GET", catalog.WebOfAgentsPath+filter, ""), 503)
		}
	}
}

// Requirement: WOA-033
func TestWoAPages(t *testing.T) {
	big := `{"base":"https://agents.example.com/one","description":"` + strings.Repeat("d",
		4000) + `","x":"` + strings.Repeat("x", 100) + `"}`
	for name, doc := range map[string]string{"by number": aDocument, "by size": big} {
		var entries []*directory.Entry
		for i := range 1101 {
			entries = append(entries, entry(t, alpha, fmt.Sprintf("01JWNTC000000000000000%04d", i),
				fmt.Sprintf("agent-%d", i), uint64(i+1), doc))
		}

		s := newTestServer(t, frontAll, entries...)

		seen, pages := map[string]bool{}, 0
		for target := catalog.WebOfAgentsPath; target != ""; pages++ {
			resp := ask(t, s, "", "GET", target, "")
			b, _ := io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(bytes.NewReader(b))

			ids := woaIDs(t, wantStatus(t, resp, 200))
			if len(ids) > 1000 || len(b) > 4<<20 {
				t.Fatalf("%s: a page has %d agents, %d bytes", name, len(ids), len(b))
			}

			for _, id := range ids {
				if seen[id] {
					t.Fatalf("%s: %s is listed twice", name, id)
				}

				seen[id] = true
			}

			next, _, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Link"), "<"), ">")
			target = next
		}

		if len(seen) != 1101 || pages != 2 {
			t.Errorf("%s: %d agents on %d pages", name, len(seen), pages)
		}
	}
}

// The document is made anew at most once a second, when something changed or a
// minute is over, and stays dated as long as it says the same.
//
// Requirement: WOA-012, WOA-033
func TestWoAIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := entry(t, alpha, "01JWNTC0000000000000000AD1", "one", 1, aDocument)

		var view *index.View
		registry := &cutOff{position: directory.Position{Epoch: 1, Revision: 1}}
		made := 0
		s := newTestServer(t, func(cfg *Config) {
			cfg.Invocable = func(*directory.Entry) bool { made++; return true }
			cfg.Registry, view = registry, cfg.View
		}, one)
		get := func(header ...string) *http.Response {
			return ask(t, s, "", "GET", catalog.WebOfAgentsPath, "", header...)
		}
		first := get()

		etag, modified := first.Header.Get("ETag"), first.Header.Get("Last-Modified")
		if first.Header.Get("Cache-Control") != "public, max-age=60" || made != 1 {
			t.Fatalf("%v, made of %d agents", first.Header, made)
		}

		two := entry(t, alpha, "01JWNTC0000000000000000AD2", "two", 2, aDocument)
		view.Own().Put(two)
		registry.position.Revision = 2

		if get().Header.Get("ETag") != etag || made != 1 {
			t.Error("within a second it is made again")
		}

		time.Sleep(time.Second)

		changed := get()
		if changed.Header.Get("ETag") == etag || changed.Header.Get("Last-Modified") == modified || made != 3 {
			t.Errorf("after a change it is %v, made of %d", changed.Header, made)
		}

		etag, modified = changed.Header.Get("ETag"), changed.Header.Get("Last-Modified")
		time.Sleep(time.Second)

		if wantStatus(t, get("If-None-Match", etag), 304); made != 3 {
			t.Error("it is made anew though nothing changed")
		}

		time.Sleep(time.Minute)

		if wantStatus(t, get("If-Modified-Since", modified), 304); made != 5 {
			t.Error("it is not made anew after a minute")
		}

		wantStatus(t, get("If-Match", `"other"`), 412)
	})
}

// The document lists nothing past its deadline, however fresh it is in memory, and tells
// caches to keep it no longer than its registrations live.
//
// Requirement: AD-024
func TestWoAEndsWithItsRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := entry(t, alpha, "01JWNTC0000000000000000AD1", "first", 1, aDocument)
		short := entry(t, alpha, "01JWNTC0000000000000000AD2", "short", 2, aDocument)
		short.ExpiresAt = time.Now().Add(10500 * time.Millisecond).UnixMilli()
		last := entry(t, alpha, "01JWNTC0000000000000000AD3", "last", 3, aDocument)
		s := newTestServer(t, frontAll, first, short, last)

		listed := func() (ids []string, cacheControl string) {
			resp := ask(t, s, "", "GET", catalog.WebOfAgentsPath, "")
			return woaIDs(t, wantStatus(t, resp, 200)), resp.Header.Get("Cache-Control")
		}

		if ids, cached := listed(); len(ids) != 3 || cached != "public, max-age=10" {
			t.Errorf("it lists %v, for %q", ids, cached)
		}

		time.Sleep(10 * time.Second)

		if ids, cached := listed(); len(ids) != 3 || cached != "public, max-age=0" {
			t.Errorf("before the deadline it lists %v, for %q", ids, cached)
		}

		time.Sleep(500 * time.Millisecond)

		if ids, cached := listed(); len(ids) != 2 || cached != "public, max-age=60" {
			t.Errorf("at the deadline it lists %v, for %q", ids, cached)
		}
	})
}

// What is compressed is the document.
func TestWoAIsCompressed(t *testing.T) {
	var entries []*directory.Entry
	for i := range 9 {
		entries = append(entries, entry(t, alpha, fmt.Sprintf("01JWNTC0000000000000000AD%d", i),
			fmt.Sprintf("agent-%d", i), uint64(i+1), aDocument))
	}

	s := newTestServer(t, frontAll, entries...)
	plain := ask(t, s, "", "GET", catalog.WebOfAgentsPath, "")
	coded := ask(t, s, "", "GET", catalog.WebOfAgentsPath, "", "Accept-Encoding", "gzip")

	z, err := gzip.NewReader(coded.Body)
	must(t, err)

	got, _ := io.ReadAll(z)

	want, _ := io.ReadAll(plain.Body)
	if !bytes.Equal(got, want) || coded.Header.Get("ETag") == plain.Header.Get("ETag") {
		t.Errorf("it is %d bytes, want %d, with the tag %s", len(got), len(want), coded.Header.Get("ETag"))
	}
}
