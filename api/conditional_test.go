package api

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// What a 200 says besides its body, a 304 says too (RFC 9110, 15.4.5).
//
// Requirement: AD-079, AD-080
func TestNotModifiedSaysWhatTheAnswerWould(t *testing.T) {
	s := newTestServer(t, nil, entry(t, alpha, rid(1), "one", 381, aDocument),
		entry(t, beta, rid(2), "two", 7, aDocument))
	for _, target := range []string{"/ad/r/one", "/ad/r/" + rid(1), "/ad/r/beta.test/" + rid(2), "/ad/l?count=1",
		"/.well-known/ad", "/problems/not-found"} {
		full := ask(t, s, "", "GET", target, "")
		for _, method := range []string{"GET", "HEAD"} {
			for _, condition := range []string{full.Header.Get("ETag"), `"x", ` + full.Header.Get("ETag"), "*"} {
				resp := ask(t, s, "", method, target, "", "If-None-Match", condition)
				wantStatus(t, resp, 304)

				if b, _ := io.ReadAll(resp.Body); len(b) > 0 {
					t.Errorf("%s %s: a 304 with a body", method, target)
				}

				for _, name := range []string{"ETag", "Cache-Control", "Vary", "Content-Location", "Link", "Sunset",
					"Roster-Index"} {
					if got, want := resp.Header.Get(name), full.Header.Get(name); got != want {
						t.Errorf("%s %s: %s is %q in the 304, %q in the 200", method, target, name, got, want)
					}
				}

				if got := resp.Header.Get("Content-Type"); got != "" {
					t.Errorf("%s %s: a 304 of type %s", method, target, got)
				}
			}
		}

		if full.Header.Get("Cache-Control") == "" || !strings.Contains(full.Header.Get("Vary"), "Accept-Encoding") {
			t.Errorf("%s: %v", target, full.Header)
		}
	}
}

// Who may keep an answer follows from who may call the route.
//
// Requirement: AD-080
func TestWhoMayKeepAnAnswer(t *testing.T) {
	one := entry(t, alpha, rid(1), "one", 381, aDocument)
	s := newTestServer(t, func(cfg *Config) {
		whole(cfg)

		cfg.Registry = cutOff{offer: directory.Offer{RID: one.RID, Owner: one.Owner, Statement: 381}}
	}, one)

	for _, r := range s.table() {
		if r.method != "GET" || r.who.stream || r.who.level == levelNode {
			continue
		}

		// TestTheLedgerIsServedAsC2SPHasIt, and TestTheAudienceIsForOwnersAndOperators
		if strings.HasPrefix(r.path, "/log/") || strings.HasSuffix(r.path, "/audience") {
			continue
		}

		target := strings.NewReplacer("/registrations", "/registrations?owner=spiffe%3A%2F%2Falpha.test%2Fagent%2Fada",
			"/evidence", "/evidence?domain=beta.test", "{id}", rid(1), "{origin}/", "",
			"pprof/{name}", "pprof/heap", "{name}", "not-found",
			"{kind}", "ad", "{domain}", "alpha.test").Replace(r.path)
		want := map[level]string{levelAnyone: "public, max-age=60", levelReader: "private, no-cache",
			levelOperator: "no-store"}[r.who.level]

		resp := ask(t, s, "/ops/operator", "GET", target, "")
		if got := resp.Header.Get("Cache-Control"); got != want || resp.StatusCode != 200 {
			t.Errorf("GET %s: %d, Cache-Control %q, want %q", target, resp.StatusCode, got, want)
		}

		if got := resp.Header.Get("Vary"); r.who.level == levelReader &&
			got != "Authorization, Workload-Identity-Token, Accept-Encoding" {
			t.Errorf("GET %s: Vary is %q", target, got)
		}
	}

	for target, caller := range map[string]string{"/ad/r?agent=one": "", "/ad/r/" + rid(1): "/agent/bob",
		"/ad/r/nobody": "/agent/bob"} {
		if resp := ask(t, s, caller, "POST", target, ""); resp.StatusCode < 400 ||
			resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("POST %s: %d, Cache-Control %q", target, resp.StatusCode, resp.Header.Get("Cache-Control"))
		}
	}
}

// If-Match on a read is compared strongly, and comes before If-None-Match.
//
// Requirement: AD-079
func TestIfMatchOnReads(t *testing.T) {
	s := newTestServer(t, nil, entry(t, alpha, rid(1), "one", 381, aDocument))
	tag := ask(t, s, "", "GET", "/ad/r/"+rid(1), "").Header.Get("ETag")

	weak := ask(t, s, "", "GET", "/ad/l", "").Header.Get("ETag")
	for _, x := range []struct {
		target, match, none string
		status              int
	}{
		{"/ad/r/" + rid(1), tag, "", 200}, {"/ad/r/" + rid(1), "*", "", 200},
		{"/ad/r/" + rid(1), `"381.00000000", ` + tag, "", 200},
		{"/ad/r/" + rid(1), "W/" + tag, "", 412}, {"/ad/r/" + rid(1), `"381.00000000"`, "", 412},
		{"/ad/r/" + rid(1), `"381.00000000"`, tag, 412},
		{"/ad/r/" + rid(1), tag, tag, 304}, {"/ad/l", weak, "", 412}, {"/ad/l", "*", "", 200},
		{"/ad/r/nobody", "*", "", 404}, {"/ad/r/nobody", "", "*", 404},
	} {
		var header []string
		if x.match != "" {
			header = append(header, "If-Match", x.match)
		}

		if x.none != "" {
			header = append(header, "If-None-Match", x.none)
		}

		wantStatus(t, ask(t, s, "", "GET", x.target, "", header...), x.status)
	}
}

