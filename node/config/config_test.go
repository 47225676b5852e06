package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/directory/directorytest"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "node.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))

	return path
}

// The sample documents every key, and its values are the defaults.
func TestSampleIsTheDefault(t *testing.T) {
	cfg, err := Load(writeConfig(t, Sample))
	must(t, err)

	want := Default()
	want.Listen.Hosts = cfg.Listen.Hosts

	if len(cfg.Listen.Hosts) > 0 || !reflect.DeepEqual(cfg.Listen, want.Listen) ||
		cfg.Policy != want.Policy || cfg.Lifetimes != want.Lifetimes ||
		cfg.Names != want.Names || len(cfg.Limits.Callers) != 0 ||
		!reflect.DeepEqual(cfg.Limits.rates(), want.Limits.rates()) ||
		cfg.Limits.RegistrationsPerOwner != want.Limits.RegistrationsPerOwner ||
		cfg.Limits.BytesPerOwner != want.Limits.BytesPerOwner ||
		cfg.Limits.RegistrationsPerDomain != want.Limits.RegistrationsPerDomain ||
		cfg.Limits.BytesPerDomain != want.Limits.BytesPerDomain ||
		cfg.Limits.RecordsPerPeer != want.Limits.RecordsPerPeer ||
		cfg.Limits.BytesPerPeer != want.Limits.BytesPerPeer || cfg.Limits.Connections != want.Limits.Connections ||
		cfg.MaxStale != want.MaxStale || cfg.Disk != want.Disk || cfg.Log != want.Log ||
		cfg.Gossip.Enabled != want.Gossip.Enabled ||
		cfg.Discovery.Strict || cfg.Discovery.Weights != want.Discovery.Weights || len(cfg.Discovery.Taxonomies) != 0 ||
		cfg.Discovery.Embeddings != want.Discovery.Embeddings ||
		len(cfg.Join) != 0 || cfg.Expect != want.Expect || cfg.Voter != want.Voter ||
		cfg.RemoveDead != want.RemoveDead {
		t.Errorf("the sample has other values than the defaults: %+v", cfg)
	}

	var keys map[string]any
	must(t, yaml.Unmarshal([]byte(Sample), &keys))

	requireKeys(t, "", reflect.TypeFor[Config](), keys)
}

// requireKeys fails where a field of typ has no key in the sample.
func requireKeys(t *testing.T, path string, typ reflect.Type, keys map[string]any) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name := f.Tag.Get("yaml")

		v, ok := keys[name]
		if !ok {
			t.Errorf("the sample lacks %s%s", path, name)
		}

		if sub, nested := v.(map[string]any); nested && f.Type.Kind() == reflect.Struct {
			requireKeys(t, path+name+".", f.Type, sub)
		}
	}
}

const witnessKey = "witness.example+3c9b23d3+BGt5xX5qCVI5KCwEgY6WES8/A6QAG6l6VkwjhSo/HqX8"

