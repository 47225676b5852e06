package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// A rule is one rule of a file for Prometheus.
type rule struct {
	Alert       string            `yaml:"alert"`
	Record      string            `yaml:"record"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

func rulesOf(t *testing.T, file string) (all []rule) {
	t.Helper()

	text, err := os.ReadFile(file)
	must(t, err)

	var parsed struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	must(t, yaml.Unmarshal(text, &parsed))

	for _, group := range parsed.Groups {
		all = append(all, group.Rules...)
	}

	return all
}

// Requirement: OPS-014
func TestRulesAreValidAndTested(t *testing.T) {
	promtool := tool(t, "promtool")

	run(t, exec.Command(promtool, "check", "rules", "../prometheus/alerts.yaml", "../prometheus/recording.yaml"))
	run(t, exec.Command(promtool, "check", "config", "../prometheus/prometheus.yaml"))
	run(t, exec.Command(promtool, "test", "rules", "../prometheus/tests.yaml"))
}

// Each alert has a section in the runbooks that begins with a command, and no section is left
// over.
//
// Requirement: OPS-014
func TestEachAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbooks.md")
	must(t, err)

	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		sections[name] = body
	}

	for _, alert := range rulesOf(t, "../prometheus/alerts.yaml") {
		body, ok := sections[alert.Alert]
		delete(sections, alert.Alert)

		if !ok {
			t.Errorf("%s has no section in docs/runbooks.md", alert.Alert)
		}

		_, block, _ := strings.Cut(body, "```sh")
		_, command, _ := strings.Cut(block, "\n")

		if !strings.HasPrefix(command, "roster ") {
			t.Errorf("the runbook of %s doesn't begin with a command", alert.Alert)
		}

		if want := "/docs/runbooks.md#" + strings.ToLower(alert.Alert); !strings.HasSuffix(
			alert.Annotations["runbook_url"], want) {
			t.Errorf("%s names the runbook %s, want …%s", alert.Alert, alert.Annotations["runbook_url"], want)
		}
	}

	for name := range sections {
		t.Errorf("docs/runbooks.md has a section for %s, which is no alert", name)
	}
}

// A devMesh is what "roster dev" writes of its mesh.
type devMesh struct {
	Ready   bool
	Domains []struct {
		TrustDomain string `json:"trust_domain"`
		Nodes       []devNode
	}
}

type devNode struct {
	ID, API, Admin, Config, Data string
	PID                          int
}

// dev starts a mesh of processes.
func dev(t *testing.T, domains, nodes int, more ...string) (dir string, mesh devMesh) {
	t.Helper()

	dir = filepath.Join(t.TempDir(), "mesh")
	flags := []string{"dev", "--dir", dir, "--port", "0", "--processes", "--sample", "2",
		"--domains", fmt.Sprint(domains), "--nodes", fmt.Sprint(nodes)}
	start(t, "roster dev", exec.Command(binary(t), append(flags, more...)...))

	until(t, "the mesh is ready", func() error {
		text, err := os.ReadFile(filepath.Join(dir, "mesh.json"))
		if err != nil {
			return err
		}

		if err := json.Unmarshal(text, &mesh); err != nil {
			return err
		}

		if !mesh.Ready {
			return errors.New("it isn't")
		}

		return nil
	})

	return dir, mesh
}

// operator returns a command of a development domain's operator.
func operator(t *testing.T, dir, domain, api string, args ...string) *exec.Cmd {
	t.Helper()

	identity := filepath.Join(dir, domain, "identities", "ops-operator")

	return exec.Command(binary(t), append(args, "--address", api, "--bundle", filepath.Join(dir, domain, "bundle.pem"),
		"--cert", identity+".pem", "--key", identity+".key")...)
}

var (
	seriesName = regexp.MustCompile(`\b(?:roster|go|process)_[a-z0-9_]+\b`)
	recorded   = regexp.MustCompile(`\b[a-z_]+:[a-z_]+:[a-z0-9]+\b`)
	labelNames = regexp.MustCompile(`(?m)^roster_[a-z_]+\{([^}]*)\}`)
)

// knownLabels have few values; no metric is labelled by an agent, a path or a query.
var knownLabels = []string{"origin", "peer", "code", "method", "route", "status", "le", "direction", "pool", "state",
	"reason", "class", "listener", "place", "format", "fate", "version", "member", "verdict", "witness", "outcome"}

