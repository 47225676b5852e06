package scenarios

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/roster-mesh/roster"

// layers is the architecture: the packages of this module that each package imports. A new
// package or edge is one reviewed line here.
var layers = map[string][]string{
	// floor 1
	"directory": {"directory/strictjson"},
	// many things by number, at little cost for the garbage collector
	"directory/table":   {},
	"directory/durable": {}, // files that survive a loss of power
	// overwrites what was deleted from a bbolt file
	"directory/wipe": {},
	// strict JSON: the gate for bytes from outside, and its writer
	"directory/strictjson": {},
	"directory/schema":     {"directory"}, // JSON Schema
	// documents of each draft and registry, and their projections
	"directory/names": {"directory"},
	"directory/kinds": {"directory", "directory/egress", "directory/schema", "directory/strictjson",
		"directory/spelling"},
	"directory/invoke": {"directory", "directory/schema", "directory/strictjson", "limit"}, // how an agent is invoked
	// Merkle logs on disk: entries, hashes, tiles, proofs
	"directory/ledger": {"directory", "directory/durable", "directory/strictjson"},
	// statements, records, pages, heads, key documents
	"directory/signed":        {"directory", "directory/strictjson"},
	"directory/checkpoint":    {"directory"}, // texts of transparency logs: checkpoints, policies, proofs
	"directory/index":         {"directory", "directory/table", "directory/kinds", "directory/names"},
	"directory/contain":       {},                                    // panics on foreign bytes
	"directory/directorytest": {"directory", "directory/kinds"},      // domains, documents and assertions, for tests
	"directory/egress":        {},                                    // addresses of outbound connections, and loopback
	"directory/spelling":      {},                                    // the known name that was meant
	"directory/span":          {"limit"},                             // steps of work in traces
	"directory/sse":           {},                                    // reader of server-sent events
	"directory/problem":       {"directory", "directory/strictjson"}, // the one writer of refusals, for every listener
	"limit":                   {},
	"limit/certs":             {}, // cost of certificates, before they are verified
	// the proof of an operator's request, both ends: the Go client makes it
	"directory/operatorproof": {"limit/certs"},
	// floor 2: strangers to each other, but for api's request and response types
	"discovery": {"directory", "directory/contain", "directory/index", "directory/table", "directory/kinds",
		"directory/strictjson", "discovery/analysis", "discovery/content", "discovery/postings"},
	"discovery/analysis": {}, // texts to terms; the terms of a query
	// a registration as ranking reads it: sections, counts, labels, spam flags
	"discovery/content":  {"directory", "discovery/analysis"},
	"discovery/postings": {"directory/table"}, // terms to registrations, and the best by their sums
	"trust": {"directory", "directory/egress", "limit/certs", "trust/compact", "directory/signed",
		"directory/strictjson", "directory/checkpoint", "directory/durable"},
	"consensus": {"directory", "directory/problem", "directory/index", "directory/kinds", "directory/signed",
		"consensus/state", "consensus/disk", "consensus/backup", "consensus/message", "consensus/raftlog",
		"consensus/stream", "consensus/transport", "directory/names", "directory/span", "directory/ledger",
		"consensus/history"},
	// rooms of consensus
	// the pure state machine
	"consensus/state": {"directory", "directory/index", "directory/table", "directory/kinds", "directory/signed",
		"directory/strictjson", "directory/ledger"},
	// a member's log, votes and snapshots
	"consensus/disk": {"directory/durable"},
	// a backup's format, and salvage of a stopped member's disk
	"consensus/backup": {"directory", "directory/index", "consensus/disk", "consensus/state"},
	// messages between members
	"consensus/history": {"directory", "directory/wipe", "consensus/state"}, // statements of past registrations
	"consensus/message": {"directory", "consensus/history", "consensus/state", "consensus/transport"},
	// the Raft libraries' log lines as ours
	"consensus/raftlog": {"limit"},
	// the connection for writes, both ends
	"consensus/stream": {"consensus/message", "consensus/transport"},
	// the cluster's port
	"consensus/transport": {},
	"federation": {"directory", "directory/contain", "directory/problem", "directory/index", "limit",
		"federation/protocol", "federation/store", "federation/publish", "federation/replica",
		"federation/evidence", "federation/gossip", "directory/kinds", "directory/signed",
		"directory/span", "directory/checkpoint", "federation/mirror"},
	"federation/mirror": {"directory", "directory/checkpoint", "directory/contain", "directory/durable",
		"directory/ledger", "federation/protocol"},
	"gateway": {"directory", "directory/egress", "directory/invoke", "directory/kinds", "directory/schema",
		"directory/sse", "directory/strictjson", "limit", "limit/certs", "directory/span"},
	// rooms of gateway
	"gateway/gatewaytest": {"gateway"}, // a server and a guard, for tests
	"gateway/crawl":       {"directory", "gateway", "directory/kinds", "directory/strictjson"},
	"gateway/probe":       {"directory", "gateway", "gateway/crawl", "directory/invoke", "directory/kinds"},
	// rooms of trust
	"trust/policy":  {"directory"},
	"trust/card":    {"directory", "directory/strictjson", "trust/compact"},    // signed A2A agent cards
	"trust/compact": {"directory", "directory/signed", "directory/strictjson"}, // JWS in their one form
	"trust/credentials": {
		"directory", "directory/strictjson", "trust", "trust/compact", "limit/certs"}, // who makes a request
	"trust/audit": {"directory", "directory/strictjson"},
	// rooms of federation
	// other domains' pages and records on disk
	"federation/store": {"directory", "federation/protocol", "directory/table", "directory/signed", "directory/wipe"},
	// pages, heads and records of the own domain
	"federation/publish": {"directory", "federation/protocol", "directory/signed"},
	// what is held of other domains
	"federation/replica": {"directory", "directory/contain", "directory/index", "directory/kinds", "directory/signed",
		"federation/protocol", "federation/store", "limit", "directory/span"},
	// evidence files on disk
	"federation/evidence": {"directory", "directory/durable"},
	// agreements with peers
	"federation/peering": {"directory", "directory/contain", "directory/problem", "federation/protocol"},
	// cosigns, and has cosigned: C2SP tlog-witness
	"federation/witness": {"directory", "directory/checkpoint", "directory/contain", "directory/problem",
		"directory/signed"},
	// messages between nodes, both ends
	"federation/protocol": {"directory", "directory/contain", "directory/signed", "directory/strictjson",
		"directory/span"},
	"federation/gossip":            {"directory/contain", "limit"},
	"federation/gossip/gossiptest": {}, // a network and certificates, for tests
	"api": {"directory", "directory/operatorproof", "directory/index", "directory/contain", "directory/problem",
		"directory/invoke", "directory/strictjson", "discovery", "limit", "api/access", "api/ad", "api/admission",
		"api/agents", "api/catalog", "api/client", "api/discovery", "api/mcp", "api/openapi", "api/operator",
		"api/registration", "api/request", "api/response", "api/view", "api/wire", "directory/spelling",
		"directory/span", "api/ledger"},
	// rooms of api: first the parts that its surfaces share
	"api/admission": {"directory", "directory/index", "directory/problem", "directory/strictjson", "limit"},
	"api/request": {"directory", "directory/index", "directory/problem", "limit", "api/admission", "api/wire",
		"directory/span"},
	"api/response": {"directory", "directory/strictjson", "api/request"},
	"api/access": {"directory", "directory/index", "directory/kinds", "directory/problem",
		"directory/strictjson", "discovery", "api/request", "api/response", "directory/span"},
	"api/view": {"directory", "directory/contain", "directory/kinds", "directory/strictjson", "discovery",
		"api/response", "directory/names"},
	"api/registration": {"directory", "directory/index", "directory/kinds", "directory/problem",
		"directory/strictjson", "api/access", "api/admission", "api/request", "api/response", "api/view", "api/wire",
		"directory/span"},
	"api/openapi": {"directory", "directory/problem"}, // reads the description of the API
	// … and then the surfaces, strangers to each other
	"api/ad": {"directory", "directory/checkpoint",
		"directory/index", "directory/kinds", "directory/problem", "directory/signed",
		"directory/strictjson", "api/access", "api/admission", "api/registration", "api/request", "api/response",
		"api/view", "api/wire", "directory/span"},
	"api/agents": {"directory", "directory/index", "directory/invoke", "directory/problem", "directory/strictjson",
		"discovery", "api/access", "api/admission", "api/registration", "api/request", "api/response", "api/view",
		"api/wire", "discovery/content", "directory/span", "limit"},
	"api/discovery": {"directory", "directory/kinds", "directory/problem", "directory/strictjson", "discovery",
		"api/registration", "api/request", "api/response", "api/view", "directory/span"},
	"api/operator": {"directory", "directory/index", "directory/problem", "directory/strictjson", "discovery",
		"api/registration", "api/request", "api/response", "api/wire"},
	"api/ledger": {"directory", "api/request", "api/response"}, // the transparency log, for anyone
	"api/catalog": {"directory", "directory/index", "directory/kinds", "directory/problem", "directory/strictjson",
		"api/admission", "api/openapi", "api/registration", "api/request", "api/response"},
	"api/mcp": {"directory", "directory/egress", "directory/problem", "directory/strictjson", "api/client",
		"api/openapi", "api/request", "api/response", "api/wire", "directory/spelling", "api/admission"},
	// what other programs import: its dependencies are few (TestDependencyBudget)
	"api/wire":   {},
	"api/client": {"api/wire", "directory/egress", "directory/operatorproof", "directory/sse", "limit/certs"},
	// apart, since it has a schema validator
	"api/client/contract": {"api/client", "directory", "directory/invoke", "directory/kinds", "directory/signed"},
	// floor 3: the only package that knows the others
	"node": {"directory", "directory/egress", "directory/operatorproof", "directory/index", "directory/contain",
		"directory/problem", "directory/spelling", "discovery", "trust",
		"trust/policy", "trust/audit", "consensus", "consensus/backup", "federation", "federation/protocol",
		"federation/evidence", "federation/gossip", "federation/peering", "federation/witness",
		"gateway", "gateway/crawl", "gateway/probe",
		"api", "api/wire", "api/client", "node/memory", "node/listener", "node/dnssd", "node/disk", "node/config",
		"directory/signed",
		"trust/credentials", "api/operator", "api/request", "node/tracing", "node/metrics", "node/port", "limit",
		"directory/checkpoint", "directory/durable", "directory/ledger"},
	// rooms of node
	"node/memory": {},
	// exports traces
	"node/tracing": {"directory/egress", "directory/span", "limit"},
	// reads the state of every part at a scrape
	"node/metrics": {"directory", "directory/contain", "directory/index", "discovery", "trust", "trust/audit",
		"consensus", "federation", "federation/peering", "federation/protocol", "gateway/probe", "api", "api/admission",
		"api/wire", "node/disk", "node/tracing"},
	// defaults and bounds
	"node/config": {"directory", "directory/egress", "discovery", "trust", "consensus", "gateway", "gateway/crawl",
		"api", "node/dnssd",
		"trust/credentials", "api/admission", "discovery/content", "limit", "directory/checkpoint"},
	// limits of connections
	"node/listener": {"trust", "limit"},
	// announces the directory on the local network
	"node/dnssd": {},
	"node/disk":  {},
	"node/port":  {},
	// consensus: the timing of loopback
	"node/dev": {"node", "api", "api/client", "api/wire", "consensus", "directory", "trust", "node/config",
		"api/operator", "node/port", "directory/durable"},
	// federation: the codes of its refusals
	"node/doctor": {"node", "node/disk", "api/client", "api/wire", "directory", "directory/egress",
		"federation/peering",
		"federation/protocol", "trust", "node/config", "trust/audit", "node/metrics", "node/port"},
	// floor 4
	// its tests run the whole program
	"cmd/roster": {"cmd/roster/local", "cmd/roster/ledger", "cmd/roster/agents", "cmd/roster/domain",
		"cmd/roster/release", "cmd/roster/connect", "cmd/roster/cli", "node/dev", "api/client", "trust",
		"directory", "directory/problem", "gateway/probe", "directory/signed", "directory/spelling"},
	// rooms of cmd/roster: a package for each subject of commands …
	"cmd/roster/agents": {"cmd/roster/cli", "cmd/roster/connect", "cmd/roster/webhook", "api", "api/client",
		"api/client/contract", "trust", "directory", "directory/index", "directory/kinds", "directory/signed",
		"directory/strictjson", "api/agents", "directory/names", "trust/card", "gateway", "gateway/crawl",
		"gateway/probe", "directory/durable"},
	"cmd/roster/domain": {"cmd/roster/cli", "cmd/roster/connect", "node/dnssd", "api/client", "trust",
		"directory", "gateway", "gateway/probe", "directory/kinds", "trust/compact", "api/operator",
		"directory/checkpoint", "node", "node/config", "node/doctor", "node/memory", "api/wire", "trust/policy",
		"trust/audit", "node/metrics", "node/port", "directory/strictjson", "directory/durable"},
	"cmd/roster/ledger": {"cmd/roster/cli", "cmd/roster/connect", "cmd/roster/webhook", "api/client", "directory",
		"directory/checkpoint", "directory/durable", "directory/ledger", "directory/signed"},
	"cmd/roster/local": {"cmd/roster/cli", "cmd/roster/connect", "node/dev", "trust", "node/config", "directory",
		"directory/durable"},
	"cmd/roster/release": {"cmd/roster/cli", "cmd/roster/connect"},
	// … and what these share
	"cmd/roster/connect": {"cmd/roster/cli", "api/client", "api/client/contract", "directory",
		"directory/signed", "gateway", "directory/kinds", "trust", "trust/credentials", "directory/strictjson",
		"directory/durable"},
	"cmd/roster/webhook": {"cmd/roster/cli", "api/client", "directory/egress"},
	// exit codes of their errors
	"cmd/roster/cli": {"api/client", "trust", "directory", "directory/problem", "directory/strictjson"},
	"scenarios": {"node", "node/dev", "api", "api/client", "api/client/contract", "trust", "directory",
		"scenarios/mesh", "node/dnssd", "node/config", "directory/signed", "directory/strictjson", "trust/credentials",
		"api/wire", "scenarios/launch", "scenarios/mutants", "directory/checkpoint", "directory/ledger"},
	// their timing, which stories of long silence slow
	"scenarios/mesh": {"node", "api", "api/client", "trust", "directory", "consensus", "federation/gossip",
		"node/config", "directory/signed", "directory/operatorproof", "api/operator", "api/wire"},
	"scenarios/quality": {"directory", "directory/index", "discovery", "discovery/content"},
	"scenarios/attacks": {"node/dev", "trust", "directory", "directory/signed", "directory/operatorproof",
		"api/operator", "scenarios/launch",
		"federation", "directory/index", "api/wire", "directory/checkpoint", "directory/ledger"}, // a false peer
	"deploy/release":    {"cmd/roster/release"}, // the names of a release's files
	"scenarios/launch":  {"node/dev"},           // processes of tests and loads
	"scenarios/mutants": {},
	"scenarios/pages":   {"scenarios/launch"}, // runs the binary
	"scenarios/load":    {"node/dev", "node/memory", "api/client", "trust", "directory", "scenarios/launch"},
}