// A configuration that a node can't start with is refused by its key, and a
// file that isn't one by its line.
func TestBadConfigIsNamed(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"unknown key": {"policy: shipped", "polcy: shipped", ": polcy: unknown key; did you mean policy?"},
		"wrong type": {"max: 604800", "max: soon",
			`lifetimes.max: must be a whole number of 0 or more, got "soon"`},
		"a wrong duration": {"drain: 5s", "drain: 5", `drain: must be a duration such as 90s or 24h, got "5"`},
		"a list for keys":  {"lifetimes:", "lifetimes: []\nlog:", "must be a mapping of keys"},
		"a key twice":      {"policy: shipped", "policy: shipped\npolicy: shipped", ": policy: the key occurs twice"},
		"no data":          {"data: data", "", ":1: data: missing"},
		"no public URL":    {"public_url: https://ad.alpha.test:8400", "", ":1: public_url: missing"},
		"not YAML":         {"policy: shipped", "policy: [", "did not find"},
		"a high port":      {"cluster: 0.0.0.0:8402", "cluster: 0.0.0.0:99999", "listen.cluster: the port must be"},
		"a member's port": {"cluster: 10.0.0.1:8402", "cluster: 10.0.0.1:0",
			"members[0].cluster: the port must be from 1 to 65535"},
		"a member's path": {"api: https://10.0.0.1:8400", "api: https://10.0.0.1:8400/x", "members[0].api: must be"},
		"one address twice": {"gossip: 0.0.0.0:8403", "gossip: 127.0.0.1:8402",
			"listen.gossip: 127.0.0.1:8402 is taken by listen.cluster"},
		"health at the admin's": {`health: ""`, "health: 127.0.0.1:8401", "listen.health: 127.0.0.1:8401 is taken"},
		"no domain":             {"trust_domain: alpha.test", "", "trust_domain: missing"},
		"a domain mesh": {"trust_domain: alpha.test", "trust_domain: mesh",
			"trust_domain: \"mesh\" is reserved"},
		"plain http":          {"https://ad.alpha.test:8400", "http://ad.alpha.test", "public_url"},
		"a path":              {"https://ad.alpha.test:8400", "https://ad.alpha.test/x", "public_url"},
		"a vkey that is none": {"logs: []", "logs: [{vkey: x}]", `witness.logs[0].vkey: malformed: "x" is not a vkey`},
		"the vkey of a witness as a log's": {"logs: []", "logs: [{vkey: " + witnessKey + "}]",
			"witness.logs[0].vkey: must be of type 0x01, got 0x04"},
		"a witness twice": {"witnesses: []", "witnesses: [{vkey: " + witnessKey + ", url: https://w}, {vkey: " +
			witnessKey + ", url: https://w}]", `witness.witnesses[1].vkey: the witness "witness.example" occurs twice`},
		"a witness in clear": {"witnesses: []", "witnesses: [{vkey: " + witnessKey + ", url: http://w.example}]",
			"witness.witnesses[0].url: must be the https URL"},
		"a witness too often": {"witnesses: []", "witnesses: [{vkey: " + witnessKey + ", url: https://w, every: 1ms}]",
			"witness.witnesses[0].every: must be from 1s"},
		"a quorum below none": {"quorum: 1", "quorum: -1", "witness.quorum: must be from 0"},
		"a name and a password": {"https://ad.alpha.test:8400", "https://u:p@ad.alpha.test",
			`public_url: must be https://HOST[:PORT], got "https://…@ad.alpha.test"`}, // FLD-008
		"port 0 of a URL":     {"https://ad.alpha.test:8400", "https://ad.alpha.test:0", "public_url"},
		"port 65536 of a URL": {"https://ad.alpha.test:8400", "https://ad.alpha.test:65536", "public_url"},
		"a fragment":          {"https://ad.alpha.test:8400", "https://ad.alpha.test#", "public_url"},
		"two documents": {"policy: shipped", "policy: shipped\n---\nmax_stale: 1m",
			"more than one document"},
		"weights that are none": {"context: 0.66", "context: .nan", "discovery.weights"},
		"open admin":            {"admin: 127.0.0.1:8401", "admin: 0.0.0.0:8401", "listen.admin"},
		"no port":               {"cluster: 0.0.0.0:8402", "cluster: 0.0.0.0", "listen.cluster"},
		"no advertised port":    {`advertise: ""`, "advertise: here", "gossip.advertise"},
		"a stranger": {"spiffe://alpha.test/roster/node/1", "spiffe://beta.test/roster/node/1",
			"members[0].id"},
		"not a node": {"spiffe://alpha.test/roster/node/1", "spiffe://alpha.test/agent/ada",
			"members[0].id"},
		"unknown policy":         {"policy: shipped", "policy: open", "policy:"},
		"too short a max":        {"max: 604800", "max: 59", "lifetimes.max"},
		"no port to join at":     {"join: []", "join: [10.0.0.2]", "join[0]"},
		"nobody to expect":       {"bootstrap_expect: 0", "bootstrap_expect: 3", "bootstrap_expect: it needs join"},
		"a lone reader":          {"voter: true", "voter: false", "voter:"},
		"a hasty burial":         {"remove_dead: 0s", "remove_dead: 1m", "remove_dead"},
		"a hold in pieces":       {"hold: 0s", "hold: 1500ms", "names.hold"},
		"a hold of ages":         {"hold: 0s", "hold: 9000h", "names.hold"},
		"a negative rate":        {"registrations: 50", "registrations: -1", "limits.registrations"},
		"no rate at all":         {"lookups: 500", "lookups: .nan", "limits.lookups"},
		"too many queries":       {"queries: 50", "queries: -2", "limits.queries"},
		"a floor below all":      {"min: 60", "min: 59", "lifetimes.min"},
		"too many workers":       {"workers: 0", "workers: 16385", "limits.workers"},
		"less than none waiting": {"waiting: 0", "waiting: -1", "limits.waiting"},
		"too few connections":    {"connections: 32768", "connections: 2", "limits.connections"},
		"less than no connections": {"connections_per_address: 0", "connections_per_address: -1",
			"limits.connections_per_address"},
		"terms of all": {"callers: []", "callers: [{lookups: 1}]", "limits.callers[0]: it has neither"},
		"terms of a word": {"callers: []", "callers: [{who: \"spiffe://alpha.test/te*\", lookups: 1}]",
			"no identity, and no beginning"},
		"terms by a guess": {"callers: []", "callers: [{by: [guess]}]", "limits.callers[0].by"},
		"a negative term":  {"callers: []", "callers: [{by: [none], public: -1}]", "limits.callers[0].public"},
		"nobody's identity": {"callers: []", "callers: [{who: \"spiffe://alpha.test/*\", by: [none]}]",
			"limits.callers[0].by"},
		"no lifetime between": {"callers: []", "callers: [{by: [wpt], min_lifetime: 3600, max_lifetime: 600}]",
			"limits.callers[0].min_lifetime"},
		"a token that owns": {"callers: []", "callers: [{by: [wpt], registrations_per_owner: 5}]",
			"limits.callers[0].registrations_per_owner"},
		"a token that has bytes": {"callers: []", "callers: [{by: [wpt], bytes_per_owner: 5}]",
			"limits.callers[0].bytes_per_owner"},
		"bytes without end": {"bytes_per_owner: 16777216", "bytes_per_owner: 2000000000000000",
			"limits.bytes_per_owner"},
		"a domain without end": {"bytes_per_domain: 4294967296", "bytes_per_domain: 2000000000000000",
			"limits.bytes_per_domain"},
		"a peer without end": {"bytes_per_peer: 4294967296", "bytes_per_peer: 2000000000000000",
			"limits.bytes_per_peer"},
		"an unknown term":     {"callers: []", "callers: [{by: [wpt], reads: 5}]", "limits.callers[0].reads: unknown key"},
		"a disk slow at once": {"hand_over_after: 5s", "hand_over_after: 1s", "disk.hand_over_after"},
		"a negative slowness": {"slow: 500ms", "slow: -1s", "disk.slow"},
		"stale for ever":      {"max_stale: 5m", "max_stale: 0s", "max_stale"},
		"unknown log level":   {"level: info", "level: loud", "log.level"},
		"unknown format":      {"format: auto", "format: xml", "log.format"},
		"weights over 1":      {"context: 0.66", "context: 0.9", "discovery.weights"},
		"clear queries":       {`url: ""`, `url: "http://model.example/v1/embeddings"`, "discovery.embeddings"},
		"vectors of no model": {`url: ""`, `url: "https://model.example/v1/embeddings"`,
			"discovery.embeddings: the model"},
		"a model of nobody": {`model: ""`, `model: "m"`, "discovery.embeddings.url"},
		"a passing audit":   {"keep: 0s", "keep: 5m", "audit.keep"},
		"one file to keep": {"files: 32\n  keep: 0s", "files: 1\n  keep: 24h",
			"audit.keep: with audit.files of 1"},
		"a session passed on": {"pass_headers: {}", `pass_headers: {"a": ["mcp-session-id"]}`,
			"gateway.pass_headers: a: mcp-session-id can't be passed on: it is this node's own"},
		"credentials passed": {"pass_headers: {}", `pass_headers: {"a": ["Authorization"]}`,
			"it authenticates callers"},
		"a profile of none": {`profile: ""`, "profile: https_web", "bundles.endpoint"},
		"no key":            {"key: node.key", "", "identity"},
		"two identities": {`workload_api: ""`, "workload_api: unix:///run/spire.sock",
			"identity: workload_api replaces"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(Sample, c.old) {
				t.Fatalf("the sample has no %q", c.old)
			}

			path := writeConfig(t, strings.Replace(Sample, c.old, c.new, 1))
			if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want the file and %q", err, c.want)
			}
		})
	}
}

