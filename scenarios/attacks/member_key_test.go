package attacks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/roster-mesh/roster/node/dev"
)

// The thief of a member's key sends changes to the leader as that member does.

// forwarded returns a request to register an agent, as a member sends it.
func forwarded(caller, agent string, commissioning bool) map[int]any {
	return map[int]any{1: map[int]any{
		1: map[int]any{1: caller, 2: commissioning, 3: "thief"}, 2: agent, 3: "ad",
		4: []byte(`{"base":"https://agent.example/"}`), 5: 600, 6: "domain", 7: nil,
	}}
}

// broughtBy returns an error unless a node's audit log has one applied line of a registration that the
// member brought.
func broughtBy(t *testing.T, n dev.Node, agent, member string) error {
	t.Helper()

	for _, line := range applied(t, n, "register") {
		if line.Agent == agent && line.BroughtBy == member {
			return nil
		}
	}

	return fmt.Errorf("no line says that %s brought %s", member, agent)
}

// A change that the thief of a member's key forwards is in the audit logs of all members with the member
// that brought it, and the member itself says within five seconds that it did not send it (finding 28).
// The caller's identity is all that the leader believes: commissioning and permission are decided by its
// own policy, and the projection is made from the document.
//
// Requirement: SEC-012
func TestAForwardedChangeNamesItsMember(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	leader, other := m.leaderOf()
	thief := m.memberTLS(other, "roster-write/1")
	ada := m.as(0, "agent/ada")

	status, location, body, err := m.register(ada, other.API+"/ad/r?agent=mine",
		[]byte(`{"base":"https://agent.example/"}`))
	if err != nil || status != http.StatusCreated {
		t.Fatal(status, string(body), err)
	}

	rid := path.Base(location)

	for name, c := range map[string]struct {
		request map[int]any
		want    string
	}{
		"commissioning by its own word": {map[int]any{3: map[int]any{
			1: map[int]any{1: "spiffe://alpha.test/agent/bob", 2: true}, 2: rid, 3: nil}}, "forbidden"},
		"an owner of another domain": {forwarded("spiffe://evil.test/agent/eve", "theirs", false),
			"owner-outside-domain"},
		"on another's behalf": {withOwner(forwarded("spiffe://alpha.test/agent/bob", "for-ada", true),
			"spiffe://alpha.test/agent/ada"), "forbidden"},
		"a document that is none": {withDocument(forwarded("spiffe://alpha.test/agent/bob", "bad", false),
			`{"base":"https://agent.example/","_sd":[]}`), "bad-document"},
	} {
		if got, err := m.writeFrame(thief, leader, c.request); err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %s", name, got, err, c.want)
		}
	}

	// The member's own changes are none of the thief's.
	if got := m.metric(other, "roster_changes_unsent_total"); got != 0 {
		t.Errorf("%s reports %v changes that it has not sent", other.ID, got)
	}

	// A process that has just started can't tell the thief's changes from those of the one before it.
	last := ""

	eventually(t, 30*time.Second, other.ID+" reports the thief's change", func() error {
		last = fmt.Sprintf("stolen-%d", time.Now().UnixNano())

		got, err := m.writeFrame(thief, leader, forwarded("spiffe://alpha.test/agent/ada", last, false))
		if err != nil || got != "" {
			return fmt.Errorf("%q %w", got, err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()

		for ctx.Err() == nil {
			if m.metric(other, "roster_changes_unsent_total") > 0 {
				return nil
			}

			time.Sleep(50 * time.Millisecond)
		}

		return errors.New("no report within 5 s")
	})

	for _, n := range m.Domains[0].Nodes {
		eventually(t, 5*time.Second, n.ID+" has a line", func() error { return broughtBy(t, n, last, other.ID) })
	}

	shown := m.mustRun(append(m.operator(0), "audit", "--node", "all", "--who", other.ID, "--what", last, "-o", "wide"))
	if strings.Count(shown, other.ID) < len(m.Domains[0].Nodes) || !strings.Contains(shown, "BROUGHT BY") {
		t.Errorf("roster audit doesn't say by which member the change came: %s", shown)
	}

	log, err := os.ReadFile(filepath.Join(filepath.Dir(other.Config), "node.log"))
	must(t, err)

	if !strings.Contains(string(log), "this node did not send") {
		t.Errorf("the log of %s has no alarm", other.ID)
	}

	// The domain goes on, and nothing that was acknowledged is lost.
	status, body, err = ask(t.Context(), ada, http.MethodGet, leader.API+"/ad/r/"+rid, nil)
	if err != nil || status != http.StatusOK {
		t.Errorf("%d %s %v", status, body, err)
	}
}

// Two keys without processes that a standing admission admits become members without a vote, whatever they
// say of themselves, and bring nothing: no change, and no message of Raft (findings 28 and 31).
//
// Requirement: SEC-012, SEC-019
func TestAKeyWithoutAProcessGetsNoVote(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	leader, _ := m.leaderOf()
	m.mustRun(append(m.operator(0), "raft", "admit", "spiffe://alpha.test/roster/node/x*", "--standing", "--max", "5"))

	for _, name := range []string{"x1", "x2"} {
		pair := m.mintNode(name)
		join := clientOf(t, m.trusting(pair, "http/1.1"))

		// Again and again, with a word that the leader itself could give.
		body, err := cbor.Marshal(map[int]any{1: "127.0.0.1:" + map[string]string{"x1": "1", "x2": "2"}[name],
			4: uint64(1) << 40, 5: uint64(1) << 40, 8: map[int]any{1: 1, 2: 1, 3: 1}, 11: uint64(7)})
		must(t, err)

		for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
			status, answer, err := ask(t.Context(), join, http.MethodPost, "https://"+leader.Raft+"/v1/join", body)
			if err != nil || status != http.StatusOK {
				t.Fatal(status, string(answer), err)
			}
		}

		got, err := m.writeFrame(m.trusting(pair, "roster-write/1"), leader,
			forwarded("spiffe://alpha.test/agent/ada", "by-"+name, false))
		if err != nil || got != "not-a-voter" {
			t.Errorf("a change by %s: %q %v", name, got, err)
		}

		for _, n := range m.Domains[0].Nodes {
			if err := speaksRaft(t, m.trusting(pair, "roster-raft/1"), n); err != nil {
				t.Errorf("%s at %s: %v", name, n.ID, err)
			}
		}
	}

	out := m.mustRun(append(m.operator(0), "raft", "peers", "-o", "json"))
	voters := strings.Count(out, `"voter": true`) + strings.Count(out, `"voter":true`)

	if voters != 3 || !strings.Contains(out, "node/x2") {
		t.Errorf("the members are %s", out)
	}
}

