package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// bareCommand runs this program as the yardstick of lookups.
const bareCommand = "bare"

// bareName is the name of the bare handler in the table.
const bareName = "bare handler, same TLS"

// barePath is the path of the bare handler's identity.
const barePath = "/agent/ada"

// serveBare is the yardstick's process: a net/http server behind a node's TLS
// configuration that answers every request with the same bytes. Its arguments are an address, a
// certificate, its key, the bundle, the trust domain and the file with the answer.
func serveBare(args []string) error {
	if len(args) != 6 {
		return fmt.Errorf("bare: %d arguments, 6 are needed", len(args))
	}

	body, err := os.ReadFile(args[5])
	if err != nil {
		return err
	}

	source, err := trust.OpenFiles(args[1], args[2])
	if err != nil {
		return err
	}

	td, err := spiffeid.TrustDomainFromString(args[4])
	if err != nil {
		return err
	}

	bundles := trust.NewBundles()
	if err := bundles.LoadFile(td, args[3]); err != nil {
		return err
	}

	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}

	length := []string{strconv.Itoa(len(body))}
	handler := func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"], w.Header()["Content-Length"] = []string{"application/json"}, length
		_, _ = w.Write(body) // the client is gone if it fails
	}
	s := &http.Server{Handler: http.HandlerFunc(handler), ReadHeaderTimeout: 10 * time.Second}

	return s.Serve(tls.NewListener(listener, http1(trust.ServerTLS(source, bundles, nil))))
}

// http1 leaves HTTP/2 away, which a Server does not set up on a given listener.
func http1(c *tls.Config) *tls.Config {
	c.NextProtos = []string{"http/1.1"}
	return c
}

// startBare starts the yardstick, which answers with body, and returns the URL of
// a path at it.
func (b *bench) startBare(ctx context.Context, domain *domain, path string, body []byte) (*process, string, error) {
	file := filepath.Join(b.dir, "answer")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return nil, "", err
	}

	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}

	addresses, err := freeAddresses(1)
	if err != nil {
		return nil, "", err
	}

	cert, key, err := domain.files(barePath)
	if err != nil {
		return nil, "", err
	}

	process, err := begin("the bare handler", filepath.Join(b.dir, "bare.log"), self, bareCommand, addresses[0], cert,
		key, domain.Bundle, domain.TrustDomain, file)
	if err != nil {
		return nil, "", err
	}

	url := "https://" + addresses[0] + path
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	err = until(ctx, "the bare handler answers", process, func() error {
		_, err := domain.do(ctx, http.MethodGet, url, nil)
		return err
	})
	if err != nil {
		process.end()
	}

	return process, url, err
}
