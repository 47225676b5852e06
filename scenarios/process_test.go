package scenarios

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// program builds the real binary once for all stories that run processes.
var program = sync.OnceValues(func() (string, error) {
	home, err := os.UserConfigDir() // that of launch.Isolate, which is removed in the end
	if err != nil {
		return "", err
	}

	dir, err := os.MkdirTemp(home, "program-")
	if err != nil {
		return "", err
	}

	return launch.Build(context.Background(), dir)
})

// admin asks admin listeners on loopback.
var admin = &http.Client{Timeout: 30 * time.Second}

// processes is a development mesh of real processes, sockets and disks.
type processes struct {
	t    *testing.T
	dir  string
	path string
	*dev.Mesh
	started map[string]*launch.Process // nodes that were started again, by id
	held    map[string][]int           // sockets at the ports of killed nodes, by id
}

// starting is held while a mesh of processes starts. Between when its ports are chosen
// and when its nodes listen there, another mesh could choose one of them.
var starting sync.Mutex

// startProcesses is startProgram of a story.
func startProcesses(t *testing.T, flags ...string) *processes {
	t.Helper()
	story(t)

	return startProgram(t, flags...)
}

// startProgram runs roster dev --processes and waits until it is ready.
func startProgram(t *testing.T, flags ...string) *processes {
	t.Helper()

	if testing.Short() {
		t.Skip("starts processes")
	}

	path, err := program()
	must(t, err)

	return startRelease(t, path, flags...)
}

// startRelease is startProcesses with a build of the program at path.
func startRelease(t *testing.T, path string, flags ...string) *processes {
	t.Helper()

	p := &processes{t: t, dir: t.TempDir(), path: path, started: map[string]*launch.Process{},
		held: map[string][]int{}}
	t.Cleanup(func() {
		for id := range p.held {
			p.release(id)
		}
	})
	starting.Lock()
	defer starting.Unlock()

	process, mesh, err := launch.Mesh(t.Context(), path, p.dir, flags...)
	must(t, err)

	t.Cleanup(func() { p.end(process) })

	p.Mesh = mesh

	return p
}

func (p *processes) run(args ...string) *launch.Process {
	p.t.Helper()

	process, err := launch.Start(exec.Command(p.path, args...))
	must(p.t, err)

	return process
}

// runAs is run by an identity of a domain, such as agent-ada, at its first node.
func (p *processes) runAs(domain int, who string, args ...string) *launch.Process {
	p.t.Helper()

	d := p.Domains[domain]
	identity := filepath.Join(filepath.Dir(d.Bundle), "identities", who)

	return p.run(append(args, "--address", d.Nodes[0].API, "--bundle", d.Bundle, "--domain", d.TrustDomain,
		"--cert", identity+".pem", "--key", identity+".key")...)
}

// end asks a process to end, and waits for that.
func (p *processes) end(process *launch.Process) {
	p.t.Helper()

	if err := process.Stop(); err != nil {
		p.t.Error(err)
	}
}

// await waits for the end of a process that was asked to end.
func (p *processes) await(process *launch.Process) {
	p.t.Helper()

	if err := process.Wait(); err != nil {
		p.t.Error(err)
	}
}

// kill ends a node without warning, by its process id, and keeps its ports.
func (p *processes) kill(n dev.Node) {
	p.t.Helper()

	if process, again := p.started[n.ID]; again {
		delete(p.started, n.ID)
		process.Kill()
	} else if err := syscall.Kill(n.PID, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}

	p.hold(n)
}

// restart starts a killed node again, as an operator would, and waits until it
// is ready.
func (p *processes) restart(n dev.Node) {
	p.t.Helper()
	p.restartUntil(n, "ready again", ready)
}

// restartUntil starts a killed node again and waits for a condition.
func (p *processes) restartUntil(n dev.Node, condition string, holds func(dev.Node) error) {
	p.t.Helper()
	p.serve(n)
	p.eventually(n.ID+" is "+condition, func() error { return holds(n) })
	p.release(n.ID)
}

// serve starts a node that doesn't run, and ends it with the test unless it was killed before.
func (p *processes) serve(n dev.Node) {
	p.t.Helper()

	process := p.run("serve", "--config", n.Config)
	p.started[n.ID] = process
	p.t.Cleanup(func() {
		if p.started[n.ID] == process {
			p.end(process)
		}
	})
}

// ready returns nil when a node says that it is.
func ready(n dev.Node) error {
	resp, err := admin.Get(n.Admin + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		failing, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s", resp.Status, failing)
	}

	return nil
}

func (p *processes) eventually(what string, try func() error) {
	p.t.Helper()
	launch.Eventually(p.t, what, try)
}

