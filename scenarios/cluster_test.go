package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
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
	pace         time.Duration // between two of them
	acknowledged sync.Map
	count        atomic.Int64
}

func (w *writer) run(ctx context.Context, name string, clients ...*apiclient.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		agent := fmt.Sprintf("kept-%s-%d", name, i)

		if _, err := clients[i%len(clients)].Register(ctx, agent, []byte(`{"base":"https://kept.alpha.test/"}`),
			apiclient.RegisterOptions{Lifetime: time.Hour}); err == nil {
			w.acknowledged.Store(agent, true)
			w.count.Add(1)
		}

		select {
		case <-time.After(w.pace):
		case <-ctx.Done():
		}
	}
}

// more waits until so many more agents were registered.
func (w *writer) more(t *testing.T, many int64) {
	t.Helper()

	until := w.count.Load() + many
	launch.Eventually(t, "agents can register", func() error {
		if n := w.count.Load(); n < until {
			return fmt.Errorf("%d acknowledged, want %d", n, until)
		}

		return nil
	})
}
