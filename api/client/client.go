package client

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory/egress"
)

// Defaults of a Config.
const (
	DefaultAttempts = 4
	DefaultTimeout  = 30 * time.Second
)

// A Config has a client's directory, its credentials, and its timeouts.
type Config struct {
	// Addresses are base URLs of nodes of one domain, https://HOST[:PORT]; plain
	// http is for loopback alone. A request goes to the one that answered last. If
	// it does not answer, or answers 503, the request goes to the next one.
	Addresses []string
	// Learn has the client ask its nodes for the addresses of the domain's other members,
	// and go to those if all of Addresses fail. Nodes answer it for callers of their own
	// domain. TLS must verify nodes, as NodeTrust and LoadTLS with a bundle do. A server at
	// an address that a node named must show the SVID of a node of the domain: New sees to
	// it by OnlyNodes. If HTTP is set, its transport's TLS must be a result of OnlyNodes.
	Learn bool
	// TLS decides whom the client trusts and which certificate it shows; see
	// LoadTLS. Nil trusts the system's authorities and shows none.
	TLS *tls.Config
	// HTTP carries the requests, if it is set; TLS must be nil then. A client that
	// shows tokens has a transport of ShowBearer or ShowWorkload here.
	HTTP *http.Client
	// Attempts bounds how often one request is sent, over all addresses; 0 is
	// DefaultAttempts, and at least one for each address. 1 never repeats a request.
	Attempts int
	// FailFast returns an error as soon as no address can be connected to, instead of
	// asking each of them again. A node that answers that it is unavailable, as in an
	// election, is asked again all the same.
	FailFast bool
	// Timeout bounds one attempt, with its answer's body; 0 is DefaultTimeout. A
	// request that asks the directory to wait may take as much longer. Streams,
	// backups and invocations have no bound but their context's. If HTTP is set, its
	// own Timeout counts.
	Timeout time.Duration
}

// A Client speaks to the directory of one domain. It is safe for concurrent use.
type Client struct {
	addresses *addressBook
	http      *http.Client
	attempts  int
	failFast  bool
	// certificate is that by which operators' requests are proven; nil if there is none.
	certificate certificateSource
}

// New returns a client. It connects to nothing yet. An error says which field of
// the configuration is wrong.
func New(cfg Config) (*Client, error) {
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("client: Addresses is empty; give the base URL of a node, https://HOST[:PORT]")
	}

	if cfg.Attempts < 0 {
		return nil, fmt.Errorf("client: Attempts is %d; it must not be negative", cfg.Attempts)
	}

	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("client: Timeout is %s; it must not be negative", cfg.Timeout)
	}

	if cfg.HTTP != nil && cfg.TLS != nil {
		return nil, errors.New("client: TLS and HTTP are both set; put the TLS configuration into HTTP's transport")
	}

	var addresses []string
	for _, address := range cfg.Addresses {
		base, err := parseAddress(address)
		if err != nil {
			return nil, err
		}

		addresses = append(addresses, base)
	}

	if cfg.Learn && cfg.HTTP == nil {
		// Learned addresses come from nodes, so a server there must prove that it is a node of the domain.
		if cfg.TLS == nil || cfg.TLS.VerifyConnection == nil {
			return nil, errors.New("client: Learn needs TLS that verifies nodes, as that of NodeTrust, or of LoadTLS " +
				"with a bundle")
		}

		cfg.TLS = OnlyNodes(cfg.TLS, addresses)
	}

	client := &Client{
		addresses: newAddressBook(addresses, cfg.Learn), http: cfg.HTTP, attempts: cfg.Attempts, failFast: cfg.FailFast,
	}

	if client.attempts == 0 {
		// Each address is tried once at least.
		client.attempts = max(DefaultAttempts, len(addresses))
	}

	if client.http == nil {
		client.http = newHTTP(cfg.TLS, cfg.Timeout)
	}

	client.certificate = certificateIn(client.http)

	return client, nil
}

// NewDirect returns a client that sends each request once, to the node at address
// (https://HOST:PORT), by hc. It is for tools and tests that must know which node
// was asked, and how often. Others call New.
func NewDirect(address string, hc *http.Client) *Client {
	return &Client{
		addresses: newAddressBook([]string{strings.TrimRight(address, "/")}, false), http: hc, attempts: 1,
		certificate: certificateIn(hc),
	}
}

// Address returns the base URL of the node that is asked next.
func (c *Client) Address() string { return c.addresses.next() }

// CloseIdleConnections closes the connections that carry no request. The next
// request makes a new one, with the certificate that is current then.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// parseAddress returns an address without its last slash.
func parseAddress(address string) (string, error) {
	target, err := url.Parse(address)
	if err != nil || target.Host == "" || target.User != nil ||
		target.RawQuery != "" || target.Fragment != "" || strings.Trim(target.Path, "/") != "" {
		return "", fmt.Errorf("client: the address %q is not https://HOST[:PORT]", address)
	}

	if target.Scheme != "https" && (target.Scheme != "http" || !egress.IsLoopback(target.Hostname())) {
		return "", fmt.Errorf("client: the address %q is not https; plain http is for loopback alone", address)
	}

	return target.Scheme + "://" + target.Host, nil
}

// dialTimeout bounds the wait for one connection, so that an address that answers nothing
// leaves time for the next.
const dialTimeout = 5 * time.Second

// newHTTP returns the HTTP client of a Client that was given none.
func newHTTP(config *tls.Config, timeout time.Duration) *http.Client {
	timeout = cmp.Or(timeout, DefaultTimeout)

	config = cmp.Or(config, &tls.Config{MinVersion: tls.VersionTLS13})

	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     90 * time.Second,
	}

	return &http.Client{
		Transport: transport,
		Timeout:   timeout,
		// A directory never redirects. A server that does is something else, and may not have
		// the caller's credentials.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