// Every series in the rules and the dashboard exists in a running node.
//
// Requirement: OPS-014
func TestEverySeriesExists(t *testing.T) {
	_, mesh := dev(t, 2, 1)
	node := mesh.Domains[0].Nodes[0]

	// A series of a request, and of a refused one.
	client := http.Client{Timeout: 10 * time.Second}
	for _, path := range []string{"/metrics", "/absent"} {
		if answer, err := client.Get(node.Admin + path); err == nil {
			_ = answer.Body.Close()
		}
	}

	records := map[string]bool{}

	var used []string
	for _, file := range []string{"../prometheus/recording.yaml", "../prometheus/alerts.yaml"} {
		for _, each := range rulesOf(t, file) {
			records[each.Record] = true
			used = append(used, each.Expr)
		}
	}

	used = append(used, dashboardExpressions(t)...)

	// Those of which a healthy mesh has no sample, but a description.
	unseen := map[string]bool{"roster_federation_messages_refused_total": true, "roster_requests_refused_total": true,
		"roster_bundle_failing": true, "roster_credentials_refused_total": true, "roster_federation_unsupported": true,
		"roster_tls_handshakes_refused_total":  true,
		"roster_peer_refuses":                  true,
		"roster_federation_contradicted_nodes": true, "roster_federation_shed": true, "roster_federation_frozen": true,
		"roster_federation_unconfirmed": true, "roster_federation_checkpoint_age_seconds": true,
		"roster_federation_ledger_differs": true,
		// Of members besides the leader.
		"roster_raft_member_silent": true, "roster_raft_member_duplicate": true}

	until(t, "all series exist", func() error {
		answer, err := client.Get(node.Admin + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()

		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}

		for _, expression := range used {
			for _, name := range recorded.FindAllString(expression, -1) {
				if !records[name] {
					t.Errorf("%s is recorded by no rule", name)
				}
			}

			bare := recorded.ReplaceAllString(expression, "")
			for _, name := range seriesName.FindAllString(bare, -1) {
				if !regexp.MustCompile(`(?m)^`+name+`[{ ]`).Match(text) && !unseen[name] {
					err = errors.Join(err, fmt.Errorf("%s, in %s", name, expression))
				}
			}
		}

		for _, labels := range labelNames.FindAllSubmatch(text, -1) {
			for _, pair := range strings.Split(string(labels[1]), ",") {
				if name, _, _ := strings.Cut(pair, "="); !slices.Contains(knownLabels, name) {
					t.Errorf("a series has the label %s", pair)
				}
			}
		}

		return err
	})

	if total := seriesOf(t, node, mesh.Domains[1].TrustDomain, peersOfMany); total >= mostSeries {
		t.Errorf("a node with %d peers has %d series, at most %d", peersOfMany, total, mostSeries)
	}

	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	must(t, err)

	for name := range unseen {
		if !strings.Contains(string(reference), "`"+name+"`") {
			t.Errorf("docs/reference/metrics.md doesn't have %s", name)
		}
	}
}

// A node has at most mostSeries with peersOfMany peers.
const (
	mostSeries  = 2000
	peersOfMany = 100
)

// seriesOf returns how many series a node with one peer would have with many such peers.
func seriesOf(t *testing.T, node devNode, peer string, peers int) int {
	t.Helper()

	answer, err := http.Get(node.Admin + "/metrics")
	must(t, err)
	defer answer.Body.Close()

	text, err := io.ReadAll(answer.Body)
	must(t, err)

	all := len(regexp.MustCompile(`(?m)^[a-z]`).FindAll(text, -1))
	each := len(regexp.MustCompile(`(?m)^[a-z].*="`+regexp.QuoteMeta(peer)+`"`).FindAll(text, -1))

	if each == 0 {
		t.Errorf("no series is of %s", peer)
	}

	t.Logf("%d series, %d of them for each peer", all, each)

	return all + (peers-1)*each
}

// A prometheus is a real Prometheus with this repository's rules, whose times are shortened:
// "for" to a second, windows to ten, and the lag of a gap to five.
type prometheus struct{ url string }

