package dev

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/roster-mesh/roster/node"
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
		node.ReplaceFile(all, cas.Bytes(), 0o644),
		node.ReplaceFile(filepath.Join(m.opt.Dir, "curlrc"),
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

	return node.ReplaceFile(filepath.Join(m.opt.Dir, name), []byte(env), 0o644)
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
	curl := "curl -K " + shellQuote(filepath.Join(m.opt.Dir, "curlrc"))
	mirror := fmt.Sprintf("%s/ad/r/%s/%s", last.Nodes[0].API, agent.domain.TrustDomain, agent.rid)
	proof := shellQuote(filepath.Join(m.opt.Dir, "proof.json"))
	m.note("\nFind at %s an agent that was registered at %s, and see where it comes from:", last.TrustDomain,
		agent.domain.TrustDomain)
	m.note("  %s '%s/ad/l?agent=%s'", curl, last.Nodes[0].API, agent.Agent)
	m.note("Ask %s in words for an agent that can do a task, and see why it is the one:", last.TrustDomain)
	m.note("  %s '%s/discovery/query' -H 'Content-Type: application/json' -d '{\"query\":\"read the total of an "+
		"invoice\",\"limit\":1,\"include_evidence\":true}'", curl, last.Nodes[0].API)
	m.note("Save the proof of that agent's record:")
	m.note("  %s -o %s '%s/proof'", curl, proof, mirror)
	m.note("Verify it, without any network:")
	m.note("  %s verify --bundle %s %s", m.opt.Program, shellQuote(agent.domain.Bundle), proof)
	m.note("\nBe the commissioning tool with the command line:  . %s; %s lookup",
		shellQuote(filepath.Join(m.opt.Dir, "env.sh")), m.opt.Program)
	m.note("Be its operator, who may change keys and policy:  . %s; %s keys list",
		shellQuote(filepath.Join(m.opt.Dir, "operator.sh")), m.opt.Program)

	if m.opt.Processes {
		m.note("Kill %s and watch its agents stay until their deadlines, at most %d s, and then go:",
			agent.domain.TrustDomain, int(sampleLifetime.Seconds()))
		m.note("  kill -9%s; %s lookup --address %s --origin %s", pids(agent.domain), m.opt.Program, last.Nodes[0].API,
			agent.domain.TrustDomain)
		m.note("Start a node again:  %s serve --config %s", m.opt.Program, shellQuote(agent.domain.Nodes[0].Config))
	}

	m.note("Logs are beside each node's configuration. Ctrl-C ends the mesh.")
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
