package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A flag wins over the environment, and that over the context.
func TestContextsAreSavedAndUsed(t *testing.T) {
	asked := 0
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		asked++
		says(`{"agents":[]}`)(rw, r)
	})

	run := func(code int, args ...string) (out, errs string) {
		t.Helper()

		got, out, errs := w.run(args...)
		if got != code {
			t.Fatalf("roster %q: exit code %d, want %d\n%s", args, got, code, errs)
		}

		return out, errs
	}
	if out, errs := run(0, "context", "list"); out != "" || !strings.Contains(errs, "context set NAME") {
		t.Errorf("without contexts: %q %q", out, errs)
	}

	run(0, "context", "set", "alpha") // as the environment says
	run(0, "context", "set", "beta", "--address", "https://beta.test:8400", "--cert=", "--key=")
	address := w.env["ROSTER_ADDRESS"]
	cert, bundle := w.env["ROSTER_CERT"], w.env["ROSTER_BUNDLE"]
	clear(w.env)

	if out, _ := run(0, "context", "list"); out != "CONTEXT\tCURRENT\tADDRESS\tCERT\nalpha\t*\t"+address+"\t"+cert+
		"\nbeta\t\thttps://beta.test:8400\t\n" {
		t.Errorf("the contexts are\n%s", out)
	}

	run(0, "lookup")

	if asked != 1 {
		t.Errorf("the current context's directory was asked %d times", asked)
	}

	w.env["ROSTER_CONTEXT"] = "beta"

	if out, _ := run(0, "context", "show"); !strings.Contains(out, "address\thttps://beta.test:8400\tcontext\n") {
		t.Errorf("ROSTER_CONTEXT is beta: %s", out)
	}

	if out, _ := run(0, "context", "show", "--context", "alpha", "--address", "https://x.test", "-o",
		"jsonl"); !strings.Contains(out, `{"name":"address","value":"https://x.test","from":"flag"}`) ||
		!strings.Contains(out, `{"name":"cert","value":"`+cert+`","from":"context"}`) {
		t.Errorf("flags and a context: %s", out)
	}

	w.env["ROSTER_ADDRESS"] = "https://y.test"

	if out, _ := run(0, "context", "show"); !strings.Contains(out, "address\thttps://y.test\tenvironment\n") {
		t.Errorf("the environment: %s", out)
	}

	w.env["ROSTER_TOKEN_FILE"] = "/another/directory's/token"
	w.env["SPIFFE_ENDPOINT_SOCKET"] = "unix:///run/agent.sock"

	if out, _ := run(0, "context", "show", "--context", "beta"); !strings.Contains(out,
		"address\thttps://beta.test:8400\tcontext\n") ||
		strings.Contains(out, "/token") ||
		!strings.Contains(out, "workload-api\tunix:///run/agent.sock\tenvironment\n") {
		t.Errorf("a context that a flag names is mixed with the environment: %s", out)
	}

	if out, _ := run(0, "context", "show", "--context", "alpha"); strings.Contains(out, "environment") {
		t.Errorf("a context with a certificate is mixed with the environment: %s", out)
	}

	clear(w.env)
	run(0, "context", "use", "beta")
	run(0, "context", "remove", "beta")

	if out, _ := run(0, "context", "show"); strings.Contains(out, "context") {
		t.Errorf("without a current context: %s", out)
	}

	run(3, "context", "use", "gamma")
	run(2, "context", "set", "gamma", "--address", "http://plain.test")
	run(2, "lookup", "--context", "gamma")

	file := filepath.Join(w.dir, "roster", "contexts.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}

	// Members of a later release are kept and ignored, and a broken context breaks no other.
	must(t, os.WriteFile(file, []byte(`{"version":1,"current":"alpha","colour":1,"contexts":{"odd":{"address":7},`+
		`"alpha":{"address":"`+address+`","bundle":"`+bundle+`","shade":"x"}}}`), 0o600))
	run(0, "lookup")
	run(1, "lookup", "--context", "odd")
	run(0, "context", "set", "alpha", "--domain", "alpha.test")

	text, err := os.ReadFile(file)
	for _, kept := range []string{`"version": 1`, `"colour": 1`, `"shade": "x"`, `"address": 7`,
		`"domain": "alpha.test"`} {
		if !strings.Contains(string(text), kept) {
			t.Errorf("%s is lost: %s, %v", kept, text, err)
		}
	}

	run(0, "context", "remove", "odd")
	must(t, os.WriteFile(file, []byte(`{"current":1}`), 0o600))

	if _, errs := run(1, "lookup"); !strings.Contains(errs, file) {
		t.Errorf("a broken file: %s", errs)
	}
}