// startPrometheus scrapes the admin listeners of nodes, by their domain.
func startPrometheus(t *testing.T, nodes map[string][]string) *prometheus {
	t.Helper()

	program := tool(t, "prometheus")
	dir := t.TempDir()

	for _, name := range []string{"alerts.yaml", "recording.yaml"} {
		text, err := os.ReadFile("../prometheus/" + name)
		must(t, err)

		text = regexp.MustCompile(`(?m)^( +for:) .*$`).ReplaceAll(text, []byte("$1 1s"))
		text = regexp.MustCompile(`\[5m\]`).ReplaceAll(text, []byte("[10s]"))
		text = regexp.MustCompile(`(roster_federation_lag_seconds) > 60`).ReplaceAll(text, []byte("$1 > 5"))

		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}

	targets := 0

	var groups []any

	for domain, admins := range nodes {
		targets += len(admins)

		for i := range admins {
			admins[i] = strings.TrimPrefix(admins[i], "http://")
		}

		groups = append(groups, map[string]any{"targets": admins, "labels": map[string]string{"domain": domain}})
	}

	config, err := json.Marshal(map[string]any{
		"global":     map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{"alerts.yaml", "recording.yaml"},
		"scrape_configs": []any{map[string]any{
			"job_name": "roster", "static_configs": groups,
		}},
	})
	must(t, err)

	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), config, 0o600))

	address := ownNet(3) + "9:9090"
	start(t, "prometheus", exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))

	p := &prometheus{"http://" + address}

	until(t, "Prometheus has scraped all nodes and evaluated the rules", func() error {
		for query, want := range map[string]int{"up == 1": targets,
			"job_origin:roster_registrations:max": 1} {
			if got, err := p.query(query); err != nil || len(got) < want {
				return fmt.Errorf("%s: %d results, %w", query, len(got), err)
			}
		}

		return nil
	})

	return p
}

// query returns the labels of each result.
func (p *prometheus) query(expression string) (labels []map[string]string, err error) {
	request, err := http.NewRequest(http.MethodGet, p.url+"/api/v1/query", nil)
	if err != nil {
		return nil, err
	}

	query := request.URL.Query()
	query.Set("query", expression)
	request.URL.RawQuery = query.Encode()

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}

	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}

	for _, result := range answer.Data.Result {
		labels = append(labels, result.Metric)
	}

	return labels, nil
}

// firing returns the names of the alerts that fire.
func (p *prometheus) firing(t *testing.T) []string {
	t.Helper()

	results, err := p.query(`ALERTS{alertstate="firing"}`)
	must(t, err)

	names := map[string]bool{}
	for _, labels := range results {
		names[labels["alertname"]] = true
	}

	return slices.Sorted(maps.Keys(names))
}

