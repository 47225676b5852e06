package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
)

// roster runs the program as an operator of a domain, and returns its output and exit
// code.
func (p *processes) roster(domain, n int, args ...string) (out string, code int) {
	p.t.Helper()
	d := p.Domains[domain]
	dir := filepath.Join(filepath.Dir(d.Bundle), "identities")
	cmd := exec.Command(p.path, args...)
	cmd.Env = append(os.Environ(), "ROSTER_ADDRESS="+d.Nodes[n].API, "ROSTER_BUNDLE="+d.Bundle,
		"ROSTER_DOMAIN="+d.TrustDomain,
		"ROSTER_CERT="+filepath.Join(dir, "ops-operator.pem"), "ROSTER_KEY="+filepath.Join(dir, "ops-operator.key"))
	b, err := cmd.CombinedOutput()

	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		p.t.Fatal(err)
	}

	return string(b), cmd.ProcessState.ExitCode()
}

// must is roster that has to succeed.
func (p *processes) must(domain, n int, args ...string) string {
	p.t.Helper()

	out, code := p.roster(domain, n, args...)
	if code != 0 {
		p.t.Fatalf("roster %q: exit code %d\n%s", args, code, out)
	}

	return out
}

// raft returns a domain's nodes as one of them sees them.
func (p *processes) raft(domain, n int) *apiclient.RaftStatus {
	p.t.Helper()

	status, _, err := p.client(domain, n, "ops/operator").Operator().Raft(p.t.Context())
	must(p.t, err)

	return status
}

// plan lays out one more node of a domain, which joins at the first two: its
// certificate, its configuration with more lines, and ports that are its until it starts.
func (p *processes) plan(domain int, more string) int {
	p.t.Helper()
	d := &p.Domains[domain]
	number := len(d.Nodes) + 1

	out, err := exec.Command(p.path, "dev", "mint", "--dir", p.dir, "--domain", d.TrustDomain, "--path",
		fmt.Sprint("/roster/node/", number)).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}

	id := fmt.Sprintf("spiffe://%s/roster/node/%d", d.TrustDomain, number)
	ports := p.reserve(id, 4)
	dir := filepath.Join(filepath.Dir(d.Bundle), fmt.Sprint("node-", number))
	identity := filepath.Join(filepath.Dir(d.Bundle), "identities", fmt.Sprint("roster-node-", number))
	n := dev.Node{
		ID: id, API: "https://" + ports[0], Admin: "http://" + ports[1],
		Raft: ports[2], Gossip: ports[3], Config: filepath.Join(dir, "node.yaml"), Data: filepath.Join(dir, "data"),
	}

	text := fmt.Sprintf(`trust_domain: %s
public_url: %s
data: data
listen: {api: %q, admin: %q, cluster: %q, gossip: %q}
identity: {cert: %s.pem, key: %s.key, bundle: %s}
members: [{id: %q, cluster: %q, api: %q}]
join: [%q, %q]
policy: development
limits: {registrations: 0, lookups: 0, registrations_per_owner: 0}
log: {format: text}
%s
`, d.TrustDomain, n.API, ports[0], ports[1], ports[2], ports[3], identity, identity, d.Bundle, n.ID, n.Raft, n.API,
		d.Nodes[0].Raft, d.Nodes[1].Raft, more)
	must(p.t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(n.Config, []byte(text), 0o600)))

	d.Nodes = append(d.Nodes, n)

	return number - 1
}

// A writer registers agents at nodes of a domain and records the acknowledged ones.
type writer struct {
	acknowledged sync.Map
	count        atomic.Int64
	failed       atomic.Pointer[error] // by a node that was to be there
}

func (w *writer) run(ctx context.Context, name string, clients func() []*apiclient.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		all := clients()
		agent := fmt.Sprintf("kept-%s-%d", name, i)

		_, err := all[i%len(all)].Register(ctx, agent, []byte(`{"base":"https://kept.alpha.test/"}`),
			apiclient.RegisterOptions{Lifetime: time.Hour})
		if err == nil {
			w.acknowledged.Store(agent, true)
			w.count.Add(1)
		} else if ctx.Err() == nil {
			w.failed.CompareAndSwap(nil, &err)
		}
	}
}