// lower lists the packages of floors 1 and 2. Their tests may import each other, and all tests directorytest.
var lower = []string{"directory", "directory/signed", "directory/invoke", "directory/kinds", "directory/schema",
	"directory/strictjson", "directory/index", "directory/table", "directory/problem", "directory/egress",
	"directory/span", "directory/sse", "directory/operatorproof", "limit", "discovery", "discovery/analysis",
	"discovery/content",
	"discovery/postings", "trust", "trust/policy", "trust/audit", "trust/card", "trust/compact",
	"trust/credentials", "consensus", "consensus/state", "consensus/disk", "consensus/backup",
	"consensus/message", "consensus/raftlog", "consensus/stream", "consensus/transport", "federation",
	"federation/protocol", "federation/store", "federation/publish", "federation/replica", "federation/evidence",
	"federation/gossip", "federation/gossip/gossiptest", "federation/peering", "federation/witness", "gateway",
	"gateway/crawl",
	"gateway/probe", "api", "api/wire", "api/client", "api/client/contract", "gateway/gatewaytest",
	"directory/checkpoint"}

const (
	anyone    = "*"     // may be imported by all packages
	testsOnly = "tests" // … by all test files, and nothing else
)

// homes lists the packages that may import each library; the longest path prefix decides.
// Test files may import every listed library.
var homes = map[string][]string{
	// heavy: one home each
	"github.com/hashicorp/raft": {"consensus", "consensus/backup", "consensus/disk", "consensus/raftlog",
		"consensus/message", "consensus/transport", "scenarios", "scenarios/mesh"},
	"github.com/hashicorp/raft-wal":   {"consensus/disk"},
	"github.com/hashicorp/memberlist": {"federation/gossip", "scenarios", "scenarios/mesh"},
	// there, whether another process has the log
	"go.etcd.io/bbolt":                       {"federation/store", "consensus/disk", "consensus/history", "directory/wipe"},
	"github.com/go-jose/go-jose/v4":          {"trust", "trust/card", "trust/compact", "trust/credentials"},
	"github.com/cedar-policy/cedar-go":       {"trust/policy"},
	"github.com/spiffe/go-spiffe/v2":         {"trust"},
	"google.golang.org/protobuf":             {testsOnly},
	"go.opentelemetry.io/otel":               {"directory/span", "node/tracing"}, // the API: spans and their contexts
	"go.opentelemetry.io/otel/sdk":           {"node/tracing"},
	"go.opentelemetry.io/otel/exporters":     {"node/tracing"},
	"go.opentelemetry.io/proto/otlp":         {testsOnly},
	"google.golang.org/grpc":                 {"trust"}, // the Workload API
	"github.com/gorilla/mux":                 {"api"},
	"github.com/getkin/kin-openapi":          {testsOnly},
	"github.com/modelcontextprotocol/go-sdk": {"api/mcp", "gateway"}, // its server, its client
	"github.com/prometheus/client_golang":    {"node", "node/metrics"},
	"github.com/hashicorp/mdns":              {"node/dnssd"}, // DNS-SD, off by default
	"go.yaml.in/yaml/v3":                     {"api/openapi", "node/config", "node/dev", "cmd/roster/cli"},
	"golang.org/x/term":                      {"cmd/roster/cli"}, // whether a person reads or answers
	"github.com/spf13/cobra": {"cmd/roster", "cmd/roster/local", "cmd/roster/agents", "cmd/roster/ledger",
		"cmd/roster/domain", "cmd/roster/release", "cmd/roster/webhook", "cmd/roster/connect", "cmd/roster/cli"},
	"github.com/coreos/go-systemd/v22":         {"cmd/roster/domain"}, // notifications to systemd
	"github.com/spf13/pflag":                   {"cmd/roster", "cmd/roster/connect", "cmd/roster/local", "cmd/roster/agents"},
	"filippo.io/age":                           {"cmd/roster/domain"}, // backup files are encrypted and opened there
	"github.com/RoaringBitmap/roaring/v2":      {"directory", "discovery"},
	"github.com/KimMachineGun/automemlimit":    {"node/memory"},
	"github.com/blevesearch/snowballstem":      {"discovery/analysis", "scenarios/quality"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"directory/schema"},
	"github.com/spiffe/go-spiffe/v2/spiffeid":  {anyone},
	// values of trust's own interface, which node, its rooms and the harness hand on
	"github.com/spiffe/go-spiffe/v2/svid/x509svid":       {"trust", "node/doctor", "scenarios/mesh"},
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle": {"trust", "node/dev", "scenarios/mesh"},
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle":   {"trust", "node/dev"},

	// small, and pure or nearly so
	// raft's logger
	"github.com/hashicorp/go-hclog": {"consensus", "consensus/backup", "consensus/disk", "consensus/raftlog",
		"consensus/transport"},
	// raft's
	"github.com/hashicorp/go-metrics": {"consensus", "node"},
	// raft-wal's
	"github.com/armon/go-metrics": {"consensus", "node"},
	// SVIDs, configuration
	"github.com/fsnotify/fsnotify":       {"trust", "node"},
	"github.com/mtibben/confusables":     {"directory/names"},
	"github.com/cespare/xxhash/v2":       {"api/catalog", "api/response", "api/view"},
	"github.com/klauspost/compress":      {"api/response", "federation/protocol", "directory"}, // gzip, gzip and S2
	"github.com/yosida95/uritemplate/v3": {testsOnly},
	// what stays in the domain
	"github.com/fxamacker/cbor/v2": {"consensus", "consensus/message", "consensus/state", "federation/store"},
	// semver, sumdb/tlog
	"golang.org/x/mod": {"consensus", "consensus/state", "directory/checkpoint", "directory/ledger",
		"cmd/roster/ledger"},
	"github.com/go-json-experiment/json": {anyone},
	"github.com/oklog/ulid/v2":           {anyone},
	"github.com/cenkalti/backoff/v5":     {anyone},
	"golang.org/x/sync":                  {anyone},
	"golang.org/x/sys/unix":              {"directory"},
	"golang.org/x/text":                  {anyone},
	"golang.org/x/time":                  {anyone},
	"pgregory.net/rapid":                 {testsOnly},
	"go.uber.org/goleak":                 {testsOnly},
	"golang.org/x/net/dns/dnsmessage":    {"node/dnssd"},
	"golang.org/x/net/http2":             {testsOnly},
	"golang.org/x/net/http2/hpack":       {testsOnly},
	"golang.org/x/net/nettest":           {testsOnly},
	"github.com/rogpeppe/go-internal":    {testsOnly},
	// differences of audit lines
	"github.com/rogpeppe/go-internal/diff": {"trust/audit"},
	"github.com/anishathalye/porcupine":    {testsOnly},
	"filippo.io/torchwood":                 {testsOnly}, // judges what Roster writes of its ledger
}

