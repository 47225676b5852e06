package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/trust"
)

// identityTimeout bounds the wait for an SVID of the Workload API.
const identityTimeout = 10 * time.Second

// workloadAddress returns the Workload API that says who the caller is; nothing where
// none is given, or a certificate is that is nearer: one that is not from the context
// wins over SPIFFE_ENDPOINT_SOCKET, which is there for all programs of a machine.
func (c *connection) workloadAddress() (string, error) {
	address, from := c.settingFrom("workload-api")
	cert, certFrom := c.settingFrom("cert")
	if address == "" || cert == "" {
		return address, nil
	}
	switch {
	case from == "flag" && certFrom == "flag":
		return "", usage("a certificate and a Workload API are two identities").because("Give --cert and --key, or --workload-api, not both.")
	case from == "flag":
		return address, nil
	}
	return "", nil
}

// fromWorkload returns the TLS of a client whose SVID the Workload API at address
// gives and renews, until end. The directory must show the SVID of a node of the
// caller's own domain.
func (c *connection) fromWorkload(address string) (*tls.Config, error) {
	if err := trust.CheckWorkloadAPI(address); err != nil {
		return nil, usage("the Workload API %q has no usable address: %w", address, err).because("It is unix:///PATH or tcp://IP:PORT, in --workload-api or SPIFFE_ENDPOINT_SOCKET.")
	}
	ctx, cancel := context.WithCancel(context.Background())
	bundles := trust.NewBundles()
	w, err := trust.OpenWorkloadAPI(address, bundles, func(spiffeid.ID) bool { return true })
	if err != nil {
		cancel()
		return nil, failed(exitKey, "no identity: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, slog.New(slog.DiscardHandler)) // what it would tell is in the error of the wait
	}()
	c.endWorkload = func() { cancel(); <-done }
	bound, cancelWait := context.WithTimeout(ctx, identityTimeout)
	defer cancelWait()
	source, err := w.Source(bound)
	if err != nil {
		return nil, failed(exitKey, "no identity within %s: %w", identityTimeout, err).
			because("--workload-api or SPIFFE_ENDPOINT_SOCKET names it; this workload needs an entry there.")
	}
	c.workload = source
	td := source.SVID().ID.TrustDomain()
	return trust.ClientTLS(source, bundles, func(id spiffeid.ID) error {
		if !trust.IsNode(id, td) {
			return fmt.Errorf("%s is no node of %s: give the directory's authorities with --bundle", id, td)
		}
		return nil
	}), nil
}

// witOfWorkload is a workload identity token that the Workload API gives, and no file.
const witOfWorkload = "workload-api"

// showingWIT adds a WIT-SVID of the Workload API to every request, with its proof.
func (c *connection) showingWIT(next http.RoundTripper) (http.RoundTripper, error) {
	if c.workload == nil {
		return nil, usage("no Workload API gives a workload identity token").because("Give --workload-api (or SPIFFE_ENDPOINT_SOCKET) and no certificate beside it, or a token's file and key in --wit and --wit-key.")
	}
	prove := func(method, target string) (string, string, error) {
		return c.workload.Prove(context.Background(), method, target, time.Now())
	}
	if _, _, err := prove(http.MethodGet, "https://localhost"); err != nil {
		return nil, failed(exitKey, "the workload can't be shown: %w", err).because("--wit is %s; many a Workload API gives X.509-SVIDs and JWT-SVIDs alone.", witOfWorkload)
	}
	return apiclient.ShowWorkload(next, prove), nil
}

// end ends what the Workload API keeps up to date.
func (c *connection) end() {
	if c.endWorkload != nil {
		c.endWorkload()
		c.endWorkload = nil
	}
}
