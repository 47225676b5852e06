package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
)

// A blackHole is a proxy on loopback that forwards connections, until it swallows what comes:
// connections stay open, new ones are accepted, and no byte passes.
type blackHole struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex    // guards the fields below
	passes chan struct{} // closed while bytes pass
	conns  []net.Conn
}

func newBlackHole(t *testing.T, target string) *blackHole {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	b := &blackHole{listener: listener, target: target, passes: make(chan struct{})}
	b.swallow(false)
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		b.swallow(false)

		_ = listener.Close()

		b.mu.Lock()
		for _, conn := range b.conns {
			_ = conn.Close()
		}

		b.mu.Unlock()

		b.wg.Wait()
	})

	return b
}

// swallow begins or ends the silence.
func (b *blackHole) swallow(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	select {
	case <-b.passes:
		if yes {
			b.passes = make(chan struct{})
		}
	default:
		if !yes {
			close(b.passes)
		}
	}
}

func (b *blackHole) open() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.passes
}

func (b *blackHole) accept() {
	for {
		from, err := b.listener.Accept()
		if err != nil {
			return
		}

		to, err := net.Dial("tcp", b.target)
		if err != nil {
			_ = from.Close()
			continue
		}

		b.mu.Lock()
		b.conns = append(b.conns, from, to)
		b.mu.Unlock()

		b.wg.Go(func() { b.pass(to, from) })
		b.wg.Go(func() { b.pass(from, to) })
	}
}

func (b *blackHole) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()

	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			<-b.open()

			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}

		if err != nil {
			return
		}
	}
}

// peerOf returns a peer as the first node of the first domain sees it.
func (p *processes) peerOf(domain string) (apiclient.Peer, error) {
	peers, _, err := p.client(0, 0, "ops/operator").Operator().Peers(p.t.Context())
	for _, peer := range peers {
		if peer.Domain == domain {
			return peer, nil
		}
	}

	return apiclient.Peer{}, errors.Join(err, fmt.Errorf("%s is no peer", domain))
}

// seesPeer waits until the first node of the first domain sees a peer in a state.
func (p *processes) seesPeer(domain, state string) apiclient.Peer {
	p.t.Helper()

	var peer apiclient.Peer

	p.eventually(domain+" is "+state, func() (err error) {
		// A head makes it active, and the first page may come later.
		if peer, err = p.peerOf(domain); err == nil && (peer.State != state || peer.LastPage.IsZero()) {
			err = fmt.Errorf("it is %s, its last page of %v: %s", peer.State, peer.LastPage, peer.LastError)
		}

		return err
	})

	return peer
}

// surfaces checks that every surface of the first node of the first domain says the same of a
// peer, and the age of its last page with it.
func (p *processes) surfaces(peer apiclient.Peer, up bool) {
	p.t.Helper()

	state, value, finding := "active", 1., "ok"
	if !up {
		state, value, finding = "unreachable since 20[0-9T:-]+Z", 0, "failed"
	}

	page := ".*last verified page at 20[0-9T:-]+Z, [0-9hms]+ ago"
	name := regexp.QuoteMeta(peer.Domain)

	show := state
	if !up {
		show += ", last verified page at 20[0-9T:-]+Z, [0-9hms]+ ago"
	}

	node := p.Domains[0].Nodes[0]
	for want, args := range map[string][]string{
		"(?m)^" + name + "\t" + state + "\t[a-z]+\t[0-9]+\t[0-9.]+\t[0-9hms]+\t20": {"peer", "list"},
		"(?m)^state\t" + show + "$":                                {"peer", "show", peer.Domain},
		"(?m)^age of last verified page\t[0-9hms]+$":               {"peer", "show", peer.Domain},
		"(?m)^peer " + name + "\t" + state + page:                  {"status"},
		"(?m)^" + finding + "\tpeer " + name + "\t" + state + page: {"doctor", "--config", node.Config},
	} {
		out, _ := p.roster(0, 0, args...)
		if !regexp.MustCompile(want).MatchString(out) {
			p.t.Errorf("roster %q has no %q:\n%s", args, want, out)
		}
	}

	if peer.Up != up || peer.LastPage.IsZero() || peer.UnreachableSince.IsZero() != up {
		p.t.Errorf("the operator's API says %+v", peer)
	}

	label := `{origin="` + peer.Domain + `"}`
	if got, err := metric(node, "roster_peer_up"+label); err != nil || got != value {
		p.t.Errorf("roster_peer_up%s is %v, %v", label, got, err)
	}

	if age, err := metric(node, "roster_federation_page_age_seconds"+label); err != nil || age == 0 {
		p.t.Errorf("%s has no roster_federation_page_age_seconds: %v", peer.Domain, err)
	}
}

