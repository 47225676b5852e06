package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The conformance suite of the Model Context Protocol finds nothing wrong with a node's endpoint,
// nor with the client by which its gateway calls MCP servers: one that ends the stream of its
// answer, too. MCP_CONFORMANCE is the folder in which .ci/conformance installs the suite.
//
// Requirement: FLD-030
func TestMCPConformance(t *testing.T) {
	suite := os.Getenv("MCP_CONFORMANCE")
	if suite == "" {
		t.Skip("MCP_CONFORMANCE is not set: .ci/conformance installs the suite and runs this")
	}

	modules := filepath.Join(suite, "node_modules")

	nodes, err := filepath.Glob(filepath.Join(modules, "node-linux-*", "bin", "node"))
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%s has not one node-linux package: %q, %v", modules, nodes, err)
	}

	p := startProcesses(t, "--domains", "1", "--sample", "0", "--insecure-loopback")
	d := p.Domains[0]
	identity := filepath.Join(filepath.Dir(d.Bundle), "identities", "agent-ada")
	environment := append(os.Environ(), "ROSTER_ADDRESS="+d.Nodes[0].API, "ROSTER_BUNDLE="+d.Bundle,
		"ROSTER_DOMAIN="+d.TrustDomain, "ROSTER_CERT="+identity+".pem", "ROSTER_KEY="+identity+".key",
		"ROSTER="+p.path, "NODE_EXTRA_CA_CERTS="+filepath.Join(p.dir, "ca.pem"))

	// scenario runs one of the suite, and fails unless it has made checks that all succeeded: a
	// scenario without any passes too.
	scenario := func(side, name string, arguments ...string) {
		t.Run(side+" "+name, func(t *testing.T) {
			results := t.TempDir()
			command := exec.Command(nodes[0], append([]string{
				filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"), side,
				"--scenario", name, "--output-dir", results,
			}, arguments...)...)
			command.Env = environment

			out, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("the suite: %v", err)
			}

			files, globErr := filepath.Glob(filepath.Join(results, "*", "checks.json"))
			if globErr != nil || len(files) != 1 {
				t.Fatalf("the suite wrote the results %q, want one file: %v\n%s", files, globErr, out)
			}

			text, err := os.ReadFile(files[0])
			must(t, err)

			var checks []struct{ ID, Status string }
			must(t, json.Unmarshal(text, &checks))

			succeeded := 0
			for _, check := range checks {
				switch check.Status {
				case "SUCCESS":
					succeeded++
				case "INFO":
				default:
					t.Errorf("%s: %s", check.ID, check.Status)
				}
			}

			if succeeded == 0 || t.Failed() {
				t.Errorf("%d checks succeeded:\n%s", succeeded, out)
			}
		})
	}

	for _, name := range []string{"server-initialize", "ping", "tools-list", "resources-list", "prompts-list"} {
		scenario("server", name, "--url", d.Nodes[0].API+"/mcp")
	}

	// The suite starts a client with the URL of its server as the last argument.
	for name, invocation := range map[string]string{
		"initialize": `"{}" || true`, // the server has no tool
		"tools_call": `--operation add_numbers '{"a": 5, "b": 3}'`,
		"sse-retry":  `--operation test_reconnection '{}'`,
	} {
		file := filepath.Join(t.TempDir(), "client")
		script := fmt.Sprintf(`#!/bin/sh -e
printf '{"name": "test.alpha/conformance", "description": "A server", "version": "1.0.0", "remotes": [
  {"type": "streamable-http", "url": "%%s"}]}' "$1" |
"$ROSTER" register conformance -
"$ROSTER" invoke conformance %s
`, invocation)

		must(t, os.WriteFile(file, []byte(script), 0o700))

		scenario("client", name, "--command", file)
	}
}
