package attacks

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
