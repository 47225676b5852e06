package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// The anchor of a fetched proof is the directory's own data, and the result says which
// directory. A bundle with the domain takes precedence.
// notes/users.md: "no command gets a proof".
//
// Requirement: SEC-017
func TestVerifyFetchesAProofFromTheDirectory(t *testing.T) {
	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	foreign := newSignerOf(t, beta)
	proof := foreign.proof(t)
	rid := directory.NewRID(1, [10]byte{}).String()

	var asked []string
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		switch r.URL.Path {
		case "/ad/l":
			_, _ = w.Write([]byte(`{"agents":[{"href":"/ad/r/beta.test/` + rid + `"}]}`))
		case "/ad/r/" + rid + "/proof", "/ad/r/weather/proof", "/ad/r/beta.test/" + rid + "/proof", "/ad/r/wind/proof":
			_, _ = w.Write(proof)
		case "/ad/r/moved/proof":
			http.Redirect(w, r, "/ad/r/weather/proof", http.StatusFound)
		default:
			problem(http.StatusNotFound, "not-found", "No such registration.")(w, r)
		}
	})
	address := w.env["ROSTER_ADDRESS"]

	type verdict struct {
		Authentic bool                 `json:"authentic"`
		Anchor    string               `json:"anchor"`
		Directory *trust.DirectoryWord `json:"directory"`
	}
	for _, args := range [][]string{
		{rid}, {"weather"}, {"weather", "--origin", "beta.test"}, {address + "/ad/r/weather"},
		{address + "/ad/r/beta.test/" + rid + "/proof"}, {address + "/ad/r/weather/record"},
	} {
		code, out, errs := w.run(append([]string{"verify", "-o", "json"}, args...)...)

		var got verdict
		must(t, json.Unmarshal([]byte(out), &got))

		if code != 0 || !got.Authentic || got.Anchor != "directory" || got.Directory == nil ||
			got.Directory.Address != address || got.Directory.Authorities != 1 || got.Directory.KeyDocument != "1.1" ||
			len(got.Directory.Fingerprints) != 1 {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, errs)
		}
	}

	pem, _ := foreign.ca.PEM()

	code, out, errs := w.run("verify", "weather", "--bundle", w.file("both.pem", w.read("ROSTER_BUNDLE")+string(pem)))
	if code != 0 || !strings.Contains(out, "by the CA certificates that you gave") {
		t.Errorf("with a bundle: exit code %d: %s%s", code, out, errs)
	}

	stranger, _ := newSignerOf(t, beta).ca.PEM()

	code, out, _ = w.run("verify", "weather", "--bundle",
		w.file("stranger.pem", w.read("ROSTER_BUNDLE")+string(stranger)))
	if code != 12 || !strings.Contains(out, "no\tauthentic") {
		t.Errorf("with another bundle of that domain: exit code %d: %s", code, out)
	}

	for name, want := range map[string]int{
		"wind":                                   10, // it answers with another registration's proof
		address + "/ad/r/wind":                   10,
		address + "/ad/r/alpha.test/" + rid:      3,
		address + "/ad/r/moved":                  1, // redirects are not followed
		address + "/ad/r/weather?x=1":            2,
		address + "/v1/operator/snapshot":        3, // as a name
		"https://localhost:1/ad/r/weather":       2,
		strings.Replace(address, "s", "", 1):     3,
		address + "/ad/r/a/b/c":                  2,
		directory.NewRID(2, [10]byte{}).String(): 3,
	} {
		if code, out, errs := w.run("verify", name); code != want || strings.Contains(out, "yes\tauthentic") ||
			strings.Contains(out, "verdict\tauthentic") {
			t.Errorf("%s: exit code %d, want %d: %s%s", name, code, want, out, errs)
		}
	}

	// A URL alone sets the directory, unless the command would send it a token.
	delete(w.env, "ROSTER_ADDRESS")

	if code, out, errs := w.run("verify", address+"/ad/r/weather"); code != 0 ||
		!strings.Contains(out, "by the word of the directory") {
		t.Errorf("by its URL alone: exit code %d: %s%s", code, out, errs)
	}

	asked = nil

	w.env["ROSTER_TOKEN_FILE"] = w.file("token", "secret")
	if code, _, errs := w.run("verify", address+"/ad/r/weather"); code != 2 || len(asked) > 0 {
		t.Errorf("with a token: exit code %d, asked for %q: %s", code, asked, errs)
	}

	delete(w.env, "ROSTER_TOKEN_FILE")
	w.env["ROSTER_ADDRESS"] = address

	// An argument in the form of a path is never a registration's name.
	asked = nil
	for _, path := range []string{"./weather", "../weather", "/no/such/weather"} {
		if code, _, errs := w.run("verify", path); code != 1 || len(asked) > 0 ||
			!strings.Contains(errs, "no such file") {
			t.Errorf("%s: exit code %d, asked for %q: %s", path, code, asked, errs)
		}
	}

	// Any other argument may be a name.
	//
	// Requirement: FLD-010
	for _, name := range []string{"team/weather", "urn:team:weather", "my weather", "https://a.example/weather"} {
		asked = nil
		want := "/ad/r/" + name

		if _, _, errs := w.run("verify", name); len(asked) == 0 || !strings.HasPrefix(asked[0], want) {
			t.Errorf("%s: asked for %q, want %s: %s", name, asked, want, errs)
		}
	}

	// A note says the origin of a bundle that the command line doesn't name.
	own := w.env["ROSTER_BUNDLE"]
	w.env["ROSTER_BUNDLE"] = w.file("ambient.pem", w.read("ROSTER_BUNDLE")+string(pem))

	code, _, errs = w.run("verify", "weather")
	if code != 0 || !strings.Contains(errs, "Using the bundle "+w.env["ROSTER_BUNDLE"]+" of the environment.\n") {
		t.Errorf("with the environment's bundle: exit code %d: %s", code, errs)
	}

	w.env["ROSTER_BUNDLE"] = own

	// A file of that name takes precedence over a registration.
	t.Chdir(w.dir)
	must(t, os.WriteFile("weather", []byte("garbage"), 0o600))

	asked = nil
	if code, _, _ := w.run("verify", "weather"); code != 10 || len(asked) > 0 {
		t.Errorf("a file: exit code %d, asked for %q", code, asked)
	}
}

