package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A member may name any address to clients, such as a thief of its key does. A server there
// gets no request, although an authority of the system certifies its host name.
//
// Requirement: TRUST-001
func TestAServerThatIsNoNodeGetsNoToken(t *testing.T) {
	const certFile = "SSL_CERT_FILE" // is read once in a process

	if os.Getenv("ROSTER_TEST_LEARNED") == "" {
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		self.Env = append(os.Environ(), "ROSTER_TEST_LEARNED=1", certFile+"="+filepath.Join(t.TempDir(), "ca.pem"))

		if out, err := self.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}

		return
	}

	var asked atomic.Int32

	evil := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	evil.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	evil.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{
		publicCertificate(t, os.Getenv(certFile))}}
	evil.StartTLS()
	t.Cleanup(evil.Close)

	address := strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Roster-Nodes", address)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable) // the client goes to the next node
	})

	if code, _, errs := w.run("lookup", "--timeout", "3s"); code == 0 || asked.Load() != 0 {
		t.Errorf("exit code %d, %d requests: %s", code, asked.Load(), errs)
	}

	w.env["ROSTER_ADDRESS"] = address
	if code, _, errs := w.run("lookup", "--timeout", "3s"); asked.Load() == 0 {
		t.Errorf("by its host name a configured server is accepted: exit code %d: %s", code, errs)
	}
}

// publicCertificate makes an authority, writes it to a file, and returns a certificate of it
// for localhost.
func publicCertificate(t *testing.T, file string) tls.Certificate {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
