package node

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api"
)

func absolute(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// writeFiles writes what people's tools read: all certificate authorities in one
// file, curlrc without an identity, and env.sh for roster as the commissioner.
func (m *devMesh) writeFiles() error {
	var cas bytes.Buffer
	for _, d := range m.Domains {
		b, err := os.ReadFile(d.Bundle)
		if err != nil {
			return err
		}
		cas.Write(b)
	}
	first := m.Domains[0]
	commissioner, err := first.identity("/tool/commissioner")
	if err != nil {
		return err
	}
	all := filepath.Join(m.opt.Dir, "ca.pem")
	env := fmt.Sprintf("export ROSTER_ADDRESS=%s\nexport ROSTER_BUNDLE=%s\nexport ROSTER_CERT=%s\nexport ROSTER_KEY=%s\n",
		shellQuote(first.Nodes[0].API), shellQuote(all), shellQuote(commissioner.Cert), shellQuote(commissioner.Key))
	return errors.Join(
		writeFile(all, cas.Bytes(), 0o644),
		writeFile(filepath.Join(m.opt.Dir, "curlrc"), fmt.Appendf(nil, "cacert = %q\nsilent\nshow-error\nfail-with-body\n", all), 0o644),
		writeFile(filepath.Join(m.opt.Dir, "env.sh"), []byte(env), 0o644),
	)
}

// identity returns the files of one of d's identities.
func (d *DevDomain) identity(path string) (DevIdentity, error) {
	for _, id := range d.Identities {
		if id.SPIFFEID == "spiffe://"+d.TrustDomain+path {
			return id, nil
		}
	}
	return DevIdentity{}, fmt.Errorf("%s has no identity %s", d.TrustDomain, path)
}

// client returns a client of one of d's nodes with one of d's identities.
func (d *DevDomain) client(base, path string) (*api.Client, error) {
	id, err := d.identity(path)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(id.Cert, id.Key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(d.Bundle)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}}
	return api.NewClient(base, &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}), nil
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

// markReady says in mesh.json whether everything runs. Identities that were
// minted meanwhile stay.
func (m *devMesh) markReady(ready bool) error {
	now, err := ReadDevMesh(m.opt.Dir)
	if err != nil {
		return err
	}
	for i := range m.Domains {
		m.Domains[i].Identities = now.Domains[i].Identities
	}
	m.Ready = ready
	return m.write(m.opt.Dir)
}

// printReady tells a newcomer what runs and what to try.
func (m *devMesh) printReady() {
	m.note("\nReady.\n")
	for _, d := range m.Domains {
		for _, n := range d.Nodes {
			m.note("  %-12s %s   process %d", d.TrustDomain, n.API, n.PID)
		}
	}
	agent, ok := m.sampleAt(0)
	if !ok {
		m.note("\nNo sample agents were asked for. Ctrl-C ends the mesh.")
		return
	}
	last := m.Domains[len(m.Domains)-1]
	curl := "curl -K " + shellQuote(filepath.Join(m.opt.Dir, "curlrc"))
	mirror := fmt.Sprintf("%s/ad/r/%s/%s", last.Nodes[0].API, agent.domain.TrustDomain, agent.rid)
	proof := shellQuote(filepath.Join(m.opt.Dir, "proof.json"))
	m.note("\nFind at %s an agent that was registered at %s, and see where it comes from:", last.TrustDomain, agent.domain.TrustDomain)
	m.note("  %s '%s/ad/l?agent=%s'", curl, last.Nodes[0].API, agent.Agent)
	m.note("Ask %s in words for an agent that can do a task, and see why it is the one:", last.TrustDomain)
	m.note("  %s '%s/discovery/query' -H 'Content-Type: application/json' -d '{\"query\":\"read the total of an invoice\",\"limit\":1,\"include_evidence\":true}'", curl, last.Nodes[0].API)
	m.note("Save the proof of that agent's record:")
	m.note("  %s -o %s '%s/proof'", curl, proof, mirror)
	m.note("Verify it, without any network:")
	m.note("  %s verify --bundle %s %s", m.opt.Program, shellQuote(agent.domain.Bundle), proof)
	m.note("\nBe the commissioner with the command line:  . %s; %s lookup", shellQuote(filepath.Join(m.opt.Dir, "env.sh")), m.opt.Program)
	if m.opt.Processes {
		m.note("Kill %s and watch its agents stay until their deadlines, at most %d s, and then go:", agent.domain.TrustDomain, sampleLifetime)
		m.note("  kill -9%s; %s lookup --address %s --origin %s", pids(agent.domain), m.opt.Program, last.Nodes[0].API, agent.domain.TrustDomain)
		m.note("Start a node again:  %s serve --config %s", m.opt.Program, shellQuote(agent.domain.Nodes[0].Config))
	}
	m.note("Logs are beside each node's configuration. Ctrl-C ends the mesh.")
}

func pids(d DevDomain) string {
	var b strings.Builder
	for _, n := range d.Nodes {
		fmt.Fprintf(&b, " %d", n.PID)
	}
	return b.String()
}

// shellQuote returns s as one word of a POSIX shell.
func shellQuote(s string) string {
	if !strings.ContainsAny(s, " \t\n'\"\\$`&;|<>()*?[]#~!{}") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