// The life of a domain, as its operator lives it: it grows from three nodes to
// five, its leader hands over and is killed, one node leaves and one that is dead
// is taken out, while agents register all the time.
func TestADomainsNodesComeAndGo(t *testing.T) {
	p := startProcesses(t, "--domains", "2", "--nodes", "3", "--sample", "0")
	ctx, cancel := context.WithCancel(t.Context())

	var (
		w  writer
		mu sync.Mutex
	)
	steady := []*apiclient.Client{p.client(0, 0, "agent/ada"), p.client(0, 1, "agent/ada")}
	clients := func() []*apiclient.Client { mu.Lock(); defer mu.Unlock(); return steady }

	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()

	for i := range 4 {
		writers.Go(func() { w.run(ctx, fmt.Sprint(i), clients) })
	}

	more := func() {
		t.Helper()
		until := w.count.Load() + 20
		p.eventually(20*time.Second, "agents can register", func() error {
			if n := w.count.Load(); n < until {
				return fmt.Errorf("%d acknowledged", n)
			}

			return nil
		})
	}
	more()

	// Two more: one that votes, and one that only reads.
	for _, as := range []string{"", "voter: false"} {
		i := p.plan(0, as)

		id := p.Domains[0].Nodes[i].ID
		if out, code := p.roster(0, 0, "raft", "admit", "spiffe://beta.test/roster/node/1"); code == 0 ||
			!strings.Contains(out, "not under spiffe://alpha.test/roster/node/") {
			t.Errorf("another domain's node: exit code %d\n%s", code, out)
		}

		p.must(0, 1, "raft", "admit", id)
		p.restart(p.Domains[0].Nodes[i])
		p.eventually(20*time.Second, id+" has joined as configured", func() error {
			for _, peer := range p.raft(0, 0).Peers {
				if peer.ID == id && peer.Voter == (as == "") && peer.API != "" {
					return nil
				}
			}

			return errors.New("it is not")
		})
		more()
	}

	reader := p.Domains[0].Nodes[4]
	if out, code := p.roster(0, 0, "raft", "transfer", reader.ID); code != 5 {
		t.Errorf("the leadership for a reader: exit code %d\n%s", code, out)
	}

	// The leadership goes round, and no write fails.
	for i := range 4 {
		if p.leader(0).ID != p.Domains[0].Nodes[i].ID {
			p.must(0, i, "raft", "transfer", fmt.Sprint(i+1))
		}

		more()
	}

	if err := w.failed.Load(); err != nil {
		t.Errorf("a write failed: %v", *err)
	}

	// The leader, which is the third now, is killed and taken out.
	p.must(0, 0, "raft", "transfer", "3")
	p.kill(p.Domains[0].Nodes[2])
	more()
	p.must(0, 1, "raft", "remove", "3")
	more()

	if out, code := p.roster(0, 0, "raft", "remove", "3"); code != 3 {
		t.Errorf("removed twice: exit code %d\n%s", code, out)
	}

	// The reader takes no operator's changes and names the voters. Removed, it is not ready.
	if out, code := p.roster(0, 4, "raft", "leave"); code != 6 || !strings.Contains(out, p.Domains[0].Nodes[0].API) {
		t.Errorf("asked of a reader: exit code %d\n%s", code, out)
	}

	p.must(0, 0, "raft", "remove", "5")
	p.eventually(10*time.Second, "the one that left is not ready", func() error {
		if ready(reader) == nil {
			return errors.New("it is ready")
		}

		return nil
	})

	if n := len(p.raft(0, 0).Peers); n != 3 {
		t.Errorf("the domain has %d nodes, want three", n)
	}

	w.failed.Store(nil)
	more()
	cancel()
	writers.Wait()
	t.Logf("%d acknowledged", w.count.Load())

	for _, at := range []*apiclient.Client{p.client(0, 0, "agent/ada"), p.client(0, 1, "agent/ada"),
		p.client(0, 3, "agent/ada"), p.client(1, 0, "agent/bob")} {
		p.eventually(20*time.Second, "everything acknowledged is visible", func() error {
			return shows(t, at, &w.acknowledged)
		})
	}
}