// summaries returns the summaries of an alert that fires, one for each of its causes.
func (p *prometheus) summaries(alert string) (all []string, err error) {
	response, err := http.Get(p.url + "/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	var answer struct {
		Data struct {
			Alerts []struct {
				Labels, Annotations map[string]string
				State               string
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}

	for _, each := range answer.Data.Alerts {
		if each.State == "firing" && each.Labels["alertname"] == alert {
			all = append(all, each.Annotations["summary"])
		}
	}

	return all, nil
}

// eventuallySays waits until an alert fires once, with each of the texts in its summary.
func (p *prometheus) eventuallySays(t *testing.T, alert string, texts ...string) {
	t.Helper()

	until(t, alert+" fires once", func() error {
		summaries, err := p.summaries(alert)
		if err != nil || len(summaries) != 1 {
			return fmt.Errorf("it says %q, %w", summaries, err)
		}

		for _, text := range texts {
			if !strings.Contains(summaries[0], text) {
				return fmt.Errorf("the summary lacks %q: %s", text, summaries[0])
			}
		}

		return nil
	})
}

func (p *prometheus) eventuallyFires(t *testing.T, alert string) {
	t.Helper()

	until(t, alert+" fires", func() error {
		if firing := p.firing(t); !slices.Contains(firing, alert) {
			return fmt.Errorf("what fires is %v", firing)
		}

		return nil
	})
}

// Two nodes of three are killed, then the last: the domain has no leader, and its peer hears
// nothing of it. Before that no alert fires.
//
// Requirement: OPS-029
func TestAlertsOfLostNodes(t *testing.T) {
	tool(t, "prometheus")

	dir, mesh := dev(t, 2, 3)

	targets := map[string][]string{}
	for _, domain := range mesh.Domains {
		for _, node := range domain.Nodes {
			targets[domain.TrustDomain] = append(targets[domain.TrustDomain], node.Admin)
		}
	}

	p := startPrometheus(t, targets)
	// The disk is the machine's, and may be nearly full.
	isDisk := func(alert string) bool { return alert == "RosterDiskNearlyFull" }
	// Before its first scrape Prometheus has no targets, which is an alert of its own.
	until(t, "nothing fires in a healthy mesh", func() error {
		if firing := slices.DeleteFunc(p.firing(t), isDisk); len(firing) > 0 {
			return fmt.Errorf("what fires is %v", firing)
		}

		return nil
	})

	alpha := mesh.Domains[0]
	last := alpha.Nodes[2]

	kill := func(node devNode) {
		must(t, syscall.Kill(node.PID, syscall.SIGKILL))
	}
	kill(alpha.Nodes[0])
	p.eventuallySays(t, "RosterNodeDown", "node "+host(alpha.Nodes[0].Admin), alpha.TrustDomain)
	p.eventuallySays(t, "RosterMemberSilent", alpha.Nodes[0].ID, alpha.TrustDomain)
	says(t, func() *exec.Cmd { return operator(t, dir, alpha.TrustDomain, last.API, "raft", "peers") }, "silent")
	kill(alpha.Nodes[1])
	p.eventuallySays(t, "RosterNoLeader", host(last.Admin), alpha.TrustDomain)
	p.eventuallySays(t, "RosterDomainWithoutMajority", "no majority", alpha.TrustDomain)

	// The runbooks' first commands show it.
	doctor := exec.Command(binary(t), "doctor", "--config", alpha.Nodes[0].Config)
	if out, _ := doctor.CombinedOutput(); !strings.Contains(string(out), "not running") {
		t.Errorf("doctor says\n%s", out)
	}

	peers := operator(t, dir, alpha.TrustDomain, last.API, "raft", "peers")
	if out, err := peers.CombinedOutput(); err != nil || strings.Contains(string(out), "leader\t") {
		t.Errorf("raft peers: %v\n%s", err, out)
	}

	kill(last)
	p.eventuallyFires(t, "RosterPeerSilent")
	p.eventuallySays(t, "RosterDomainWithoutMajority", alpha.TrustDomain)

	until(t, "an alert for each node of a total outage", func() error {
		summaries, err := p.summaries("RosterNodeDown")
		if err != nil || len(summaries) != len(alpha.Nodes) {
			return fmt.Errorf("of %d nodes: %q, %w", len(alpha.Nodes), summaries, err)
		}

		return nil
	})

	beta := mesh.Domains[1]
	// The alert may be of a node that had its last answer before this one.
	says(t, func() *exec.Cmd {
		return operator(t, dir, beta.TrustDomain, beta.Nodes[0].API, "peer", "show", alpha.TrustDomain)
	}, "unreachable")
}

// A node's disk fills up, its SVID isn't renewed, and its audit log can't be written.
//
// Requirement: OPS-029
func TestAlertsOfOneNode(t *testing.T) {
	asRoot(t)
	tool(t, "prometheus")

	work := t.TempDir()
	host := ownNet(2) + "9"
	roster := func(args ...string) {
		command := exec.Command(binary(t), args...)
		command.Dir = work
		command.Env = append(os.Environ(), "XDG_CONFIG_HOME="+work)
		run(t, command)
	}
	roster("ca", "init", "solo.test")
	roster("init", ".", "--members", "a="+host)

	data := filepath.Join(work, "a", "data")
	must(t, os.Mkdir(data, 0o700))

	run(t, exec.Command("mount", "-t", "tmpfs", "-o", "size=256m,mode=0700", "none", data))
	t.Cleanup(func() { _ = exec.Command("umount", "--lazy", data).Run() })

	config := filepath.Join(work, "a", "node.yaml")
	serve := func() *process { return start(t, "node", exec.Command(binary(t), "serve", "--config", config)) }
	node := serve()
	p := startPrometheus(t, map[string][]string{"solo.test": {host + ":8401"}})

	// Before its first scrape Prometheus knows of no node.
	until(t, "no alert fires with a healthy node", func() error {
		if firing := p.firing(t); len(firing) > 0 {
			return fmt.Errorf("%v fire", firing)
		}

		return nil
	})

	doctorSays := func(check, want string) {
		t.Helper()

		until(t, "doctor says "+want+" of "+check, func() error {
			out, _ := exec.Command(binary(t), "doctor", "--config", config).CombinedOutput()
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, check) && strings.Contains(line, want) {
					return nil
				}
			}

			return errors.New(string(out))
		})
	}

	// Another program fills the disk to 95 %.
	filler := filepath.Join(data, "filler")
	run(t, exec.Command("sh", "-ec", `head -c $(($(stat -f -c '%a*%S' "$1") * 93 / 100)) /dev/zero >"$2"`, "sh", data,
		filler))
	p.eventuallyFires(t, "RosterDiskNearlyFull")
	doctorSays("disk", "failed")

	must(t, os.Remove(filler))

	// The audit log becomes a file that takes nothing.
	node.stop(t)

	trail := filepath.Join(data, "audit.jsonl")
	must(t, errors.Join(os.Remove(trail), os.Symlink("/dev/full", trail)))

	serve()
	p.eventuallyFires(t, "RosterAuditUnwritable")
	doctorSays("node", "audit")

	// An SVID of a minute is not renewed.
	roster("ca", "issue", "/roster/node/a", "--host", host, "--out", "a/node", "--lifetime", "1m", "--force")
	p.eventuallyFires(t, "RosterSVIDAboutToEnd")
	doctorSays("identity", "expire")
}