// http returns a client with one of a domain's identities (agent/ada), or an anonymous
// one.
func (p *processes) http(domain int, who string) *http.Client {
	p.t.Helper()

	client := launch.Client(p.t, &p.Domains[domain], who)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	return client
}

func (p *processes) client(domain, n int, who string) *apiclient.Client {
	return apiclient.NewDirect(p.Domains[domain].Nodes[n].API, p.http(domain, who))
}

// TestScripts runs every HTTP script against the real binary. Every answer must
// also be as /openapi.json describes it.
func TestScripts(t *testing.T) {
	p := startProgram(t, "--domains", "1", "--sample", "0")
	identities := map[string]string{"ada": "agent/ada", "bob": "agent/bob", "eve": "agent/eve",
		"commissioner": "tool/commissioner", "operator": "ops/operator", "reader": "client/reader", "anonymous": ""}

	clients := map[string]*http.Client{}
	for who, path := range identities {
		clients[who] = p.http(0, path)
	}

	env := scriptEnv{URL: p.Domains[0].Nodes[0].API, Domain: "alpha.test", Client: func(who string) *http.Client {
		return clients[who]
	}}
	env.Agent = p.summarizer()
	env.Described = readDescription(t, clients["anonymous"], env.URL).judge

	scripts, err := filepath.Glob("../api/testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}

	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { runScript(t, path, env) })
	}
}

// summarizer starts the agent that the scripts invoke, with the certificate of an
// agent of the first domain, and returns where it is.
func (p *processes) summarizer() string {
	p.t.Helper()

	return launch.Agent(p.t, &p.Domains[0], "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		var envelope struct {
			Agent string
			Input struct{ Text string }
		}
		err := json.UnmarshalRead(r.Body, &envelope, json.MatchCaseInsensitiveNames(true))
		w.Header().Set("Content-Type", "application/json")

		switch {
		case err != nil || envelope.Agent != "summarizer" || r.URL.Path != "/agents/summarizer/invoke":
			http.Error(w, "not an invocation", http.StatusBadRequest)
		case envelope.Input.Text == "fail":
			http.Error(w, "secret", http.StatusInternalServerError)
		case envelope.Input.Text == "answer something else":
			_, _ = io.WriteString(w, `{"summary": 7}`)
		default:
			_, _ = io.WriteString(w, `{"summary": "The IETF is a community focused on Internet evolution."}`)
		}
	}).URL
}

// Nodes of a domain are killed one after another, again and again, while agents register
// at all of them: every acknowledged registration is there at the end, on every node and
// at a peer.
//
// Requirement: OPS-003
func TestKilledNodesLoseNothing(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "2", "--nodes", "3", "--sample", "0")
	nodes := p.Domains[0].Nodes
	ctx, cancel := context.WithCancel(t.Context())

	var (
		w       writer
		writers sync.WaitGroup
	)
	for i := range 4 {
		clients := []*apiclient.Client{p.client(0, 0, "agent/ada"), p.client(0, 1, "agent/ada"),
			p.client(0, 2, "agent/ada")}
		writers.Go(func() { w.run(ctx, fmt.Sprint(i), clients...) })
	}

	const kills = 6
	for round := range kills {
		w.more(t, 20)
		p.kill(nodes[round%3])
		w.more(t, 20)
		p.restart(nodes[round%3])
	}

	cancel()
	writers.Wait()
	t.Logf("%d acknowledged under %d kills", w.count.Load(), kills)

	for _, at := range []*apiclient.Client{p.client(0, 0, "agent/ada"), p.client(0, 1, "agent/ada"),
		p.client(0, 2, "agent/ada"), p.client(1, 0, "agent/bob")} {
		p.eventually("everything acknowledged is visible", func() error {
			return shows(t, at, &w.acknowledged)
		})
	}
}

// shows returns an error that names the acknowledged registrations that are missing.
func shows(t *testing.T, c *apiclient.Client, acknowledged *sync.Map) error {
	seen, err := names(t, c, "kept-")
	if err != nil {
		return err
	}

	acknowledged.Range(func(name, _ any) bool {
		if !seen[name.(string)] {
			err = fmt.Errorf("%s is missing; %d are there", name, len(seen))
		}

		return err == nil
	})

	return err
}

// What the person who runs the tests has saved changes none: no story knows a context.
func TestStoriesHaveAHomeOfTheirOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}

	path, err := program()
	must(t, err)

	out, err := exec.Command(path, "context", "list", "-o", "json").Output()
	if err != nil || strings.Contains(string(out), "https://") {
		t.Errorf("a story knows %s, %v", out, err)
	}
}
