package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/trust"
)

// A connection says which directory is meant, whom it must be certified by, and
// who the caller is. Flags win over the environment, and that over the context. A
// context that a flag names takes the environment's place whole, so that no address,
// certificate or token of another directory is mixed with its own.
type connection struct {
	root      *cobra.Command // which has the flags
	getenv    func(string) string
	configDir func() (string, error)            // the user's; nil is none
	chosen    profile                           // of the context that is meant, once that was found out
	fallback  profile                           // where nothing else says
	dial      func() (*apiclient.Client, error) // instead of what is given; for tests in virtual time
	transport *http.Transport

	workload    *trust.Source // of the Workload API; nil where there is none
	endWorkload func()        // ends its work
}

// requestTimeout bounds one request, with its answer's body.
const requestTimeout = 30 * time.Second

// settings are the connection's flags and the environment's names for them. A
// context holds all but the first, which says which context.
var settings = []struct{ flag, variable, help string }{
	{"context", "ROSTER_CONTEXT", "which of your contexts is meant; the current one if not given"},
	{"address", "ROSTER_ADDRESS", "the directory: https://HOST[:PORT] of any node of it"},
	{"bundle", "ROSTER_BUNDLE", "PEM file of the authorities that certify it; the system's if not given"},
	{"cert", "ROSTER_CERT", "PEM file of your X.509-SVID and its chain"},
	{"key", "ROSTER_KEY", "PEM file of its private key"},
	{"workload-api", "SPIFFE_ENDPOINT_SOCKET", "SPIFFE Workload API, unix:///PATH, that gives your X.509-SVID and your domain's bundle instead of files"},
	{"wit", "ROSTER_WIT", "file of your workload identity token, or workload-api: that gives it, and its key"},
	{"wit-key", "ROSTER_WIT_KEY", "PEM file of the private key that it confirms"},
	{"token-file", "ROSTER_TOKEN_FILE", "file of your OAuth access token or JWT-SVID"},
}

func (c *connection) flags(root *cobra.Command) {
	c.root = root
	for _, s := range settings {
		root.PersistentFlags().String(s.flag, "", s.help+" ("+s.variable+")")
	}
}

// given returns the connection's flags that the command line has, quoted.
func (c *connection) given() []string {
	var words []string
	for _, s := range settings {
		if f := c.root.PersistentFlags().Lookup(s.flag); f.Changed {
			words = append(words, "--"+s.flag, shellQuote(f.Value.String()))
		}
	}
	return words
}

// setting returns a flag's value, or else the environment's, or else that of the
// context that was chosen.
func (c *connection) setting(flag string) string {
	value, _ := c.settingFrom(flag)
	return value
}

// settingFrom is setting, and says which of them it is; nothing where none is.
func (c *connection) settingFrom(flag string) (value, from string) {
	if f := c.root.PersistentFlags().Lookup(flag); f.Changed {
		return f.Value.String(), "flag"
	}
	for _, s := range settings {
		if s.flag == flag && c.getenv(s.variable) != "" && !c.replaced(flag) {
			return c.getenv(s.variable), "environment"
		}
	}
	if value := c.chosen.of(flag); value != nil && *value != "" {
		return *value, "context"
	}
	if value := c.fallback.of(flag); value != nil {
		return *value, ""
	}
	return "", ""
}

// replaced reports whether a context stands in the environment's place. The Workload
// API is the machine's, whatever the directory, and goes on counting if the context
// says nothing of who the caller is.
func (c *connection) replaced(flag string) bool {
	if !c.root.PersistentFlags().Lookup("context").Changed {
		return false
	}

	return flag != "workload-api" || c.chosen.Cert != "" || c.chosen.WIT != "" || c.chosen.Token != ""
}

// client returns a client of the directory.
func (a *app) client() (*apiclient.Client, error) {
	if a.dial != nil {
		return a.dial()
	}
	if err := a.choose(); err != nil {
		return nil, err
	}
	base, err := a.baseURL()
	if err != nil {
		return nil, err
	}
	config, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	a.transport = &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment,
		TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: importers,
	}
	shown, err := a.showing(frank{a.transport})
	if err != nil {
		return nil, err
	}
	return apiclient.NewDirect(base, &http.Client{
		Transport: shown, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}), nil
}