// speaksRaft returns an error unless a node ends a connection for Raft at once.
func speaksRaft(t *testing.T, as *tls.Config, to dev.Node) error {
	t.Helper()

	conn, err := (&tls.Dialer{Config: as}).DialContext(t.Context(), "tcp", to.Raft)
	if err != nil {
		return nil // in the handshake
	}
	defer conn.Close()

	_ = conn.SetDeadline(time.Now().Add(8 * time.Second))

	var timeout interface{ Timeout() bool }
	if _, err := conn.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("the connection for Raft stays open")
	}

	return nil
}

func withOwner(request map[int]any, owner string) map[int]any {
	request[1].(map[int]any)[12] = owner
	return request
}

func withDocument(request map[int]any, document string) map[int]any {
	request[1].(map[int]any)[4] = []byte(document)
	return request
}

// Whoever has a key under a peer's node path ends no peering by it: a node that was never admitted is a
// stranger, and a member's key brings no farewell without the proof of its domain's operator. The farewell of
// the operator ends the peering at the peer (finding 32).
//
// Requirement: MESH-025, SEC-019
func TestANodesKeyEndsNoPeering(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "2", "--nodes", "1")
	alpha, beta := m.Domains[0].Nodes[0], m.Domains[1].Nodes[0]
	url := beta.API + "/federation/v1/"

	state := func() string {
		return m.mustRun(append(m.operator(1), "peer", "list", "-o", "json"))
	}

	eventually(t, 20*time.Second, "beta knows the keys of alpha", func() error {
		never := clientOf(t, m.trusting(m.mintNode("9")))

		private := url + "pages?origin=beta.test&aud=alpha.test&since=0"

		status, answer, err := ask(t.Context(), never, http.MethodGet, private, nil)
		if err != nil || status != http.StatusForbidden {
			return fmt.Errorf("a private stream for a node that was never admitted: %d %s %w", status, answer, err)
		}

		return nil
	})

	for name, client := range map[string]*http.Client{
		"a node that was never admitted": clientOf(t, m.trusting(m.mintNode("9"))),
		"a member":                       clientOf(t, m.memberTLS(alpha)),
	} {
		status, answer, err := ask(t.Context(), client, http.MethodPost, url+"farewell", nil)
		if err != nil || status != http.StatusForbidden {
			t.Errorf("a farewell of %s: %d %s %v", name, status, answer, err)
		}
	}

	if said := state(); !strings.Contains(said, `"active"`) {
		t.Errorf("beta's peers are %s", said)
	}

	m.mustRun(append(m.operator(0), "peer", "remove", "beta.test"))
	eventually(t, 20*time.Second, "beta has taken the farewell", func() error {
		if said := state(); strings.Contains(said, `"active"`) {
			return errors.New(said)
		}

		return nil
	})
}