// logOf returns the log of a node.
func (p *processes) logOf(n dev.Node) string {
	p.t.Helper()

	log, err := os.ReadFile(filepath.Join(filepath.Dir(n.Config), "node.log"))
	must(p.t, err)

	return string(log)
}

// peerLine is a line of the log about a peer, in the text format.
var peerLine = regexp.MustCompile(`msg="(peer [^"]*)" peer=(\S+)`)

// peerLines returns the messages about a peer in a log.
func peerLines(log, peer string) (messages []string) {
	for _, found := range peerLine.FindAllStringSubmatch(log, -1) {
		if found[2] == peer {
			messages = append(messages, found[1])
		}
	}

	return messages
}

// A peer whose only process is stopped, or killed, or behind a path that swallows everything,
// is unreachable on every surface, and active again when it is back. Each loss and each return
// is one line of the log.
// notes/users.md: "a peer's only node dead for 47 s".
//
// Requirement: OPS-043, OPS-033
func TestASilentPeerIsSeenEverywhere(t *testing.T) {
	t.Parallel() // most of its time it waits for silence
	p := startProcesses(t, "--domains", "3", "--nodes", "1", "--sample", "3")
	stopped, hidden := p.Domains[1], p.Domains[2]

	held, address := reserved(t)
	t.Cleanup(func() { _ = syscall.Close(held) })

	hole := newBlackHole(t, address)
	p.must(0, 0, "peer", "set", hidden.TrustDomain, "--nodes", "https://"+hole.listener.Addr().String())
	p.kill(hidden.Nodes[0]) // it holds pulls at the old address

	// It tells the nodes that it reaches where it is reached: there, too, and nowhere else.
	text, err := os.ReadFile(hidden.Nodes[0].Config)
	must(t, err)

	was := hidden.Nodes[0].API
	text = bytes.ReplaceAll(text, []byte("api: "+was), []byte("api: https://"+hole.listener.Addr().String()))
	text = bytes.ReplaceAll(text, []byte("api: "+strings.TrimPrefix(was, "https://")), []byte("api: "+address))
	must(t, os.WriteFile(hidden.Nodes[0].Config, text, 0o600))

	p.restart(hidden.Nodes[0])

	for _, domain := range []string{stopped.TrustDomain, hidden.TrustDomain} {
		p.surfaces(p.seesPeer(domain, "active"), true)
	}

	before := len(p.logOf(p.Domains[0].Nodes[0]))
	resume := p.suspend(stopped.Nodes[0])
	hole.swallow(true)

	for _, domain := range []string{stopped.TrustDomain, hidden.TrustDomain} {
		peer := p.seesPeer(domain, "unreachable")
		if !peer.UnreachableSince.Equal(peer.LastAnswer) {
			t.Errorf("%s is unreachable since %v, and answered last at %v", domain, peer.UnreachableSince,
				peer.LastAnswer)
		}

		p.surfaces(peer, false)
	}

	resume()
	hole.swallow(false)

	for _, domain := range []string{stopped.TrustDomain, hidden.TrustDomain} {
		p.surfaces(p.seesPeer(domain, "active"), true)
	}

	p.hasChanges(hidden.TrustDomain, before, "peer back")
	p.hasChanges(stopped.TrustDomain, before, "peer back")

	p.kill(stopped.Nodes[0])
	p.seesPeer(stopped.TrustDomain, "unreachable")
	p.hasChanges(stopped.TrustDomain, before, "peer lost: none of its nodes answers")
	p.restart(stopped.Nodes[0])
	p.seesPeer(stopped.TrustDomain, "active")
	p.hasChanges(stopped.TrustDomain, before, "peer back")
}

// hasChanges waits until the log of the first node, from an offset on, ends with a change of a peer, and fails the
// test unless losses and returns alternate there, beginning with a loss. On a busy machine a peer may be lost more
// often than the test stops it.
func (p *processes) hasChanges(domain string, offset int, last string) {
	p.t.Helper()

	var lines []string

	p.eventually("the log ends with: "+domain+": "+last, func() error {
		lines = peerLines(p.logOf(p.Domains[0].Nodes[0])[offset:], domain)
		if len(lines) == 0 || lines[len(lines)-1] != last {
			return fmt.Errorf("it has %q", lines)
		}

		return nil
	})

	for i, line := range lines {
		if want := []string{"peer lost: none of its nodes answers", "peer back"}[i%2]; line != want {
			p.t.Errorf("change %d of %s is %q, want %q", i, domain, line, want)
		}
	}
}
