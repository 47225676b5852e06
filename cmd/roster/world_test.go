package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/trust"
)

var alpha = spiffeid.RequireTrustDomainFromString("alpha.test")

// A world is the surroundings of the command line: files, an environment, and a directory's
// node with a handler of the test.
type world struct {
	t   *testing.T
	dir string
	env map[string]string
	ca  *trust.CA

	terminal bool
	columns  int // of the terminal
	stdin    string
}

// newWorld starts a node over TLS, with certificates of alpha.test's authority.
func newWorld(t *testing.T, h http.HandlerFunc) *world {
	t.Helper()
	ca, err := trust.NewCA(alpha, time.Now())
	must(t, err)
	w := &world{t: t, dir: t.TempDir(), ca: ca}
	svid, err := ca.Issue("/roster/node/1", time.Hour, time.Now())
	must(t, err)
	bundles := trust.NewBundles()
	must(t, bundles.SetX509(alpha, ca.Bundle().X509Authorities()))
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = trust.ServerTLS(trust.NewSource(svid), bundles, nil)
	// Otherwise httptest presents its own certificate to clients that connect by address.
	server.TLS.Certificates = []tls.Certificate{chainOf(svid)}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	pem, _ := ca.PEM()
	w.env = map[string]string{"ROSTER_ADDRESS": server.URL, "ROSTER_BUNDLE": w.file("bundle.pem", string(pem)),
		"ROSTER_DOMAIN": "alpha.test"}
	w.env["ROSTER_TIMEOUT"] = "5s" // for answers that the program waits out, such as 503
	w.be(ca, "/agent/ada")

	return w
}

// be issues the caller's identity.
func (w *world) be(ca *trust.CA, path string) {
	w.t.Helper()
	svid, err := ca.Issue(path, time.Hour, time.Now())
	must(w.t, err)
	w.env["ROSTER_CERT"], w.env["ROSTER_KEY"] = filepath.Join(w.dir, "me.pem"), filepath.Join(w.dir, "me.key")
	must(w.t, trust.WriteSVID(svid, w.env["ROSTER_CERT"], w.env["ROSTER_KEY"]))
}

func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	must(w.t, os.WriteFile(path, []byte(text), 0o600))

	return path
}

// run runs one command line.
func (w *world) run(args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	return w.runWith(w.t.Context(), args...)
}

func (w *world) runWith(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	return w.program(&out, &errs).run(ctx, args), out.String(), errs.String()
}

// program is one run of the program in this world.
func (w *world) program(stdout, stderr io.Writer) *program {
	getenv := func(name string) string { return w.env[name] }

	streams := cli.Streams{In: strings.NewReader(w.stdin), Out: stdout, Err: stderr, OutIsTerminal: w.terminal,
		ErrIsTerminal: w.terminal, OutColumns: w.columns}
	console := cli.NewConsole(streams, "roster")
	console.NoColor = noColor(getenv)

	return &program{session: &connect.Session{
		Console:   console,
		Directory: connect.NewDirectory(getenv, func() (string, error) { return w.dir, nil }),
	}}
}

// dialing is one run of the program without files and environment, with a transport in
// place of a directory.
func dialing(stdout, stderr io.Writer, url string, transport http.RoundTripper) *program {
	p := &program{session: &connect.Session{
		Console:   &cli.Console{Stdout: stdout, Stderr: stderr, Program: "roster"},
		Directory: connect.NewDirectory(func(string) string { return "" }, nil),
	}}
	p.session.Dial = func() (*apiclient.Client, error) {
		return apiclient.NewDirect(url, &http.Client{Transport: transport}), nil
	}

	return p
}

func chainOf(svid *x509svid.SVID) tls.Certificate {
	c := tls.Certificate{PrivateKey: svid.PrivateKey}
	for _, cert := range svid.Certificates {
		c.Certificate = append(c.Certificate, cert.Raw)
	}

	return c
}

// problem answers with a problem body as a directory's node does.
func problem(status int, name, detail string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		text, _ := json.Marshal(detail)
		fmt.Fprintf(w,
			`{"type":"https://ad.alpha.test/problems/%s","title":"T","status":%d,"detail":%s,"correlation_id":"c-1"}`,
			name, status, text)
	}
}

// says answers 200 with a body.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

var must = directorytest.Must
