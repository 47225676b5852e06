package dev

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/roster-mesh/roster/directory/durable"
)

// writeFiles writes the files for people's tools: all certificate authorities in one
// file, curlrc without an identity, and two scripts for roster. env.sh makes it the
// commissioner, and operator.sh makes it the operator.
func (m *runningMesh) writeFiles() error {
	var cas bytes.Buffer
	for _, d := range m.Domains {
		data, err := os.ReadFile(d.Bundle)
		if err != nil {
			return err
		}

		cas.Write(data)
	}

	all := filepath.Join(m.opt.Dir, "ca.pem")

	return errors.Join(
		durable.WriteFile(all, cas.Bytes(), 0o644),
		durable.WriteFile(filepath.Join(m.opt.Dir, "curlrc"),
			fmt.Appendf(nil, "cacert = %q\nsilent\nshow-error\nfail-with-body\n", all), 0o644),
		m.writeEnv("env.sh", "/tool/commissioner", all),
		m.writeEnv("operator.sh", "/ops/operator", all),
	)
}

// writeEnv writes the script by which roster speaks to the first domain as the identity at path.
func (m *runningMesh) writeEnv(name, path, bundle string) error {
	first := m.Domains[0]

	id, err := first.identity(path)
	if err != nil {
		return err
	}

	env := fmt.Sprintf("export ROSTER_ADDRESS=%s\nexport ROSTER_DOMAIN=%s\nexport ROSTER_BUNDLE=%s\n"+
		"export ROSTER_CERT=%s\nexport ROSTER_KEY=%s\n",
		shellQuote(first.Nodes[0].API), shellQuote(first.TrustDomain), shellQuote(bundle), shellQuote(id.Cert),
		shellQuote(id.Key))

	return durable.WriteFile(filepath.Join(m.opt.Dir, name), []byte(env), 0o644)
}

// printReady prints the running nodes and the commands to try.
func (m *runningMesh) printReady() {
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

	found := agent // of another domain, if there is one
	if other, ok := m.sampleAt(len(m.Domains) - 1); ok {
		found = other
	}

	m.note("\nIn another terminal, as a tool of %s that may register agents:", m.Domains[0].TrustDomain)
	m.note("  . %s", shellQuote(filepath.Join(m.opt.Dir, "env.sh")))

	for _, line := range [][2]string{
		{"lookup", "the agents of all domains"},
		{"discover 'read the total of an invoice'", "an agent that can do a task"},
		{"get " + found.Agent + " --provenance", "who registered it, and how it got here"},
		{"verify " + found.Agent + " --show", "its signatures, checked by the program itself"},
	} {
		m.note("  %s %-41s # %s", m.opt.Program, line[0], line[1])
	}

	m.note("As its operator, who may change keys and policy:")
	m.note("  . %s; %s status", shellQuote(filepath.Join(m.opt.Dir, "operator.sh")), m.opt.Program)

	m.printCurl(*agent, last)

	if m.opt.Processes {
		m.note("Kill %s and watch its agents stay until their deadlines, at most %d s, and then go:",
			agent.domain.TrustDomain, int(sampleLifetime.Seconds()))
		m.note("  kill -9%s; %s lookup --address %s --origin %s", pids(agent.domain), m.opt.Program, last.Nodes[0].API,
			agent.domain.TrustDomain)
		m.note("Start a node again:  %s serve --config %s", m.opt.Program, shellQuote(agent.domain.Nodes[0].Config))
	}

	m.note("Logs are beside each node's configuration. Ctrl-C ends the mesh.")
}

// printCurl prints the commands that find an agent at another domain, and verify it, without
// this program as the client.
func (m *runningMesh) printCurl(agent sampleAgent, at Domain) {
	curl := "curl -K " + shellQuote(filepath.Join(m.opt.Dir, "curlrc"))
	mirror := fmt.Sprintf("%s/ad/r/%s/%s", at.Nodes[0].API, agent.domain.TrustDomain, agent.rid)
	proof := shellQuote(filepath.Join(m.opt.Dir, "proof.json"))

	m.note("\nBy HTTP: an agent of %s at %s, a query in words, and the proof of a record, verified offline:",
		agent.domain.TrustDomain, at.TrustDomain)
	m.note("  %s '%s/ad/l?agent=%s'", curl, at.Nodes[0].API, agent.Agent)
	m.note("  %s '%s/discovery/query' -H 'Content-Type: application/json' -d '{\"query\":\"read the total of an "+
		"invoice\",\"limit\":1,\"include_evidence\":true}'", curl, at.Nodes[0].API)
	m.note("  %s -o %s '%s/proof'", curl, proof, mirror)
	m.note("  %s verify --bundle %s %s\n", m.opt.Program, shellQuote(agent.domain.Bundle), proof)
}

func pids(d Domain) string {
	var out strings.Builder
	for _, n := range d.Nodes {
		fmt.Fprintf(&out, " %d", n.PID)
	}

	return out.String()
}

// shellQuote returns s as one word of a POSIX shell.
func shellQuote(s string) string {
	if !strings.ContainsAny(s, " \t\n'\"\\$`&;|<>()*?[]#~!{}") {
		return s
	}

	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