// Dates say nothing here: a registration has none that is precise to the second.
func TestDatesAreIgnored(t *testing.T) {
	s := newTestServer(t, nil, entry(t, alpha, rid(1), "one", 381, aDocument))
	for _, name := range []string{"If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range"} {
		resp := ask(t, s, "", "GET", "/ad/r/"+rid(1), "", name, "Sat, 01 Jan 2000 00:00:00 GMT")
		wantStatus(t, resp, 200)

		if resp.Header.Get("Last-Modified") != "" {
			t.Error("there is a Last-Modified")
		}
	}
}

// Requirement: AD-079
func TestConditionsOfWrites(t *testing.T) {
	s := newTestServer(t, nil, entry(t, alpha, rid(1), "one", 381, aDocument))
	for _, target := range []string{"/ad/r?agent=one", "/ad/r/" + rid(1)} {
		wantStatus(t, ask(t, s, "/agent/ada", "POST", target, aDocument, "If-None-Match", `"381.0123abcd"`), 400)
	}

	wantStatus(t, ask(t, s, "/agent/ada", "DELETE", "/ad/r/"+rid(1), "", "If-None-Match", `W/"381.0123abcd"`), 400)
}

// A compressed answer is the same answer with a strong entity tag of its own.
//
// Requirement: AD-079, AD-080
func TestCompression(t *testing.T) {
	large := entry(t, alpha, rid(1), "large", 381,
		`{"base":"https://agents.example.com/one","notes":"`+strings.Repeat("many words ", 200)+`"}`)

	s := newTestServer(t, nil, large, entry(t, alpha, rid(2), "small", 382, aDocument))
	for _, target := range []string{"/ad/r/" + rid(1), "/ad/l"} {
		for i := range 20 {
			s.cfg.View.Own().Put(entry(t, alpha, rid(100+i), "filler-"+strconv.Itoa(i), uint64(400+i), aDocument))
		}

		plain := ask(t, s, "", "GET", target, "")
		want, _ := io.ReadAll(plain.Body)

		packed := ask(t, s, "", "GET", target, "", "Accept-Encoding", "br, gzip;q=0.8, identity;q=0.5")
		if packed.StatusCode != 200 || packed.Header.Get("Content-Encoding") != "gzip" ||
			packed.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %v", target, packed.StatusCode, packed.Header)
		}

		size := packed.Header.Get("Content-Length")

		body, _ := io.ReadAll(packed.Body)
		if size != strconv.Itoa(len(body)) || len(body) >= len(want) {
			t.Errorf("%s: %d bytes for %d, Content-Length %s", target, len(body), len(want), size)
		}

		z, err := gzip.NewReader(strings.NewReader(string(body)))
		must(t, err)

		if got, err := io.ReadAll(z); err != nil || string(got) != string(want) {
			t.Errorf("%s: unpacked it is %.100q (%v)", target, got, err)
		}

		tag, packedTag := plain.Header.Get("ETag"), packed.Header.Get("ETag")
		if strings.HasPrefix(tag, "W/") != (tag == packedTag) {
			t.Errorf("%s: the tags are %s and, compressed, %s", target, tag, packedTag)
		}

		for _, resp := range []*http.Response{plain, packed} {
			if got := resp.Header.Get("Vary"); got != "Authorization, Workload-Identity-Token, Accept-Encoding" {
				t.Errorf("%s: Vary is %q", target, got)
			}
		}

		again := ask(t, s, "", "GET", target, "", "Accept-Encoding", "gzip", "If-None-Match", packedTag)
		wantStatus(t, again, 304)

		if again.Header.Get("ETag") != packedTag || again.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: the 304 has %v", target, again.Header)
		}

		if tag != packedTag {
			wantStatus(t, ask(t, s, "", "GET", target, "", "If-None-Match", packedTag), 200)
		}

		head := ask(t, s, "", "HEAD", target, "", "Accept-Encoding", "gzip")
		if head.StatusCode != 200 || head.Header.Get("ETag") != packedTag ||
			head.Header.Get("Content-Encoding") != "gzip" || head.Header.Get("Content-Length") != "" {
			t.Errorf("%s: HEAD has %v", target, head.Header)
		}
	}

	if small := ask(t, s, "", "GET", "/ad/r/"+rid(2), "", "Accept-Encoding",
		"gzip"); small.Header.Get("Content-Encoding") != "" || small.Header.Get("Vary") == "" {
		t.Errorf("a small answer: %v", small.Header)
	}
}