// The packages import each other and libraries as the architecture permits.
func TestLayering(t *testing.T) {
	files, complaints := judge(t, os.DirFS(".."))
	if files < 10 {
		t.Fatalf("only %d Go files found", files)
	}

	for _, c := range complaints {
		t.Error(c)
	}
}

// docs/architecture.md has a row for every package, with its imports.
func TestTheArchitecturePageListsThePackages(t *testing.T) {
	text, err := os.ReadFile("../docs/architecture.md")
	must(t, err)

	for from, to := range layers {
		imports := strings.Join(to, ", ")
		if imports == "" {
			imports = "nothing"
		}

		row := regexp.MustCompile("(?m)^\\| `" + from + "` \\| .+ \\| " + regexp.QuoteMeta(imports) + " \\|$")
		if !row.Match(text) {
			t.Errorf("docs/architecture.md has no row of %s that imports %s", from, imports)
		}
	}

	if rows := regexp.MustCompile("(?m)^\\| `[a-z/]+` \\|").FindAll(text, -1); len(rows) != len(layers) {
		t.Errorf("docs/architecture.md has %d rows for %d packages", len(rows), len(layers))
	}
}

// isModule reports whether a directory is a module of its own.
func isModule(root fs.FS, dir string) bool {
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return err == nil
}

