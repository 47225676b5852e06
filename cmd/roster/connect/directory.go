package connect

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
)

const (
	// requestTimeout bounds one request, including the response's body.
	requestTimeout = 30 * time.Second
	// handshakeTimeout bounds the TLS handshake.
	handshakeTimeout = 10 * time.Second
	// nextTimeout bounds the connection, and the handshake, if there is another address to
	// go to.
	nextTimeout = 3 * time.Second
	// maxAttempts bounds how often a request is sent, such as during an election, by a
	// command with a timeout.
	maxAttempts = 12
	// MaxParallel is how many requests a command sends at the same time at most.
	MaxParallel = 8
)

// A Directory is the connection to the directory that flags, environment or context name.
type Directory struct {
	// Dial, if it is not nil, makes the client in place of the settings. It is for tests in
	// virtual time.
	Dial func() (*apiclient.Client, error)

	settings  settings
	bound     bound
	transport *http.Transport // of the last client
	identity  workloadIdentity
}

// NewDirectory returns a connection with the settings of an environment, and the contexts
// below the user's configuration directory. ConfigDir may be nil.
func NewDirectory(getenv func(string) string, configDir func() (string, error)) *Directory {
	return &Directory{settings: settings{flags: newFlags(), getenv: getenv, store: contextStore{configDir}}}
}

// AttachFlags adds the connection's flags to all commands below root that talk to a
// directory.
func (d *Directory) AttachFlags(root *cobra.Command) {
	completed := false

	var attach func(c *cobra.Command)

	attach = func(c *cobra.Command) {
		if c != root && cli.TalksToDirectory(c) {
			// The usage line announces flags of the command's own only.
			c.DisableFlagsInUseLine = c.DisableFlagsInUseLine || !c.Flags().HasAvailableFlags()
			c.Flags().AddFlagSet(d.settings.flags)

			// The commands share the flag, so that one completion is enough.
			if !completed {
				completed = c.RegisterFlagCompletionFunc(flagContext, d.completeContext) == nil
			}
		}

		for _, child := range c.Commands() {
			attach(child)
		}
	}
	attach(root)
}

// IsConnectionFlag reports whether a flag is one of the connection's.
func (d *Directory) IsConnectionFlag(flag *pflag.Flag) bool {
	return d.settings.flags.Lookup(flag.Name) == flag
}

// FlagUsages describes the connection's flags.
func (d *Directory) FlagUsages() string { return d.settings.flags.FlagUsagesWrapped(helpWidth) }

// helpWidth is the width of the descriptions of flags, in columns.
const helpWidth = 100

// CloseIdle closes idle connections, so that the next request makes a new one: perhaps to
// another node, and with a renewed certificate.
func (d *Directory) CloseIdle() {
	if d.transport != nil {
		d.transport.CloseIdleConnections()
	}
}

// Close closes the connection and ends the updates from the Workload API.
func (d *Directory) Close() {
	d.CloseIdle()
	d.identity.close()
}

// A Session is one run of the program: its console, and the directory to talk to.
type Session struct {
	*cli.Console
	*Directory
}

// CommandLine returns a command line of this program, ready to paste. It keeps the
// connection's flags of the present command line.
func (s *Session) CommandLine(args ...string) string {
	words := append([]string{s.Program}, s.settings.givenFlags()...)
	for _, arg := range args {
		words = append(words, cli.ShellQuote(arg))
	}

	return strings.Join(words, " ")
}

// UseContext selects the context to use. Client does so as well.
func (s *Session) UseContext() error { return s.settings.useContext(s.Program) }

// UseContextOf is UseContext for a command about one trust domain: the current context of another domain is
// not used, and one that is named is refused.
func (s *Session) UseContextOf(domain string) error {
	s.settings.only = domain
	return s.UseContext()
}

// InContext returns a session of the directory of a saved context, beside this one. Its caller closes the
// directory.
func (s *Session) InContext(name string) (*Session, error) {
	// Flags of the connection would replace the same settings in each of the contexts.
	if given := s.settings.givenFlags(); len(given) > 0 {
		return nil, cli.Usage("%s doesn't go together with contexts as arguments", given[0])
	}

	d := NewDirectory(s.settings.getenv, s.settings.store.configDir)
	d.bound = s.bound

	if err := d.settings.flags.Set(flagContext, name); err != nil {
		return nil, err
	}

	one := &Session{s.Console, d}

	return one, one.UseContext()
}

// BaseURL returns the directory's first address, https://HOST[:PORT].
func (s *Session) BaseURL() (string, error) {
	all, err := s.settings.baseURLs(s.Program)
	if err != nil {
		return "", err
	}

	return all[0], nil
}

// DefaultDomain returns the trust domain of the environment or of the context, or nothing.
func (s *Session) DefaultDomain() string {
	if s.UseContext() != nil {
		return ""
	}

	return s.settings.value(flagDomain)
}

// Address returns the addresses as they were given, or nothing.
func (d *Directory) Address() string { return d.settings.value(flagAddress) }

// Bundle returns the file with the CA certificates and whether a flag names it.
func (d *Directory) Bundle() (file, origin string, isFlag bool) {
	file, origin = d.settings.valueAndOrigin(flagBundle)
	return file, origin, origin == fromFlag
}

