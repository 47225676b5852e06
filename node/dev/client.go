package dev

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// identity returns the files of one of d's identities.
func (d *Domain) identity(path string) (Identity, error) {
	for _, id := range d.Identities {
		if id.SPIFFEID == "spiffe://"+d.TrustDomain+path {
			return id, nil
		}
	}

	return Identity{}, fmt.Errorf("%s has no identity %s", d.TrustDomain, path)
}

// client returns a client of one of d's nodes with one of d's identities.
func (d *Domain) client(base, path string) (*apiclient.Client, error) {
	id, err := d.identity(path)
	if err != nil {
		return nil, err
	}

	config, err := apiclient.LoadTLS(apiclient.TLSFiles{
		Bundle: d.Bundle, Domain: d.TrustDomain, Cert: id.Cert, Key: id.Key,
	})
	if err != nil {
		return nil, err
	}

	return apiclient.NewDirect(base,
		&http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}), nil
}

// bundleOf reads a domain's bundle from PEM.
func bundleOf(file, domain string) (*spiffebundle.Bundle, error) {
	td, err := spiffeid.TrustDomainFromString(domain)
	if err != nil {
		return nil, err
	}

	x, err := x509bundle.Load(td, file)
	if err != nil {
		return nil, err
	}

	return spiffebundle.FromX509Bundle(x), nil
}

// adminClient asks admin listeners on loopback.
var adminClient = &http.Client{Timeout: 5 * time.Second}

func readyz(ctx context.Context, admin string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/readyz", nil)
	if err != nil {
		return err
	}

	resp, err := adminClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("not ready: %s", b)
	}

	return nil
}

// running returns the process of the mesh's first node that answers.
func (m *Mesh) running() (pid int, runs bool) {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()

	for _, domain := range m.Domains {
		for _, node := range domain.Nodes {
			resp, err := client.Get(node.Admin + "/healthz")
			if err != nil {
				continue
			}

			_ = resp.Body.Close()

			if resp.StatusCode == http.StatusOK {
				return node.PID, true
			}
		}
	}

	return 0, false
}