// Bodies are taken as they are: one that is compressed is refused as such, and not
// as bad JSON (RFC 9110, 15.5.16).
//
// Requirement: AD-046
func TestCompressedBodiesAreRefused(t *testing.T) {
	s := newTestServer(t, nil)
	resp := ask(t, s, "/agent/ada", "POST", "/discovery/query", `{"query":"x"}`, "Content-Encoding", "gzip")
	wantStatus(t, resp, 415)

	if got := resp.Header.Get("Accept-Encoding"); got != "identity" {
		t.Errorf("Accept-Encoding is %q", got)
	}

	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/discovery/query", `{"query":"x"}`, "Content-Encoding", "identity"),
		200)
}

// One over each limit is refused as that limit's problem; what is just within it
// gets as far as the leader that isn't there.
//
// Requirement: AD-042, AD-046, AD-050
func TestOneOverEachLimit(t *testing.T) {
	s := newTestServer(t, nil)
	doc := func(members string) string { return `{"base":"https://agents.example.com/one"` + members + `}` }
	capabilities := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,{"name":"c` + strconv.Itoa(i) + `","type":"tool"}`)
		}

		return doc(`,"capabilities":[` + strings.TrimPrefix(b.String(), ",") + `]`)
	}
	tags := func(n int) string {
		return doc(`,"capabilities":[{"name":"c","type":"tool","tags":[` +
			strings.TrimSuffix(strings.Repeat(`"t",`, n), ",") + `]}]`)
	}
	members := func(n int) string {
		var b strings.Builder
		for i := range n - 1 {
			b.WriteString(`,"m` + strconv.Itoa(i) + `":1`)
		}

		return doc(b.String())
	}

	fill := func(n int) string { return doc(`,"notes":"` + strings.Repeat("x", n-len(doc(`,"notes":""`))) + `"`) }
	for _, x := range []struct {
		what    string
		body    func(int) string
		most    int
		problem directory.Problem
		status  int
	}{
		{"bytes of a body", fill, directory.MaxDocument, directory.TooLarge, 413},
		{"capabilities", capabilities, directory.MaxCapabilities, directory.TooManyCapabilities, 400},
		{"tags of a capability", tags, directory.MaxTags, directory.BadDocument, 400},
		{"bytes of a tag", func(n int) string {
			return doc(`,"capabilities":[{"name":"c","type":"tool","tags":["` + strings.Repeat("t", n) + `"]}]`)
		}, directory.MaxTag, directory.BadDocument, 400},
		{"bytes of a capability's type", func(n int) string {
			return doc(`,"capabilities":[{"name":"c","type":"` + strings.Repeat("t", n) + `"}]`)
		}, directory.MaxCapabilityType, directory.BadDocument, 400},
		{"bytes of a description", func(n int) string {
			return doc(`,"description":"` + strings.Repeat("d", n) + `"`)
		}, directory.MaxDescription, directory.BadDocument, 400},
		{"members", members, directory.MaxMembers, directory.BadDocument, 400},
		{"levels of nesting", func(n int) string {
			return doc(`,"deep":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1))
		}, strictjson.MaxDepth, directory.BadRequest, 400},
	} {
		wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r?agent=one", x.body(x.most)), 503)

		body := wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r?agent=one", x.body(x.most+1)), x.status)
		if body["type"] != publicURL+"/problems/"+string(x.problem) {
			t.Errorf("%d %s: %v", x.most+1, x.what, body["type"])
		}
	}

	// the URI, the header, the name, and the lifetime from both sides
	uri := func(n int) string { return "/ad/l?agent=" + strings.Repeat("a", n-len("/ad/l?agent=")) }
	wantStatus(t, ask(t, s, "", "GET", uri(maxURI), ""), 200)
	wantStatus(t, ask(t, s, "", "GET", uri(maxURI+1), ""), 414)
	wantStatus(t, ask(t, s, "", "GET", "/ad/l", "", "X", strings.Repeat("a", maxHeader-len("X: \r\n"))), 200)
	wantStatus(t, ask(t, s, "", "GET", "/ad/l", "", "X", strings.Repeat("a", maxHeader-len("X: \r\n")+1)), 431)

	for query, status := range map[string]int{
		"agent=" + strings.Repeat("n", directory.MaxName):   503,
		"agent=" + strings.Repeat("n", directory.MaxName+1): 400,
		"agent=n&lt=60": 503, "agent=n&lt=59": 400, "agent=n&lt=4294967295": 503, "agent=n&lt=4294967296": 400,
	} {
		wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r?"+query, aDocument), status)
	}

	for mediaType, status := range map[string]int{"application/json": 503, "application/ld+json; charset=utf-8": 503,
		"text/json": 415, "application/jsonx": 415, "": 415, ";": 415} {
		wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r?agent=n", aDocument, "Content-Type", mediaType), status)
	}
}
