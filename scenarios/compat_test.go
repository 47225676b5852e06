package scenarios

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// A release is a build of the program that plays the release before this one, or
// the one after it.
type release struct {
	name string
	path string
}

// previousRelease returns the build of the commit that scenarios/compat/previous names. The
// story is skipped where the history doesn't reach that far.
func previousRelease(t *testing.T) release {
	t.Helper()

	previous, err := previousBuild()
	if errors.Is(err, errNoHistory) {
		t.Skip(err)
	}

	must(t, err)

	return previous
}

var errNoHistory = errors.New("the history doesn't reach the commit that plays the previous release")

// previousBuild builds that commit once for all stories.
var previousBuild = sync.OnceValues(func() (release, error) {
	raw, err := os.ReadFile("compat/previous")
	if err != nil {
		return release{}, err
	}

	commit := strings.TrimSpace(string(raw))
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		return release{}, fmt.Errorf("%w: %s", errNoHistory, commit)
	}

	dir, err := os.MkdirTemp("", "roster-previous-")
	if err != nil {
		return release{}, err
	}

	archive := exec.Command("git", "-C", "..", "archive", "--format=tar", commit)
	extract := exec.Command("tar", "-x", "-C", dir)

	extract.Stdin, err = archive.StdoutPipe()
	if err := errors.Join(err, archive.Start(), extract.Run(), archive.Wait()); err != nil {
		return release{}, fmt.Errorf("extract %s: %w", commit, err)
	}

	path := filepath.Join(dir, "built", "roster")

	return release{"previous", path}, build(path, dir)
})

// nextRelease builds this tree with the tag that adds a format 2 of every
// structure and the next version of log, snapshot and wire.
func nextRelease(t *testing.T) release {
	t.Helper()

	return buildRelease(t, "next", "..", "-tags", "compatnext")
}

func buildRelease(t *testing.T, name, dir string, flags ...string) release {
	t.Helper()

	path := filepath.Join(t.TempDir(), name, "roster")
	must(t, build(path, dir, flags...))

	return release{name, path}
}

// build builds the program of a source tree. Without its paths the compiled packages are in the
// build cache the next time.
func build(path, dir string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-o", path}, flags...)
	command := exec.Command("go", append(args, "./cmd/roster")...)

	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", path, err, out)
	}

	return nil
}

// upgrade stops a node in good order and starts it again as another release.
func (p *processes) upgrade(n dev.Node, to release) {
	p.t.Helper()

	p.stop(n)
	p.path = to.path
	p.restart(n)
}

// stop ends a node in good order and keeps its ports.
func (p *processes) stop(n dev.Node) {
	p.t.Helper()
	p.signal(n, syscall.SIGTERM)
	p.ended(n)
}

// signal sends a signal to a node that runs.
func (p *processes) signal(n dev.Node, s syscall.Signal) {
	p.t.Helper()

	pid := n.PID
	if process, again := p.started[n.ID]; again {
		pid = process.PID()
	}

	must(p.t, syscall.Kill(pid, s))
}

// ended waits until a node that was asked to stop has ended, and keeps its ports.
func (p *processes) ended(n dev.Node) {
	p.t.Helper()

	if process, again := p.started[n.ID]; again {
		delete(p.started, n.ID)
		p.await(process)
	} else { // roster dev, whose child it is, takes its exit status
		p.eventually(n.ID+" has stopped", func() error {
			if err := syscall.Kill(n.PID, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("process %d still runs: %w", n.PID, err)
			}

			return nil
		})
	}

	p.hold(n)
}

const compatDocument = `{"base":"https://kept.example.test/","description":"an agent that an upgrade must not lose"}`