// What flags give comes from no context, and what the current context adds to them is said once.
func TestFlagsAndTheCurrentContextAreNotMixedInSilence(t *testing.T) {
	w := newWorld(t, says(`{"agents":[]}`))
	address, cert := w.env["ROSTER_ADDRESS"], w.env["ROSTER_CERT"]

	if code, _, errs := w.run("context", "set", "alpha"); code != 0 {
		t.Fatal(errs)
	}

	clear(w.env)

	for args, want := range map[string]string{
		"lookup": "", "lookup --context alpha --address " + address: "",
		"lookup --address " + address: "Using --bundle, --cert, --key of the context alpha.\n",
	} {
		if code, _, errs := w.run(strings.Fields(args)...); code != 0 || !strings.HasPrefix(errs, want) ||
			strings.Count(errs, "of the context") != strings.Count(want, "of the context") {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, errs, want)
		}
	}

	// The Workload API gives identity and bundle, a certificate comes with its key.
	_, out, _ := w.run("context", "show", "--workload-api", "unix:///run/agent.sock", "--address", address)
	if strings.Contains(out, "\tcontext\n") {
		t.Errorf("with a Workload API: %s", out)
	}

	if code, _, errs := w.run("lookup", "--cert", cert); code != 2 || !strings.Contains(errs, "--cert without --key") {
		t.Errorf("a certificate without its key: exit code %d, %s", code, errs)
	}
}

// The bearer token of a context goes to no other directory, which could use it.
func TestATokenOfAContextGoesOnlyToTheContextsAddresses(t *testing.T) {
	w := newWorld(t, says(`{"agents":[]}`))
	clear(w.env)

	if code, _, errs := w.run("context", "set", "alpha", "--address", "https://a.test,https://b.test:8400",
		"--token-file", "/saved/token"); code != 0 {
		t.Fatal(errs)
	}

	for args, want := range map[string]bool{
		"": true, "--context alpha": true, "--address https://b.test:8400/": true,
		"--address https://b.test:8400,https://a.test": true,
		"--address https://x.test":                     false, "--address https://x.test --context alpha": false,
		"--address https://a.test,https://x.test": false, "--address https://a.test:8400": false,
	} {
		_, out, _ := w.run(append([]string{"context", "show"}, strings.Fields(args)...)...)
		if strings.Contains(out, "/saved/token") != want {
			t.Errorf("with %q the token applies: %t, want %t\n%s", args, !want, want, out)
		}
	}

	w.env["ROSTER_ADDRESS"] = "https://x.test"

	if _, out, _ := w.run("context", "show"); strings.Contains(out, "/saved/token") {
		t.Errorf("the token applies to the address of the environment: %s", out)
	}

	if _, out, _ := w.run("context", "show", "--token-file", "/other"); !strings.Contains(out, "/other") {
		t.Errorf("the token of a flag does not apply: %s", out)
	}
}

// A token takes precedence over the certificate, so whoami shows the identity and the end of the token.
func TestWhoamiNamesTheIdentityOfTheToken(t *testing.T) {
	w := newWorld(t, nil)
	file := filepath.Join(t.TempDir(), "token")

	_, out, _ := w.run("whoami", "-o", "json")

	var certified struct{ Identity, Credential string }
	if err := json.Unmarshal([]byte(out), &certified); err != nil || certified.Identity == "" {
		t.Fatalf("by the certificate: %s: %v", out, err)
	}

	for _, c := range []struct{ header, claims, identity, note string }{
		{`{"alg":"EdDSA","typ":"JWT"}`, `{"sub":"spiffe://alpha.test/agent/bob","exp":1900000000}`,
			"spiffe://alpha.test/agent/bob", "The certificate is of " + certified.Identity},
		{`{"alg":"EdDSA"}`, `{"sub":"` + certified.Identity + `","exp":1900000000}`, certified.Identity, ""},
		{`{"alg":"RS256","typ":"at+jwt"}`, `{"iss":"https://login.test","sub":"ada","exp":1900000000}`,
			"oauth:https://login.test#ada", ""},
	} {
		encoded := base64.RawURLEncoding.EncodeToString
		token := encoded([]byte(c.header)) + "." + encoded([]byte(c.claims)) + "." + encoded([]byte("unverified"))

		must(t, os.WriteFile(file, []byte(token), 0o600))

		code, out, errs := w.run("whoami", "--token-file", file)

		row := strings.Split(strings.Split(out, "\n")[1], "\t")
		if code != 0 || row[0] != c.identity || row[1] != "token "+file+" beside "+certified.Credential ||
			row[2] != "2030-03-17T17:46:40Z" || !strings.HasPrefix(errs, c.note) || c.note == "" && errs != "" {
			t.Errorf("of %s: exit code %d, %q\n%s", c.claims, code, row, errs)
		}
	}

	expired := "eyJhbGciOiJFZERTQSJ9." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+certified.Identity+`","exp":1600000000}`)) + ".eA"
	must(t, os.WriteFile(file, []byte(expired), 0o600))

	if code, _, errs := w.run("whoami", "--token-file", file); code != 12 ||
		!strings.Contains(errs, "the token in "+file+" expired 2020-09-13T12:26:40Z") {
		t.Errorf("of an expired token: exit code %d\n%s", code, errs)
	}

	must(t, os.WriteFile(file, []byte("opaque"), 0o600))

	if code, _, errs := w.run("whoami", "--token-file", file); code != 12 || !strings.Contains(errs, file) {
		t.Errorf("of a file without a token: exit code %d\n%s", code, errs)
	}

	if code, _, _ := w.run("whoami", "--token-file", file, "--wit", file); code != 2 {
		t.Errorf("of two tokens: exit code %d", code)
	}
}
