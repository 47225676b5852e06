package attacks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
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

	launch.Eventually(t, other.ID+" reports the thief's change", func() error {
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
		launch.Eventually(t, n.ID+" has a line", func() error { return broughtBy(t, n, last, other.ID) })
	}

	shown := m.mustRun(append(m.flags(0, "ops/operator"), "audit", "--node", "all", "--who", other.ID, "--what", last,
		"-o", "wide"))
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

func withOwner(request map[int]any, owner string) map[int]any {
	request[1].(map[int]any)[12] = owner
	return request
}

func withDocument(request map[int]any, document string) map[int]any {
	request[1].(map[int]any)[4] = []byte(document)
	return request
}