// statementFormat returns the format in which a node has the statement of the
// registration at location.
func (p *processes) statementFormat(domain, n int, location string) int {
	p.t.Helper()

	got := exchangeOf(p.t, p.http(domain, "agent/ada"), p.Domains[domain].Nodes[n].API, "GET", location+"/record", "")

	parts := strings.Split(string(got.body), ".")
	if got.status != http.StatusOK || len(parts) < 3 {
		p.t.Fatalf("GET %s/record: %d %s", location, got.status, got.body)
	}

	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(p.t, err)

	var statement struct {
		Format int `json:"format"`
	}
	must(p.t, json.Unmarshal(payload, &statement))

	return statement.Format
}

// ledger returns the size and root of a node's ledger by its signed head.
func (p *processes) ledger(domain, n int) (at, size uint64, root string) {
	p.t.Helper()

	d := p.Domains[domain]
	dir := filepath.Dir(d.Nodes[n].Config)

	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key"))
	must(p.t, err)

	hc := p.http(domain, "")
	hc.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}

	got := exchangeOf(p.t, hc, d.Nodes[n].API, "GET", "/federation/v1/heads?origin="+d.TrustDomain, "")

	parts := strings.Split(string(got.body), ".")
	if got.status != http.StatusOK || len(parts) != 3 {
		p.t.Fatalf("the head of node %d: %d %s", n+1, got.status, got.body)
	}

	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(p.t, err)

	var head struct {
		At   uint64 `json:"at"`
		Size uint64 `json:"size"`
		Root string `json:"root"`
	}
	must(p.t, json.Unmarshal(payload, &head))

	return head.At, head.Size, head.Root
}

// Two domains of three nodes run the previous release and are upgraded to the next one,
// a node at a time, under writes. Nothing acknowledged is lost and nothing is refused
// for good: the slower domain keeps records that it can't read yet, and shows them after
// its upgrade.
//
// Requirement: FORM-001, FORM-002, FORM-003
func TestAMeshIsUpgradedOneNodeAtATime(t *testing.T) {
	story(t)

	t.Parallel() // most of its time it waits for processes

	previous, next := previousRelease(t), nextRelease(t)
	p := startRelease(t, previous.path, "--domains", "2", "--nodes", "3", "--sample", "0")
	alpha, beta := p.Domains[0], p.Domains[1]

	ctx, cancel := context.WithCancel(t.Context())
	who := []string{"agent/ada", "agent/bob"}

	// The pace of a busy directory; the view at the end is bounded.
	writers := []*writer{{pace: 50 * time.Millisecond}, {pace: 50 * time.Millisecond}}

	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	for domain, w := range writers {
		var clients []*apiclient.Client
		for n := range p.Domains[domain].Nodes {
			clients = append(clients, p.client(domain, n, who[domain]))
		}

		running.Go(func() { w.run(ctx, fmt.Sprint(domain), clients...) })
	}

	// Alpha is upgraded while beta reads format 1 alone: alpha goes on in format 1.
	for _, n := range alpha.Nodes {
		p.upgrade(n, next)
		writers[0].more(t, 20)
		writers[1].more(t, 5)
	}

	plain := p.register(0, 0, "plain")
	if got := p.statementFormat(0, 0, plain); got != 1 {
		t.Errorf("alpha writes format %d while a peer reads format 1 alone", got)
	}

	p.crosses(0, "plain", 1)
	p.says(0, beta.TrustDomain, `"holds_back":["head","page","statement"]`)

	// Without the peering no domain holds format 2 back. From then on a node of the
	// previous release is refused with both numbers, and its disk doesn't change.
	p.must(0, 0, "peer", "remove", beta.TrustDomain)
	p.eventually("alpha writes format 2", func() error {
		location := p.register(0, 1, "newer")
		if got := p.statementFormat(0, 1, location); got != 2 {
			return fmt.Errorf("alpha writes format %d", got)
		}

		return nil
	})
	p.refusesToStart(alpha.Nodes[2], previous, next, "version 2", "format 2")

	// A peering with the slower domain begins: alpha writes format 1 again. Beta keeps
	// records in format 2 without showing them. Beta invites, by its own release, because it
	// can't read the tokens of the next one.
	p.path = previous.path
	token := strings.TrimSpace(p.tokenOf(1, "peer", "invite", alpha.TrustDomain))
	p.path = next.path

	p.must(0, 0, "peer", "accept", token)
	p.must(0, 0, "peer", "export", beta.TrustDomain)
	p.must(1, 0, "peer", "export", alpha.TrustDomain)
	p.eventually("alpha writes format 1 again", func() error {
		location := p.register(0, 2, "plain-again")
		if got := p.statementFormat(0, 2, location); got != 1 {
			return fmt.Errorf("alpha writes format %d", got)
		}

		return nil
	})
	p.crosses(0, "plain-again", 1)

	for n := range beta.Nodes {
		if err := p.finds(1, n, "newer"); err == nil {
			t.Errorf("node %d of beta shows a statement of format 2, which it can't read", n+1)
		}
	}

	p.says(1, alpha.TrustDomain, `"unopened":{"2":`)

	// Each node of beta shows all of it as soon as it reads it.
	for i, n := range beta.Nodes {
		p.upgrade(n, next)
		p.eventually(n.ID+" opens the records that it kept", func() error {
			return p.finds(1, i, "newer")
		})
		writers[1].more(t, 20)
		writers[0].more(t, 5)
	}

	for domain := range p.Domains {
		p.eventually("format 2 is in force everywhere", func() error {
			location := p.register(domain, 0, fmt.Sprint("newest-", domain))
			if got := p.statementFormat(domain, 0, location); got != 2 {
				return fmt.Errorf("%s writes format %d", p.Domains[domain].TrustDomain, got)
			}

			return nil
		})
		p.crosses(domain, fmt.Sprint("newest-", domain), 1-domain)
	}

	cancel()
	running.Wait()

	for i, w := range writers {
		t.Logf("%d acknowledged at %s", w.count.Load(), p.Domains[i].TrustDomain)

		for domain := range p.Domains {
			for n := range p.Domains[domain].Nodes {
				at := p.client(domain, n, who[i])
				p.eventually("everything acknowledged is visible", func() error {
					return shows(t, at, &w.acknowledged)
				})
			}
		}
	}

	for domain := range p.Domains {
		p.honest(domain)
		p.equalLedgers(domain)
	}
}