// All errors are reported at once, in the order of the file and at most 20 of them, each with
// its line: users.md, "required keys are required; members checked for duplicates".
//
// Requirement: OPS-016
func TestAllErrorsAreNamed(t *testing.T) {
	path := writeConfig(t, `trust_domain: alpha.test
public_url: https://ad.alpha.test:8400
listen: {api: "0.0.0.0:84000"}
identity: {cert: c, key: k, bundle: b, buldne: x}
members:
  - id: spiffe://alpha.test/roster/node/1
    cluster: 10.0.0.1:8402
  - {id: spiffe://alpha.test/roster/node/2, cluster: "10.0.0.1:8402"}
  - {id: spiffe://alpha.test/roster/node/3, cluster: "10.0.0.3:8402"}
limits: {workers: -1, lookups: many}
trustdomain: alpha.test
`)
	_, err := Load(path)

	var all *Errors
	if !errors.As(err, &all) {
		t.Fatalf("%v is not a list", err)
	}

	want := []string{
		path + ":1: data: missing: give the directory for the node's data",
		path + ":3: listen.api: the port must be from 0 to 65535, got \"0.0.0.0:84000\"",
		path + ":4: identity.buldne: unknown key; did you mean bundle?",
		path + ":8: members[1].cluster: 10.0.0.1:8402 is also members[0].cluster: each member has its own",
		path + ":10: limits.lookups: must be a number, got \"many\"",
		path + ":10: limits.workers: must be from 0 to 16384, got -1",
		path + ":11: trustdomain: unknown key; did you mean trust_domain?",
	}
	if got := all.Lines(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "key%d: 1\n", i)
	}

	_, err = Load(writeConfig(t, many.String()))
	if !errors.As(err, &all) || len(all.Lines()) != maxErrors+1 || all.Lines()[maxErrors] != "and 85 more" {
		t.Errorf("of 100 unknown keys: %v", err)
	}
}