// showing adds the token that is given to every request; a client certificate may
// come beside it.
func (a *app) showing(next http.RoundTripper) (http.RoundTripper, error) {
	wit, witKey, file := a.setting("wit"), a.setting("wit-key"), a.setting("token-file")
	switch {
	case wit != "" && file != "":
		return nil, usage("a request shows one token").because("Give --wit, with --wit-key where it is a file, or --token-file, not both.")
	case wit == witOfWorkload && witKey != "":
		return nil, usage("the Workload API gives the token's key as well").because("Give --wit %s alone, or files in --wit and --wit-key.", witOfWorkload)
	case wit == witOfWorkload:
		return a.showingWIT(next)
	case (wit == "") != (witKey == ""):
		return nil, usage("a workload identity token and its key belong together").because("Give both --wit and --wit-key (or ROSTER_WIT and ROSTER_WIT_KEY), or neither.")
	case wit != "":
		w, err := trust.OpenWorkload(wit, witKey)
		if err != nil {
			return nil, failed(exitKey, "the workload can't be shown: %w", err).because("--wit is %s and --wit-key is %s.", wit, witKey)
		}
		return apiclient.ShowWorkload(next, func(method, target string) (string, string, error) { return w.Prove(method, target, time.Now()) }), nil
	case file != "":
		token := func() (string, error) { return readToken(file) }
		if _, err := token(); err != nil {
			return nil, failed(exitKey, "the token can't be shown: %w", err)
		}
		return apiclient.ShowBearer(next, token), nil
	}
	return next, nil
}

// readToken reads a token from a file that whoever issues it replaces.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s does not hold one token", file)
	}
	return token, nil
}

func (c *connection) close() {
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

func (a *app) baseURL() (string, error) {
	address := a.setting("address")
	if address == "" {
		return "", usage("no directory is given").
			because("Give --address https://HOST[:PORT] or set ROSTER_ADDRESS; a mesh to try things with starts by itself:").
			try(a.program + " dev")
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return "", usage("the address %q is not one of a directory", address).
			because("A directory's address is https://HOST[:PORT], without a path; it is never plain http.")
	}
	return "https://" + u.Host, nil
}

func (a *app) tlsConfig() (*tls.Config, error) {
	address, err := a.workloadAddress()
	if err != nil {
		return nil, err
	}
	if address == "" {
		return a.tlsOfFiles()
	}
	shown, err := a.fromWorkload(address)
	if err != nil || a.setting("bundle") == "" {
		return shown, err
	}
	config, err := a.tlsOfBundle() // which decides whom to believe
	if err == nil {
		config.GetClientCertificate = shown.GetClientCertificate
	}
	return config, err
}

// tlsOfBundle believes who the bundle's authorities certify, or the system's.
func (a *app) tlsOfBundle() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if file := a.setting("bundle"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, failed(exitFailed, "the bundle can't be read: %w", err).because("--bundle (or ROSTER_BUNDLE) names a PEM file of certificate authorities.")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, failed(exitFailed, "the bundle %s has no certificate in PEM", file)
		}
	}
	return config, nil
}

func (a *app) tlsOfFiles() (*tls.Config, error) {
	config, err := a.tlsOfBundle()
	if err != nil {
		return nil, err
	}
	cert, key := a.setting("cert"), a.setting("key")
	switch {
	case cert == "" && key == "":
		return config, nil // anonymous
	case cert == "" || key == "":
		return nil, usage("a certificate and its key belong together").because("Give both --cert and --key (or ROSTER_CERT and ROSTER_KEY), or neither to be anonymous.")
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, failed(exitKey, "the client certificate can't be used: %w", err).because("--cert is %s and --key is %s.", cert, key)
	}
	// Read again for every connection: SVIDs are renewed while register --keep runs.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return config, nil
}