// register registers a name, again until the node takes it, and returns the registration's path.
func (p *processes) register(domain, n int, name string) (location string) {
	p.t.Helper()
	p.eventually(name+" is registered", func() error {
		got, err := p.client(domain, n, "agent/ada").Register(p.t.Context(), name, []byte(compatDocument),
			apiclient.RegisterOptions{Lifetime: time.Hour})
		if err == nil {
			location = "/ad/r/" + got.RID
		}

		return err
	})

	return location
}

// crosses waits until every node of another domain shows a registration.
func (p *processes) crosses(from int, name string, to int) {
	p.t.Helper()

	for n := range p.Domains[to].Nodes {
		p.eventually(name+" crosses", func() error { return p.findsOf(to, n, from, name) })
	}
}

// finds returns nil if a node shows alpha's registration of that name.
func (p *processes) finds(domain, n int, name string) error {
	p.t.Helper()

	return p.findsOf(domain, n, 0, name)
}

func (p *processes) findsOf(domain, n, origin int, name string) error {
	p.t.Helper()

	page, err := p.client(domain, n, "agent/ada").Lookup(p.t.Context(),
		apiclient.LookupOptions{Agent: name, Origin: p.Domains[origin].TrustDomain})
	if err == nil && len(page.Agents) == 0 {
		err = fmt.Errorf("node %d of %s doesn't show %s", n+1, p.Domains[domain].TrustDomain, name)
	}

	return err
}

