package attacks

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// hostileText is a JSON string with what JSON allows in it and a terminal acts on: C1
// controls, DEL, characters that change the direction of writing, and invisible ones.
const hostileText = "\"\u009b2J\u009d0;owned\u009c\x7f\u202egnp.exe\u2066\u200b\ufeff\u2028\U000e0041\""

// A hostileDirectory answers each path with a body of the test, over TLS as a node.
type hostileDirectory struct {
	url, bundle string
}

func newHostileDirectory(t *testing.T, answers map[string]string) *hostileDirectory {
	t.Helper()
	td := spiffeid.RequireTrustDomainFromString("alpha.test")
	ca, err := trust.NewCA(td, time.Now())
	must(t, err)
	svid, err := ca.Issue("/roster/node/1", time.Hour, time.Now())
	must(t, err)
	bundles := trust.NewBundles()
	must(t, bundles.SetX509(td, ca.Bundle().X509Authorities()))

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(answers[r.URL.Path], "@", hostileText))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	source := trust.NewSource(svid)
	server.TLS = trust.ServerTLS(source, bundles, nil)
	server.TLS.Certificates = append(server.TLS.Certificates, *source.Certificate())
	server.StartTLS()
	t.Cleanup(server.Close)

	pem, _ := ca.PEM()

	return &hostileDirectory{server.URL, writeFile(t, t.TempDir(), "bundle.pem", pem)}
}

// Findings 13 and 22: text of registrants and the output of agents reached the terminal
// raw, with invoke in every format and with -o json everywhere. The attacker writes a
// description, or answers an invocation.
//
// Requirement: SEC-015
func TestTextFromOutsideIsEscapedOnATerminal(t *testing.T) {
	const item = `{"agent":@,"description":@,"base":@,"href":"/ad/r/01K00000000000000000000000","score":1,"id":@,` +
		`"provenance":{"origin_authority":"alpha.test","verification":{"state":@}}}`

	d := newHostileDirectory(t, map[string]string{
		"/ad/l":               `{"agents":[` + item + `]}`,
		"/agents/evil":        item,
		"/ad/r/evil":          item,
		"/discovery/query":    `{"candidates":[` + item + `],"warnings":[@]}`,
		"/agents/evil/invoke": `{"said":@}`,
	})

	commands := [][]string{
		{"invoke", "evil", "{}", "--no-validate"},
		{"get", "evil"}, {"get", "evil", "-o", "json"}, {"get", "evil", "-o", "yaml"},
		{"lookup"}, {"lookup", "-o", "json"}, {"lookup", "-o", "jsonl"},
		{"discover", "x"}, {"discover", "x", "-o", "json"},
	}
	for _, args := range commands {
		shown := runOnTerminal(t, []string{"NO_COLOR=1"}, append(args, "--address", d.url, "--bundle", d.bundle)...)
		if !strings.Contains(shown, "gnp.exe") {
			t.Errorf("%q shows nothing of the text: %q", args, shown)
		}

		i := strings.IndexFunc(shown, func(r rune) bool {
			return r != '\n' && r != '\r' && r != '\t' && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp)
		})
		if i >= 0 || !utf8.ValidString(shown) {
			t.Errorf("%q: the terminal gets %+q", args, shown)
		}
	}
}

// Finding 11: names had zero-width, bidirectional, BOM and confusable characters. A
// registrant of text has one identity of the domain, and wants to look like another agent.
//
// Requirement: SEC-015
func TestANameThatLooksLikeAnotherIsRefusedOrFlagged(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	api := m.Domains[0].Nodes[0].API
	ada, eve := m.as(0, "agent/ada"), m.as(0, "agent/eve")
	document := []byte(`{"base":"https://a.example","description":"pays bills"}`)

	register := func(client *http.Client, name string) (int, string) {
		t.Helper()

		status, _, answer, err := m.register(client, api+"/ad/r?lt=3600&agent="+url.QueryEscape(name), document)
		must(t, err)

		return status, string(answer)
	}

	for _, name := range []string{"payments", "pay ments"} {
		if status, answer := register(ada, name); status != http.StatusCreated {
			t.Fatalf("%q: %d %s", name, status, answer)
		}
	}

	for _, name := range []string{
		"pay\u200bments", "\ufeffpayments", "\u202estnemyap", "pay\u2066ments", "pay\u2028ments", "payments ",
		"\u00a0payments", "pay\u00adments", "pay\u3164ments", "pay\u009bments",
	} {
		status, answer := register(eve, name)
		if status != http.StatusBadRequest || !strings.Contains(answer, "bad-name") {
			t.Errorf("%+q: %d %s", name, status, answer)
		}
	}

	// Other names that look like it are accepted, and flagged wherever they are shown.
	for name, flags := range map[string]string{
		"p\u0430yments": `["mixed_script","confusable"]`, "payrnents": `["confusable"]`,
	} {
		if status, answer := register(eve, name); status != http.StatusCreated {
			t.Fatalf("%q: %d %s", name, status, answer)
		}

		want := `"flags":` + flags
		for _, path := range []string{"/ad/l?agent=", "/ad/r/", "/agents/", "/discovery/agents/"} {
			_, answer, err := ask(t.Context(), ada, http.MethodGet, api+path+url.PathEscape(name), nil)
			if err != nil || !strings.Contains(string(answer), want) {
				t.Errorf("%s of %q: %s %v", path, name, answer, err)
			}
		}

		for path, body := range map[string]string{
			"/discovery/query": `{"query":"pays bills"}`, "/agents/search": `{"query":"pays bills"}`,
			"/agents/resolve": `{"intent":"pays bills"}`,
		} {
			if _, answer, err := ask(t.Context(), ada, http.MethodPost, api+path, []byte(body)); err != nil ||
				!strings.Contains(string(answer), want) {
				t.Errorf("%s for %q: %s %v", path, name, answer, err)
			}
		}

		if answer := callTool(t, ada, api, "get_agent", name); !strings.Contains(answer, want) {
			t.Errorf("/mcp for %q: %s", name, answer)
		}

		eventually(t, 20*time.Second, "woa.json, which is kept for a moment, flags "+name, func() error {
			_, answer, err := ask(t.Context(), ada, http.MethodGet, api+"/.well-known/woa.json", nil)
			if err == nil && !strings.Contains(string(answer), want) {
				err = fmt.Errorf("got %s", answer)
			}

			return err
		})

		out := m.mustRun(append(m.operator(0), "lookup", "--agent", name))
		if !strings.Contains(out, "confusable") {
			t.Errorf("lookup shows %q", out)
		}
	}

	// The one that was there first is no copy.
	if _, answer, err := ask(t.Context(), eve, http.MethodGet, api+"/ad/r/payments", nil); err != nil ||
		strings.Contains(string(answer), `"flags"`) {
		t.Errorf("the first: %s %v", answer, err)
	}
}

// callTool calls a tool with an agent's name by MCP, and returns the answer with its quotes.
func callTool(t *testing.T, client *http.Client, api, tool, name string) string {
	t.Helper()

	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool +
		`","arguments":{"agent":"` + name + `"}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/mcp", strings.NewReader(call))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")

	resp, err := client.Do(req)
	must(t, err)

	defer resp.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	must(t, err)

	return strings.ReplaceAll(string(answer), `\"`, `"`)
}