// judge checks the imports of every Go file of the module. It returns the number of files
// and the violations.
func judge(t *testing.T, root fs.FS) (files int, complaints []string) {
	t.Helper()

	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") ||
			d.Name() == "testdata" || isModule(root, name)):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}

		files++

		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}

		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}

		from := path.Dir(name)
		if _, ok := layers[from]; !ok {
			complaints = append(complaints,
				fmt.Sprintf("%s: package %s is not in the table: give it its floor in scenarios/layering_test.go",
					name, from))

			return nil
		}

		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}

			if c := complain(from, imported, strings.HasSuffix(name, "_test.go")); c != "" {
				complaints = append(complaints, name+": "+c)
			}
		}

		return nil
	})
	must(t, err)

	return files, complaints
}

// complain returns the violation of one import, or nothing.
func complain(from, imported string, test bool) string {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}

	if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
		switch {
		case ours == from, slices.Contains(layers[from], ours):
			return ""
		case test && slices.Contains(lower, from) && slices.Contains(lower, ours):
			return "" // the compiler sees to cycles
		case test && ours == "directory/directorytest":
			return ""
		}

		return fmt.Sprintf("%s must not import %s; it may import %s", from, ours, list(layers[from]))
	}

	home, ok := homeOf(imported)
	switch {
	case !ok:
		return fmt.Sprintf("%s has no home: name it in scenarios/layering_test.go", imported)
	case test, slices.Contains(home, anyone), slices.Contains(home, from):
		return ""
	}

	return fmt.Sprintf("%s must not import %s, which is for %s", from, imported, list(home))
}