// read returns the contents of the file that an environment variable names.
func (w *world) read(variable string) string {
	w.t.Helper()
	text, err := os.ReadFile(w.env[variable])
	must(w.t, err)

	return string(text)
}

// get --proof prints the proof file as the directory made it, and verify judges that file.
// What get prints without the flag is named for what it is, since nobody signed it.
// notes/users.md: "get -o json output given to verify".
//
// Requirement: SEC-017
func TestAnAnswerIsNoProofAndAProofIsPrinted(t *testing.T) {
	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	foreign := newSignerOf(t, beta)
	proof := foreign.proof(t)
	rid := directory.NewRID(1, [10]byte{}).String()
	item := `{"agent":"weather","href":"/ad/r/beta.test/` + rid +
		`","provenance":{"verification":{"state":"verified"}}}`

	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ad/r/weather":
			says(item)(w, r)
		case "/ad/l":
			says(`{"agents":[`+item+`]}`)(w, r)
		case "/ad/r/beta.test/" + rid + "/proof":
			_, _ = w.Write(proof)
		default:
			problem(http.StatusNotFound, "not-found", "No such registration.")(w, r)
		}
	})
	pem, _ := foreign.ca.PEM()
	bundle := w.file("beta.pem", string(pem))

	code, out, errs := w.run("get", "weather", "--proof")
	if code != 0 || strings.TrimSuffix(out, "\n") != strings.TrimSuffix(string(proof), "\n") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}

	if code, out, errs := w.run("verify", w.file("proof.json", out), "--bundle", bundle); code != 0 {
		t.Errorf("the printed proof: exit code %d: %s%s", code, out, errs)
	}

	for _, command := range []string{"get", "lookup"} {
		args := []string{command, "-o", "json"}
		if command == "get" {
			args = append(args, "weather")
		}

		_, answer, _ := w.run(args...)

		code, out, errs := w.run("verify", w.file("answer.json", answer), "--bundle", bundle)
		if code != 10 || out != "" || !strings.Contains(errs, "--proof") ||
			!strings.Contains(errs, "is an answer of roster "+command+", not a proof") {
			t.Errorf("an answer of %s: exit code %d: %s%s", command, code, out, errs)
		}
	}
}
