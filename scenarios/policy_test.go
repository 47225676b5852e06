package scenarios

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A policy that an operator applies is in force at each node for the next request, on
// every surface, and withdraws from peers what it no longer exports. The previous policy
// restores everything.
//
// Requirement: AD-035, TRUST-003, TRUST-013
func TestAPolicyChangeTakesEffect(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "2", "--nodes", "1", "--sample", "0")
	ctx := t.Context()

	ada, eve := p.client(0, 0, "agent/ada"), p.client(0, 0, "agent/eve")
	for _, agent := range []string{"secret-plan", "open-plan"} {
		if _, err := ada.Register(ctx, agent,
			[]byte(`{"base":"https://plan.example/","capabilities":[{"name":"planning","type":"tool"}]}`),
			apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}

	planning := apiclient.LookupOptions{CapName: []string{"planning"}}
	peers := func(want int) func() error {
		return func() error { return count(p.client(1, 0, "agent/ada").Lookup(ctx, planning))(want) }
	}
	p.eventually("the peer has both", peers(2))

	if _, err := eve.Get(ctx, "secret-plan"); err != nil {
		t.Fatal(err)
	}

	development, err := os.ReadFile("../trust/policy/development.cedar")
	must(t, err)

	file := filepath.Join(t.TempDir(), "domain.cedar")

	text := string(development) + `
@id("plans-are-secret")
forbid (principal, action in [Action::"read", Action::"export"], resource)
when { resource.agent like "secret-*" };
`
	must(t, os.WriteFile(file, []byte(text), 0o600))

	p.must(0, 0, "policy", "apply", file, "--yes")

	var gone *apiclient.Error
	if _, err := eve.Get(ctx, "secret-plan"); !errors.As(err, &gone) || gone.Status != http.StatusNotFound {
		t.Errorf("the next request of a reader: %v", err)
	}

	if err := count(eve.Lookup(ctx, planning))(1); err != nil {
		t.Error(err)
	}

	if err := count(ada.Lookup(ctx, planning))(2); err != nil {
		t.Errorf("its owner: %v", err)
	}

	p.eventually("the peer has the exported registrations", peers(1))

	if out := p.must(0, 0, "policy", "show"); !strings.Contains(out, "plans-are-secret") ||
		strings.Contains(out, "version 0\n") {
		t.Errorf("policy show: %s", out)
	}

	_, version, _ := strings.Cut(strings.SplitN(p.must(0, 0, "policy", "show"), "\n", 2)[0], "version ")

	lines, _ := readTrail(t, p.Domains[0].Nodes[0].Data)
	if !slices.ContainsFunc(lines, func(l trailLine) bool {
		return l.Phase == "outcome" && l.Action == "policy.write" && l.Outcome == "ok" &&
			strings.HasSuffix(l.Revision, "."+version)
	}) || version == "" {
		t.Errorf("the trail does not have the change to version %q: %+v", version, lines)
	}

	p.kill(p.Domains[0].Nodes[0])
	p.restart(p.Domains[0].Nodes[0])

	if _, err := eve.Get(ctx, "secret-plan"); !errors.As(err, &gone) || gone.Status != http.StatusNotFound {
		t.Errorf("after the node was started again: %v", err)
	}

	noPolicyIsLost(p)
	p.must(0, 0, "policy", "apply", "--built-in")

	if _, err := eve.Get(ctx, "secret-plan"); err != nil {
		t.Errorf("by the policy that was: %v", err)
	}

	p.eventually("the peer has both again", peers(2))
}

// noPolicyIsLost has several operators revoke identities at once, and one apply a policy
// that it read before: no change undoes another.
func noPolicyIsLost(p *processes) {
	read := p.must(0, 0, "policy", "show")

	file := filepath.Join(p.t.TempDir(), "read.cedar")
	must(p.t, os.WriteFile(file, []byte(read+"// and more\n"), 0o600))

	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if out, code := p.roster(0, 0, "revoke",
				fmt.Sprintf("spiffe://alpha.test/agent/mallory-%d", i)); code != 0 {
				p.t.Errorf("revoke exits %d: %s", code, out)
			}
		})
	}

	all.Wait()

	if out, code := p.roster(0, 0, "policy", "apply", file); code == 0 || !strings.Contains(out, "version") {
		p.t.Errorf("apply of an outdated policy exits %d: %s", code, out)
	}

	now := p.must(0, 0, "policy", "show")
	for i := range 4 {
		if !strings.Contains(now, fmt.Sprintf("revoked spiffe://alpha.test/agent/mallory-%d", i)) {
			p.t.Errorf("the revocation of mallory-%d was lost: %s", i, now)
		}
	}

	p.must(0, 0, "policy", "apply", "--replaces", "any", file)

	if again := p.must(0, 0, "policy", "show"); !strings.Contains(again, "// and more") ||
		strings.Count(again, "// version") != 1 {
		p.t.Errorf("after it was applied in the place of any: %s", again)
	}
}

// count judges how many registrations a lookup has.
func count(l *apiclient.Listing, err error) func(int) error {
	return func(want int) error {
		if err == nil && len(l.Agents) != want {
			err = fmt.Errorf("there are %d", len(l.Agents))
		}

		return err
	}
}