// HasToken reports whether requests carry a token.
func (d *Directory) HasToken() bool {
	return d.settings.value(flagTokenFile) != "" || d.settings.value(flagWIT) != ""
}

// HasIdentity reports whether requests carry a client certificate, and whether it comes
// from the Workload API.
func (d *Directory) HasIdentity() (has, fromWorkloadAPI bool, err error) {
	address, err := d.settings.workloadAddress()
	if err != nil {
		return false, false, err
	}

	return address != "" || d.settings.value(flagCert) != "", address != "", nil
}

// SetFallback sets the address and bundle to use if no setting gives them. An empty bundle
// changes nothing.
func (d *Directory) SetFallback(address, bundle string) {
	d.settings.fallback.Address = address
	if bundle != "" {
		d.settings.fallback.Bundle = bundle
	}
}

// PinNode sets the address, trust domain and bundle of one node, whatever the environment and
// the context name; flags still win. An empty bundle changes nothing.
func (d *Directory) PinNode(address, domain, bundle string) {
	d.settings.pinned = Profile{Address: address, Domain: domain, Bundle: bundle}
}

// Client returns a client of the directory.
func (s *Session) Client() (*apiclient.Client, error) {
	if s.Dial != nil {
		return s.Dial()
	}

	if err := s.UseContext(); err != nil {
		return nil, err
	}

	addresses, err := s.settings.baseURLs(s.Program)
	if err != nil {
		return nil, err
	}

	config, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}

	// Only a bundle verifies a learned address as that of a node, so a member can't lead credentials elsewhere.
	learn := config.VerifyConnection != nil
	if learn {
		config = apiclient.OnlyNodes(config, addresses)
	}

	hc, err := s.httpClient(config, len(addresses))
	if err != nil {
		return nil, err
	}

	attempts := maxAttempts
	if s.bound == 0 {
		// A command without a time limit has the client's own number of attempts.
		attempts = 0
	}

	client, err := apiclient.New(apiclient.Config{
		Addresses: addresses,
		HTTP:      hc,
		Attempts:  attempts,
		FailFast:  true,
		Learn:     learn,
	})
	if err != nil {
		return nil, err
	}

	return apiclient.ProveBy(client, config), nil
}

// ClientOf returns a client of the directory's node at another address, with the same
// identity. It asks that node alone, once.
func (s *Session) ClientOf(base string) (*apiclient.Client, error) {
	config, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}

	hc, err := s.httpClient(config, 1)
	if err != nil {
		return nil, err
	}

	return apiclient.ProveBy(apiclient.NewDirect(base, hc), config), nil
}

// httpClient returns the client for requests to a number of addresses.
func (s *Session) httpClient(config *tls.Config, addresses int) (*http.Client, error) {
	connectTimeout := handshakeTimeout
	if addresses > 1 {
		connectTimeout = nextTimeout
	}

	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: MaxParallel,
	}

	s.CloseIdle() // connections of the client before, which may be one of many
	s.transport = transport

	authenticated, err := s.addToken(refusalTransport{transport})
	if err != nil {
		return nil, err
	}

	if s.Verbose {
		authenticated = tracingTransport{authenticated, s.Console}
	}

	// A redirect is not followed, because it would take the certificate and the token to another server.
	return &http.Client{
		Transport:     authenticated,
		Timeout:       s.attemptTimeout(addresses),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// WithClient returns the RunE of a command that needs a client for all of its work.
func (s *Session) WithClient(
	run func(ctx context.Context, client *apiclient.Client, args []string) error,
) func(*cobra.Command, []string) error {
	return withClient(s.Client, run)
}

// withClient returns the RunE of a command that needs the client that dial returns.
func withClient(
	dial func() (*apiclient.Client, error),
	run func(ctx context.Context, client *apiclient.Client, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := dial()
		if err != nil {
			return err
		}

		return run(cmd.Context(), client, args)
	}
}

// NodeClient returns a client of one node, for commands that concern that node alone. Several addresses are refused.
func (s *Session) NodeClient() (*apiclient.Client, error) {
	if s.Dial != nil {
		return s.Dial()
	}

	if err := s.UseContext(); err != nil {
		return nil, err
	}

	addresses, err := s.settings.baseURLs(s.Program)
	if err != nil {
		return nil, err
	}

	if len(addresses) > 1 {
		return nil, cli.Usage("several addresses: this concerns one node").WithHint("Name the node with --address.")
	}

	return s.ClientOf(addresses[0])
}

// WithNode is WithClient for a command that concerns one node alone.
func (s *Session) WithNode(
	run func(ctx context.Context, client *apiclient.Client, args []string) error,
) func(*cobra.Command, []string) error {
	return withClient(s.NodeClient, run)
}

// ClientCertificate returns the caller's certificate, by which requests are proven.
func (s *Session) ClientCertificate() (*tls.Certificate, error) {
	if err := s.UseContext(); err != nil {
		return nil, err
	}

	config, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}

	if config.GetClientCertificate == nil {
		return nil, cli.Usage("no client certificate").WithHint("Give --cert and --key, or --workload-api.")
	}

	return config.GetClientCertificate(&tls.CertificateRequestInfo{Version: tls.VersionTLS13})
}