// maxRegistrations bounds the registrations of a peer that was set back; each takes a process.
const maxRegistrations = 300

// The disk of a peer's only node is set back, as by a snapshot of its virtual machine, and the
// peer registers something else under revisions that it had signed before.
//
// Requirement: OPS-029
func TestAlertsOfAPeerThatIsSetBack(t *testing.T) {
	tool(t, "prometheus")

	if os.Getenv("STORY_LONG") == "" {
		t.Skip("the observer doesn't find the contradiction each time within a minute; STORY_LONG=1 runs this")
	}

	dir, mesh := dev(t, 2, 1)
	alpha, beta := mesh.Domains[0], mesh.Domains[1]
	node, observer := beta.Nodes[0], alpha.Nodes[0]
	p := startPrometheus(t, map[string][]string{mesh.Domains[0].TrustDomain: {observer.Admin}})

	registers := func(name string) {
		until(t, name+" is registered", func() error { return register(t, dir, mesh, 1, name) })
	}

	must(t, syscall.Kill(node.PID, syscall.SIGKILL))

	kept := filepath.Join(t.TempDir(), "data")

	run(t, exec.Command("cp", "-a", node.Data, kept))

	first := start(t, "beta before", exec.Command(binary(t), "serve", "--config", node.Config))

	registers("one")
	until(t, "alpha has it", func() error {
		out, err := operator(t, dir, alpha.TrustDomain, observer.API, "lookup", "--agent", "one").CombinedOutput()
		if err != nil || !strings.Contains(string(out), beta.TrustDomain) {
			return fmt.Errorf("%w\n%s", err, out)
		}

		return nil
	})

	_ = first.command.Process.Kill()

	<-first.done

	run(t, exec.Command("sh", "-ec", `rm -rf "$2" && cp -a "$1" "$2"`, "sh", kept, node.Data))
	start(t, "beta after", exec.Command(binary(t), "serve", "--config", node.Config))

	// The observer compares what it is sent of the same revisions: with a page of gossip, or when
	// it pulls. Each registration makes another page.
	for again := 0; !slices.Contains(p.firing(t), "RosterEvidenceFound"); again++ {
		if again == maxRegistrations {
			t.Fatalf("no evidence was found after %d registrations; what fires is %v", again, p.firing(t))
		}

		registers(fmt.Sprintf("two-%d", again))
	}

	// The runbook's first command prints the evidence.
	out, err := operator(t, dir, alpha.TrustDomain, observer.API, "peer", "evidence", beta.TrustDomain).CombinedOutput()
	if err != nil || len(out) == 0 {
		t.Errorf("peer evidence: %v\n%s", err, out)
	}
}
