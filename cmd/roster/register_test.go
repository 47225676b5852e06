package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A protocol in an unusual spelling is registered unchanged, with a note.
//
// Requirement: AD-048
func TestAnUnusualProtocolIsANote(t *testing.T) {
	for _, c := range []struct {
		protocols string
		notes     int
	}{
		{`["a2a","mcp/1.0","https"]`, 0},
		{`["A2A","mcp","Model Context Protocol"]`, 2},
	} {
		var sent string
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			sent = string(b)
			w.Header().Set("Location", "/ad/r/"+rid)
			w.Header().Set("Roster-Visibility", "mesh")
			w.WriteHeader(http.StatusCreated)
		})
		document := `{"base":"https://weather.example", "protocols":` + c.protocols + `}`

		code, out, notes := w.run("register", "weather", w.file("agent.json", document))
		if code != 0 || sent != document || !strings.Contains(out, "weather\t"+rid+"\tregistered\t86400\tmesh\n") {
			t.Errorf("%s: exit code %d, sent %s, printed %q", c.protocols, code, sent, out)
		}

		if n := strings.Count(notes, "Note: protocol"); n != c.notes {
			t.Errorf("%s: %d notes, want %d: %s", c.protocols, n, c.notes, notes)
		}
	}
}

func TestRegisterNotesTheGrantedLifetime(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Encode(); got != "agent=weather&kind=mcp&lt=900000&visibility=domain" {
			t.Errorf("asked for %s", got)
		}

		w.Header().Set("Location", "/ad/r/"+rid)
		says(`{"lt":604800}`)(w, r)
	})
	w.stdin = `{"name":"io.example/x"}`
	code, out, notes := w.run("register", "weather", "-", "--kind", "mcp", "--lt", "900000", "--visibility", "domain",
		"-o", "json")

	want := `{"agent":"weather","href":"/ad/r/` + rid + `","rid":"` + rid + `","result":"replaced","lt":604800}` + "\n"
	if code != 0 || out != want || !strings.Contains(notes, "604800") {
		t.Errorf("exit code %d, printed %q, notes %q", code, out, notes)
	}
}

// A change of another domain's registration is suggested at the saved context of that domain, by
// its name or an address there, and otherwise at the domain's address.
//
// Requirement: OPS-006
func TestAForeignRegistrationSuggestsItsOrigin(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w,
			`{"type":"/problems/foreign-registration","detail":"only its origin changes it",`+
				`"origin_authority":"beta.test","origin_href":"https://ad.beta.test/ad/r/x"}`)
	})
	suggests := func(command string, args ...string) {
		t.Helper()

		if code, _, errs := w.run(args...); code != 4 || !strings.HasSuffix(errs, "\nTry: roster "+command+"\n") {
			t.Errorf("%q: exit code %d: %s", args, code, errs)
		}
	}
	save := func(args ...string) {
		t.Helper()

		if code, _, errs := w.run(append([]string{"context"}, args...)...); code != 0 {
			t.Fatalf("%q: exit code %d: %s", args, code, errs)
		}
	}
	at := "--address https://ad.beta.test --domain beta.test "

	save("set", "alpha")
	suggests(at+"deregister weather", "deregister", "weather")
	suggests(at+"transfer weather --accept", "transfer", "weather", "--accept")

	save("set", "at beta", "--address", "https://ad2.beta.test,https://ad.beta.test", "--domain", "")
	suggests("--context 'at beta' refresh weather", "refresh", "weather")

	save("set", "beta", "--address", "https://elsewhere.beta.test", "--domain", "beta.test")
	suggests("--context beta deregister weather", "deregister", "weather")
}

// A registration that is replaced without --lt gets the default lifetime, and the command says so: a
// register --keep may have asked for a shorter one.
func TestReplacingNotesTheDefaultLifetime(t *testing.T) {
	status := http.StatusNoContent
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/ad/r/"+rid)
		w.WriteHeader(status)
	})
	file := w.file("agent.json", `{"base":"https://weather.example"}`)

	const note = "its lifetime is the default now"
	if code, _, notes := w.run("register", "weather", file); code != 0 || !strings.Contains(notes, note) {
		t.Errorf("replaced: exit code %d, %s", code, notes)
	}

	if _, _, notes := w.run("register", "weather", file, "--lt", "10m"); strings.Contains(notes, note) {
		t.Errorf("replaced with --lt: %s", notes)
	}

	status = http.StatusCreated

	if _, _, notes := w.run("register", "weather", file); strings.Contains(notes, note) {
		t.Errorf("registered: %s", notes)
	}
}
