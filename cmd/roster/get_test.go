package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// If several domains have a name, the failure lists them and suggests --origin.
//
// Requirement: OPS-006
func TestGetListsTheDomainsOfAnAmbiguousName(t *testing.T) {
	var asked []string
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.EscapedPath())
		switch r.URL.Path {
		case "/ad/r/weather/oslo":
			w.Header().Add("Link", "</ad/r/beta.test/"+rid+`>; rel="alternate"`)
			w.Header().Add("Link", "</ad/r/gamma.test/"+rid+`>; rel="alternate"`)
			w.WriteHeader(http.StatusMultipleChoices)
		case "/ad/l":
			says(`{"agents":[{"agent":"weather/oslo","href":"/ad/r/beta.test/`+rid+`"}]}`)(w, r)
		default:
			says(`{"agent":"weather/oslo","href":"/ad/r/beta.test/`+rid+`"}`)(w, r)
		}
	})

	code, _, errs := w.run("get", "weather/oslo")
	if code != 5 || !strings.Contains(errs, "beta.test, gamma.test") {
		t.Fatalf("exit code %d: %s", code, errs)
	}

	lines := strings.Split(strings.TrimSpace(errs), "\n")
	next := words(strings.TrimPrefix(lines[len(lines)-1], "Try: "))

	code, out, errs := w.run(next[1:]...)
	if code != 0 || !strings.Contains(out, "agent\tdirectory\tweather/oslo") {
		t.Errorf("%q: exit code %d, %s%s", next, code, out, errs)
	}

	if got, want := strings.Join(asked, " "), "/ad/r/weather%2Foslo /ad/l /ad/r/beta.test/"+rid; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

// With --origin the history is that domain's registration's, by name or rid; a rid alone is of the directory's own
// domain, and may be of a registration that has ended.
func TestAHistoryIsOfTheDomainThatIsNamed(t *testing.T) {
	copied := "/ad/r/beta.test/" + rid

	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{rid}, "/ad/r/" + rid + "/history"},
		{[]string{"weather"}, "/ad/r/weather /ad/r/" + rid + "/history"},
		{[]string{rid, "--origin", "beta.test"}, copied + " " + copied + "/history"},
		{
			[]string{"weather", "--origin", "beta.test"},
			"/ad/l?agent=weather&origin=beta.test " + copied + " " + copied + "/history",
		},
	} {
		var asked []string

		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RequestURI())

			switch {
			case strings.HasSuffix(r.URL.Path, "/history"):
				says(`{"origin":"beta.test","complete":true,"statements":[]}`)(w, r)
			case r.URL.Path == "/ad/l":
				says(`{"agents":[{"agent":"weather","href":"`+copied+`"}]}`)(w, r)
			case r.URL.Path == copied:
				says(`{"agent":"weather","href":"`+copied+`"}`)(w, r)
			default:
				says(`{"agent":"weather","href":"/ad/r/`+rid+`"}`)(w, r)
			}
		})

		code, _, errs := w.run(append([]string{"get", "--history"}, x.args...)...)
		if got := strings.Join(asked, " "); code != 0 || got != x.want {
			t.Errorf("%v: exit code %d, asked for %s, want %s; %s", x.args, code, got, x.want, errs)
		}
	}
}

// Registrations of a restore or of a frozen origin differ from others only by this mark.
//
// Requirement: MESH-019
func TestGetShowsDoubtsAboutARegistration(t *testing.T) {
	for member, want := range map[string]string{"unconfirmed": "local, unconfirmed", "disputed": "local, disputed"} {
		one := `{"agent":"weather","href":"/ad/r/` + rid +
			`","provenance":{"origin_authority":"alpha.test","verification":{"state":"local","` + member + `":true}}}`

		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/ad/l" {
				one = `{"agents":[` + one + `]}`
			}

			says(one)(w, r)
		})
		for _, verb := range [][]string{{"get", rid}, {"lookup", "-o", "wide"}} {
			if code, out, errs := w.run(verb...); code != 0 || !strings.Contains(out, want) {
				t.Errorf("%v: exit code %d, %s%s; want %q", verb, code, out, errs, want)
			}
		}
	}
}

