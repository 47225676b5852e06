package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/credentials"
)

// svidTimeout bounds the wait for an SVID of the Workload API.
const svidTimeout = 10 * time.Second

// workloadAddress returns the address of the Workload API that provides the identity, or
// nothing. A certificate in a flag or the environment wins over SPIFFE_ENDPOINT_SOCKET,
// which is set for all programs of a machine.
func (s *settings) workloadAddress() (string, error) {
	address, origin := s.valueAndOrigin(flagWorkloadAPI)

	cert, certOrigin := s.valueAndOrigin(flagCert)
	if address == "" || cert == "" {
		return address, nil
	}

	switch {
	case origin == fromFlag && certOrigin == fromFlag:
		return "", cli.Usage("--cert and --workload-api exclude each other").
			WithHint("Both provide your identity: give --cert and --key, or --workload-api.")
	case origin == fromFlag:
		return address, nil
	}

	return "", nil
}

// A workloadIdentity is the identity and the bundle that a Workload API provides and
// renews, from open to close.
type workloadIdentity struct {
	source  *trust.Source // nil before open
	bundles *trust.Bundles
	stop    func() // ends the updates
}

// open connects to the Workload API and waits for the first SVID, unless a former client of the command has. A
// command that follows a log makes a client at each look.
func (w *workloadIdentity) open(address string) error {
	if w.source != nil {
		return nil
	}

	w.close() // the updates of an open that failed

	if err := trust.CheckWorkloadAPI(address); err != nil {
		return cli.Usage("invalid Workload API address %q: %w", address, err).
			WithHint("--workload-api or SPIFFE_ENDPOINT_SOCKET must be unix:///PATH or tcp://IP:PORT.")
	}

	// The updates serve all connections of the command, so they run until close.
	ctx, cancel := context.WithCancel(context.Background())
	bundles := trust.NewBundles()

	updates, err := trust.OpenWorkloadAPI(address, bundles, func(spiffeid.ID) bool { return true })
	if err != nil {
		cancel()
		return cli.Failed(cli.ExitKey, "no identity from the Workload API: %w", err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)

		// Source returns the error that the updates would log.
		updates.Run(ctx, slog.New(slog.DiscardHandler))
	}()

	// The function is set before the wait, so that close ends the updates of a failed open, too.
	w.stop = func() {
		cancel()
		<-done
	}

	bound, cancelWait := context.WithTimeout(ctx, svidTimeout)
	defer cancelWait()

	source, err := updates.Source(bound)
	if err != nil {
		return cli.Failed(cli.ExitKey, "no identity from the Workload API within %s: %w", svidTimeout, err).
			WithHint("Check --workload-api (or SPIFFE_ENDPOINT_SOCKET), and that this workload has a " +
				"registration entry.")
	}

	w.source = source
	w.bundles = bundles

	return nil
}

// certificate returns the SVID as the client certificate of a connection.
func (w *workloadIdentity) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return w.source.Certificate(), nil
}

// trustNodes sets the Workload API's bundle as the anchor of nodes: those of the caller's
// own domain, unless another is set.
func (w *workloadIdentity) trustNodes(nodes *apiclient.NodeTrust) error {
	domain := w.source.SVID().ID.TrustDomain()
	if nodes.Domain != "" {
		var err error
		if domain, err = spiffeid.TrustDomainFromString(nodes.Domain); err != nil {
			return cli.Usage("--domain must be a trust domain, got %q", nodes.Domain)
		}
	}

	if !w.bundles.Has(domain) {
		return cli.Failed(cli.ExitKey, "the Workload API has no bundle of %s", domain).
			WithHint("Give the CA certificates of that domain with --bundle.")
	}

	nodes.Domain = domain.Name()
	nodes.Authorities = func() []*x509.Certificate {
		held, err := w.bundles.GetX509BundleForTrustDomain(domain)
		if err != nil {
			// The Workload API withdrew the bundle, so that no node is certified any more.
			return nil
		}

		return held.X509Authorities()
	}

	return nil
}

// addWIT returns a transport that adds a WIT-SVID and its proof of possession to every
// request.
func (w *workloadIdentity) addWIT(next http.RoundTripper) (http.RoundTripper, error) {
	if w.source == nil {
		return nil, cli.Usage("--wit %s without a Workload API", witOfWorkloadAPI).
			WithHint("Give --workload-api (or SPIFFE_ENDPOINT_SOCKET) and no --cert, or files in --wit and --wit-key.")
	}

	prove := func(method, target string) (string, string, error) {
		return credentials.ProveBySource(context.Background(), w.source, method, target, time.Now())
	}
	if _, _, err := prove(http.MethodGet, "https://localhost"); err != nil {
		return nil, cli.Failed(cli.ExitKey, "no workload identity token from the Workload API: %w", err).
			WithHint("Many Workload APIs provide X.509-SVIDs and JWT-SVIDs only.")
	}

	return apiclient.ShowWorkload(next, prove), nil
}

// close ends the updates.
func (w *workloadIdentity) close() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}