// homeOf returns the packages that may import a library, by the longest listed prefix.
func homeOf(imported string) ([]string, bool) {
	for p := imported; p != "."; p = path.Dir(p) {
		if h, ok := homes[p]; ok {
			return h, true
		}
	}

	return nil, false
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing of ours"
	}

	return strings.Join(names, ", ")
}

// Every edge of the table leads to a package of the table, so a misspelling is found.
func TestLayersAreClosed(t *testing.T) {
	for from, tos := range layers {
		for _, to := range tos {
			if _, ok := layers[to]; !ok {
				t.Errorf("%s may import %s, which is not in the table", from, to)
			}
		}
	}

	for lib, home := range homes {
		for _, h := range home {
			if _, ok := layers[h]; !ok && h != anyone && h != testsOnly {
				t.Errorf("%s is for %s, which is not in the table", lib, h)
			}
		}
	}
}

// The judge finds each kind of violation and names it.
func TestLayeringFindsViolations(t *testing.T) {
	file := func(imports ...string) *fstest.MapFile {
		src := "package p\n"
		for _, i := range imports {
			src += "import _ " + strconv.Quote(i) + "\n"
		}

		return &fstest.MapFile{Data: []byte(src)}
	}

	good := fstest.MapFS{
		"directory/a.go": file("fmt", "golang.org/x/text/unicode/norm",
			"github.com/spiffe/go-spiffe/v2/spiffeid"),
		"trust/a.go":               file(module+"/directory", "github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"),
		"federation/a_test.go":     file(module+"/trust", "pgregory.net/rapid", "github.com/go-jose/go-jose/v4"),
		"federation/testdata/a.go": file(module + "/node"),
		"cmd/roster/main.go":       file(module+"/node/dev", "github.com/spf13/cobra"),
		"scenarios/mesh/a.go":      file(module+"/node", "github.com/hashicorp/raft"),
		"node/a.go":                file(module+"/api", "github.com/prometheus/client_golang/prometheus"),
	}
	if _, complaints := judge(t, good); len(complaints) > 0 {
		t.Errorf("complaints about a good tree: %q", complaints)
	}

	for _, tc := range []struct{ name, imported, want string }{
		{"trust/a.go", module + "/federation", "trust/a.go: trust must not import federation; it may import directory"},
		{"directory/a.go", module + "/trust", "directory must not import trust; it may import directory/strictjson"},
		{"directory/table/a.go", module + "/directory",
			"directory/table must not import directory; it may import nothing of ours"},
		{"consensus/a_test.go", module + "/node", "consensus must not import node"},
		{"util/a.go", "fmt", "package util is not in the table"},
		{"node/a.go", module + "/util", "node must not import util"},
		{"api/a.go", "github.com/hashicorp/raft",
			"api must not import github.com/hashicorp/raft, which is for consensus"},
		{"federation/a.go", "github.com/hashicorp/raft", "must not import"},
		{"consensus/a.go", "github.com/hashicorp/memberlist", "must not import"},
		{"node/a.go", "go.etcd.io/bbolt", "which is for federation"},
		{"api/a.go", "github.com/go-jose/go-jose/v4/jwt", "which is for trust"},
		{"federation/a.go", "github.com/spiffe/go-spiffe/v2/bundle/x509bundle", "which is for trust"},
		{"federation/a.go", "github.com/cedar-policy/cedar-go/types", "which is for trust"},
		{"trust/a.go", "github.com/cedar-policy/cedar-go/types", "which is for trust/policy"},
		{"node/a.go", "github.com/gorilla/mux", "which is for api"},
		{"consensus/a.go", "github.com/prometheus/client_golang/prometheus", "which is for node"},
		{"node/a.go", "github.com/spf13/cobra", "which is for cmd/roster"},
		{"directory/a.go", "pgregory.net/rapid", "which is for tests"},
		{"directory/a_test.go", "example.org/new", "example.org/new has no home"},
	} {
		_, complaints := judge(t, fstest.MapFS{tc.name: file(tc.imported)})
		if len(complaints) != 1 || !strings.Contains(complaints[0], tc.want) {
			t.Errorf("%s importing %s: %q, want one complaint with %q", tc.name, tc.imported, complaints, tc.want)
		}
	}
}