// The node's identity comes from files or from a Workload API, never from both.
func TestOneSourceOfIdentity(t *testing.T) {
	files := Identity{Cert: "c", Key: "k", Bundle: "b"}
	for _, c := range []struct {
		identity Identity
		want     string // nothing where it is fine
	}{
		{files, ""},
		{Identity{WorkloadAPI: "unix:///run/spire/agent.sock"}, ""},
		{Identity{Cert: "c", WorkloadAPI: "unix:///run/spire/agent.sock"}, "replaces"},
		{Identity{WorkloadAPI: "/run/spire/agent.sock"}, "identity.workload_api"},
		{Identity{WorkloadAPI: "https://spire.test"}, "identity.workload_api"},
		{Identity{Cert: "c", Key: "k"}, "are needed"},
		{Identity{}, "or workload_api"},
	} {
		var r report
		c.identity.validate(&r)

		err := r.result("")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.identity, err, c.want)
		}
	}
}

func TestMembersAreListedOnce(t *testing.T) {
	cfg, err := Load(writeConfig(t, Sample))
	must(t, err)

	second := Member{ID: spiffeid.RequireFromString("spiffe://alpha.test/roster/node/2"), Cluster: "10.0.0.2:8402"}

	third := Member{ID: spiffeid.RequireFromString("spiffe://alpha.test/roster/node/3"), Cluster: "10.0.0.3:8402"}
	for want, members := range map[string][]Member{
		"members: must be 1, 3 or 5, got 2": {cfg.Members[0], second},
		"members[2].id: spiffe://alpha.test/roster/node/1 is also members[0].id": {cfg.Members[0], second,
			cfg.Members[0]},
		"members[2].cluster: 10.0.0.2:8402 is also members[1].cluster": {cfg.Members[0], second,
			{ID: third.ID, Cluster: second.Cluster}},
		"members[2].api: https://10.0.0.1:8400 is also members[0].api": {cfg.Members[0], second,
			{ID: third.ID, Cluster: third.Cluster, API: cfg.Members[0].API}},
		"members: must be 1, 3 or 5, got 0": nil,
		"no complaint":                      {cfg.Members[0], second, third},
	} {
		cfg.Members = members

		got := "no complaint"
		if err := cfg.Validate(); err != nil {
			got = err.Error()
		}

		if !strings.Contains(got, want) {
			t.Errorf("%d members: %s, want %s", len(members), got, want)
		}
	}
}