// refusesToStart shows that the previous release refuses to start on the disk of an
// upgraded node, with a reason that names one of the versions in force, and that the node then
// starts again as its own release.
func (p *processes) refusesToStart(n dev.Node, previous, next release, inForce ...string) {
	p.t.Helper()

	p.stop(n)
	p.release(n.ID)
	ctx, cancel := context.WithTimeout(p.t.Context(), launch.Patience)
	defer cancel()

	out, err := exec.CommandContext(ctx, previous.path, "serve", "--config", n.Config).CombinedOutput()
	if err == nil || ctx.Err() != nil || bytes.Contains(out, []byte("panic:")) ||
		bytes.Contains(out, []byte("goroutine ")) {
		p.t.Errorf("the previous release on an upgraded node's disk: %v, %v\n%s", err, ctx.Err(), out)
	}

	if !slices.ContainsFunc(inForce, func(version string) bool { return bytes.Contains(out, []byte(version)) }) {
		p.t.Errorf("the refusal names none of %q:\n%s", inForce, out)
	}

	p.hold(n)
	p.path = next.path
	p.restart(n)
}

// tokenOf runs the command that prints a token, and returns the token alone.
func (p *processes) tokenOf(domain int, args ...string) string {
	p.t.Helper()

	var invitation struct {
		Token string `json:"token"`
	}

	out := p.must(domain, 0, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out[strings.IndexByte(out, '{'):strings.LastIndexByte(out, '}')+1]),
		&invitation); err != nil {
		p.t.Fatalf("%v in %s", err, out)
	}

	return invitation.Token
}

// says waits until every node of a domain says that of a peer.
func (p *processes) says(domain int, peer, want string) {
	p.t.Helper()

	for n := range p.Domains[domain].Nodes {
		p.eventually(fmt.Sprintf("node %d says %s", n+1, want), func() error {
			if out := p.must(domain, n, "peer", "show", peer, "-o", "json"); !strings.Contains(out, want) {
				return errors.New(out)
			}

			return nil
		})
	}
}

// honest shows that no node of a domain has refused anything of the other, and that
// nothing is pending. Refusals while the peering was ended name an unknown origin.
func (p *processes) honest(domain int) {
	p.t.Helper()

	other := p.Domains[1-domain].TrustDomain
	p.says(domain, other, `"state":"active"`)

	for n := range p.Domains[domain].Nodes {
		out := p.must(domain, n, "peer", "show", other, "-o", "json")
		for _, bad := range []string{`"evidence"`, `"unsupported"`, `"unopened"`, `"holds_back"`} {
			if strings.Contains(out, bad) {
				p.t.Errorf("node %d of %s says %s of %s:\n%s", n+1, p.Domains[domain].TrustDomain, bad, other, out)
			}
		}

		var status struct {
			Refused map[string]int `json:"refused"`
			Missing int            `json:"missing"`
		}
		must(p.t, json.Unmarshal([]byte(out), &status))

		if status.Missing != 0 {
			p.t.Errorf("node %d of %s misses %d of %s", n+1, p.Domains[domain].TrustDomain, status.Missing, other)
		}

		delete(status.Refused, "origin_unknown")

		if len(status.Refused) > 0 {
			p.t.Errorf("node %d of %s refused %v of %s", n+1, p.Domains[domain].TrustDomain, status.Refused, other)
		}
	}
}

// equalLedgers shows that the members of a domain have one ledger.
func (p *processes) equalLedgers(domain int) {
	p.t.Helper()

	p.eventually("the members have applied the same", func() error {
		at, size, root := p.ledger(domain, 0)
		for n := range p.Domains[domain].Nodes {
			gotAt, gotSize, gotRoot := p.ledger(domain, n)
			if gotAt != at || gotSize != size {
				return fmt.Errorf("node %d has applied %d, node 1 %d", n+1, gotAt, at)
			}

			if gotRoot != root {
				p.t.Fatalf("at size %d node %d has the root %s, node 1 %s", size, n+1, gotRoot, root)
			}
		}

		return nil
	})
}
