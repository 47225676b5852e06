package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// The certificate of the files is shown, and after it was replaced the next
// connection shows the new one.
func TestACertificateIsReadForEachConnection(t *testing.T) {
	ca := newAuthority(t, "spiffe://alpha.test")
	node := startNode(t, ca.issue(t, svidOf("spiffe://alpha.test/roster/node/1")), tls.RequireAnyClientCert)

	dir := t.TempDir()
	bundle, cert, key := filepath.Join(dir, "bundle.pem"), filepath.Join(dir, "svid.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, bundle, "CERTIFICATE", ca.cert.Raw)
	issue(t, cert, key, "first")

	config, err := LoadTLS(TLSFiles{Bundle: bundle, Cert: cert, Key: key})
	must(t, err)

	c, err := New(Config{Addresses: []string{node.URL}, TLS: config})
	must(t, err)
	defer c.CloseIdleConnections()

	shown := func() string {
		t.Helper()

		page, err := c.Lookup(t.Context(), LookupOptions{})
		must(t, err)

		return page.Index()
	}
	if got := shown(); got != "first" {
		t.Errorf("the directory was shown %q", got)
	}

	issue(t, cert, key, "second")
	c.CloseIdleConnections()

	if got := shown(); got != "second" {
		t.Errorf("after the renewal the directory was shown %q", got)
	}
}

func TestFilesThatAreNoCredentialsAreRefused(t *testing.T) {
	dir := t.TempDir()

	text, cert, key := filepath.Join(dir, "text"), filepath.Join(dir, "svid.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(text, []byte("no PEM"), 0o600))

	issue(t, cert, key, "one")

	for name, files := range map[string][3]string{
		"no bundle":         {filepath.Join(dir, "absent"), "", ""},
		"a bundle of text":  {text, "", ""},
		"no key":            {"", cert, ""},
		"no certificate":    {"", "", key},
		"a key of text":     {"", cert, text},
		"a key for another": {"", text, key},
	} {
		if _, err := LoadTLS(TLSFiles{Bundle: files[0], Cert: files[1], Key: files[2]}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}

	if config, err := LoadTLS(TLSFiles{}); err != nil || config.GetClientCertificate != nil || config.RootCAs != nil {
		t.Errorf("an anonymous caller: %+v, %v", config, err)
	}
}

// issue writes a self-signed certificate and its key.
func issue(t *testing.T, cert, key, name string) {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)

	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)

	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "PRIVATE KEY", keyDER)
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()

	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

var must = directorytest.Must