// What a node that joins is configured with holds together.
func TestConfigsThatJoin(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"joins":           {"join: [10.0.0.2:8402]", ""},
		"reads only":      {"join: [10.0.0.2:8402]\nvoter: false", ""},
		"begins by three": {"join: [10.0.0.1:8402, 10.0.0.2:8402]\nbootstrap_expect: 3", ""},
		"by two": {"join: [10.0.0.2:8402]\nbootstrap_expect: 2",
			"bootstrap_expect: must be 0, 1, 3 or 5, got 2"},
		"by readers": {"join: [10.0.0.2:8402]\nbootstrap_expect: 3\nvoter: false", "voter: a node without a vote"},
	} {
		var keys map[string]any
		must(t, yaml.Unmarshal([]byte(Sample), &keys))

		must(t, yaml.Unmarshal([]byte(c.text), &keys))

		text, err := yaml.Marshal(keys)
		must(t, err)

		_, err = Load(writeConfig(t, string(text)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}

		keys["members"] = []any{
			map[string]string{"id": "spiffe://alpha.test/roster/node/1", "cluster": "a:1"},
			map[string]string{"id": "spiffe://alpha.test/roster/node/2", "cluster": "b:1"},
			map[string]string{"id": "spiffe://alpha.test/roster/node/3", "cluster": "c:1"},
		}

		text, _ = yaml.Marshal(keys)
		if _, err := Load(writeConfig(t, string(text))); err == nil {
			t.Errorf("%s: with three members", name)
		}
	}
}

// Whoever serves without a word about limits has limits.
//
// Requirement: OPS-020
func TestLimitsAreOnByDefault(t *testing.T) {
	l := Default().Limits
	for _, r := range l.rates() {
		if *r.value <= 0 {
			t.Errorf("limits.%s is off", r.key)
		}
	}

	if len(l.rates()) != 7 || l.RegistrationsPerOwner == 0 || l.Connections == 0 ||
		l.BytesPerOwner == 0 || l.RegistrationsPerDomain == 0 || l.BytesPerDomain == 0 || l.RecordsPerPeer == 0 ||
		l.BytesPerPeer == 0 {
		t.Errorf("the defaults are %+v", l)
	}
}

var must = directorytest.Must
