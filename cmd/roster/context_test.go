package main

import (
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
	cert := w.env["ROSTER_CERT"]
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

	must(t, os.WriteFile(file, []byte(`{"current":"x","colour":1}`), 0o600))

	if _, errs := run(1, "lookup"); !strings.Contains(errs, file) {
		t.Errorf("a broken file: %s", errs)
	}
}