func TestGetShowsTheProvenance(t *testing.T) {
	proof := newSigner(t).proof(t)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/proof") {
			says(string(proof))(w, r)
			return
		}

		says(`{"agent":"weather","href":"/ad/r/beta.test/`+rid+
			`","provenance":{"origin_authority":"beta.test","origin_service":"https://ad.beta.test",
			"registrant":"spiffe://beta.test/agent/bob","revision":7,`+
			`"registered_at":"2026-06-01T12:00:00.000Z","expires_at":"2026-06-01T13:00:00.000Z","received_from":"gamma.test",
			"verification":{"state":"verified","key":"k1"}}}`)(w, r)
	})

	code, out, errs := w.run("get", "weather", "--provenance")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}

	for _, want := range []string{"registrant\tspiffe://beta.test/agent/bob\t",
		"origin\tbeta.test at https://ad.beta.test\tregistered at revision 7, expires 2026-06-01T13:00:00Z",
		"page\t", "revisions 7 to 7", "relay\tgamma.test\t",
		"verified by key k1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// Requirement: SEC-006, SEC-008
func TestGetShowsWhoRegisteredAndWhoTransferred(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/proof") {
			http.NotFound(w, r)
			return
		}

		says(`{"agent":"weather","href":"/ad/r/beta.test/`+rid+`","provenance":{"origin_authority":"beta.test",
			"registrant":"spiffe://beta.test/tool/t","registrant_state":"claimed","owner":"spiffe://gamma.test/agent/eve",
			"registered_by":"spiffe://beta.test/tool/t","transferred_by":"spiffe://beta.test/ops/otto",
			"imported_from":"https://registry.example","revision":7,"verification":{"state":"verified"}}}`)(w, r)
	})

	for verb, wants := range map[string][]string{
		"": {"registrant\tclaimed\tspiffe://beta.test/tool/t", "owner\tclaimed\tspiffe://gamma.test/agent/eve",
			"registered by\tclaimed\tspiffe://beta.test/tool/t", "transferred by\tclaimed\tspiffe://beta.test/ops/otto",
			"imported from\tclaimed\thttps://registry.example"},
		"--provenance": {"source\thttps://registry.example\t",
			"registrant\tspiffe://beta.test/tool/t\tregistered weather for its owner; the origin claims so",
			"transfer\tspiffe://beta.test/ops/otto\t", "owner\tspiffe://gamma.test/agent/eve\t"},
	} {
		_, out, errs := w.run(strings.Fields("get weather " + verb)...)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("get %s: %q is not in\n%s%s", verb, want, out, errs)
			}
		}
	}
}

func TestOperatorsSeeTheMesh(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		says(map[string]string{
			"/v1/operator/members": `{"members":[{"id":"spiffe://alpha.test/roster/node/1",` +
				`"domain":"alpha.test","address":"127.0.0.1:1","state":"alive"}]}`,
			"/v1/operator/raft": `{"leader":"n1","peers":[{"id":"n1","address":"a:1","voter":true,"state":"alive"},` +
				`{"id":"n2","address":"a:2","voter":true,"state":"silent","last_contact":"2026-06-01T12:00:00Z"}]}`,
			"/v1/operator/flagged": `{"flagged":[{"agent":"stuffed","origin":"beta.test",` +
				`"href":"/ad/r/beta.test/1","flags":["repetition","density"]}]}`,
			"/v1/operator/peers": `{"peers":[{"domain":"beta.test","state":"active","lag_revisions":3,` +
				`"lag_seconds":1.25,"last_error":"late"}]}`,
		}[r.URL.Path])(w, r)
	})
	for _, c := range []struct{ args, want string }{
		{"members", "spiffe://alpha.test/roster/node/1\talpha.test\t127.0.0.1:1\talive\n"},
		{"flagged", "stuffed\tbeta.test\trepetition density\t/ad/r/beta.test/1\n"},
		{"raft peers", "n1\ta:1\tleader\talive\t\nn2\ta:2\tvoter\tsilent\t2026-06-01T12:00:00Z\n"},
		{"peer list", "beta.test\tactive\tno\t3\t1.2\t\t\tlate\n"},
		{"peer list -o jsonl",
			`{"domain":"beta.test","state":"active","lag_revisions":3,"lag_seconds":1.25,"last_error":"late"}` + "\n"},
	} {
		code, out, errs := w.run(strings.Fields(c.args)...)
		if code != 0 || errs != "" || !strings.HasSuffix(out, c.want) {
			t.Errorf("%s: exit code %d, %s%s", c.args, code, out, errs)
		}
	}
}

// The flags for the freshness of a response are sent with every read of a command.
func TestReadsSendTheirFreshness(t *testing.T) {
	var asked []string
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if r.URL.Path == "/ad/l" {
			says(`{"agents":[{"agent":"weather","href":"/ad/r/beta.test/`+rid+`"}]}`)(w, r)
			return
		}

		says(`{"agent":"weather","href":"/ad/r/beta.test/`+rid+`"}`)(w, r)
	})

	const fresh = "consistency=linearizable&min=alpha.test%3D7.1&min=beta.test%3D8.2&wait="

	flags := []string{"--consistency", "linearizable", "--min", "alpha.test=7.1", "--min", "beta.test=8.2", "--wait"}
	for _, c := range []struct{ args, want []string }{
		{append(append([]string{"get", "weather"}, flags...), "9"), []string{fresh + "9"}},
		{append(append([]string{"lookup"}, flags...), "0"), []string{fresh + "0"}},
		{append(append([]string{"get", "weather", "--origin", "beta.test"}, flags...), "60"),
			[]string{"agent=weather&consistency=linearizable&min=alpha.test%3D7.1&min=beta.test%3D8.2&" +
				"origin=beta.test&wait=60", fresh + "60"}},
		{[]string{"get", "weather", "--consistency", "stale"}, []string{"consistency=stale"}},
	} {
		asked = nil
		if code, _, errs := w.run(c.args...); code != 0 || !slices.Equal(asked, c.want) {
			t.Errorf("%q: exit code %d, asked %q: %s", c.args, code, asked, errs)
		}
	}

	if code, _, errs := w.run("get", "weather", "--wait", "soon"); code != 2 ||
		!strings.Contains(errs, "whole number of seconds") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