// pure lists the packages without effects: the same input gives the same result on every
// member, at every time.
var pure = []string{"consensus/state"}

// impure lists names that read a clock, randomness or the outside, or run beside the
// caller. Nil stands for the whole package.
var impure = map[string][]string{
	"time":         {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
	"os":           nil,
	"net":          nil,
	"net/http":     nil,
	"crypto/rand":  nil,
	"math/rand":    nil,
	"math/rand/v2": nil,
	"log/slog":     nil,
	"context":      nil,
	"sync":         nil,
	"sync/atomic":  nil,
}

// Apply is a function of the log: nothing in its package can read a clock or the network.
func TestLayersArePure(t *testing.T) {
	for _, name := range pure {
		files, err := filepath.Glob(filepath.Join("..", name, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(name, files, err)
		}

		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}

			src, err := os.ReadFile(file)
			must(t, err)

			complaints, err := impurities(file, src)
			must(t, err)

			for _, c := range complaints {
				t.Error(c)
			}
		}
	}
}

// impurities lists the uses of impure packages and names in one file, and its go
// statements.
func impurities(file string, src []byte) ([]string, error) {
	fset := token.NewFileSet()

	f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	var complaints []string

	complain := func(at token.Pos, what string) {
		complaints = append(complaints, fmt.Sprintf("%s: %s is not for a pure package", fset.Position(at), what))
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}

		if names, ok := impure[imported]; ok && names == nil {
			complain(spec.Pos(), imported)
		}
	}

	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			complain(n.Pos(), "a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impure[x.Name], n.Sel.Name) {
				complain(n.Pos(), x.Name+"."+n.Sel.Name)
			}
		}

		return true
	})

	return complaints, nil
}

// A clock, a goroutine and a socket are each found, and a duration is not.
func TestLayersArePureFindsViolations(t *testing.T) {
	src := `package p

import (
	"net"
	"time"
)

var _ net.Addr

func f() time.Duration {
	go f()
	return time.Since(time.Unix(0, 0))
}
`

	complaints, err := impurities("p.go", []byte(src))
	must(t, err)

	if len(complaints) != 3 {
		t.Errorf("%q, want complaints about net, the goroutine and time.Since", complaints)
	}
}
