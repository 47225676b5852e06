package scenarios

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/node/dev"
)

// What operators look for in a log after an election is there once: the leader, and that the
// node is ready. What a poller asks again and again is not. A member is admitted by its name,
// as it is removed, and a write without a majority is refused in one sentence.
// notes/users.md: "a lost majority", "after an election the log says nothing".
//
// Requirement: OPS-015, OPS-005
func TestALogHasEachChangeOnce(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, "--domains", "1", "--nodes", "3", "--sample", "0")
	leader := p.leader(0)

	var others []dev.Node

	for _, n := range p.Domains[0].Nodes {
		if n.ID != leader.ID {
			others = append(others, n)
		}
	}

	p.eventually("the log says that the node is ready", func() error {
		if log := p.logOf(others[0]); !strings.Contains(log, "msg=ready") ||
			!strings.Contains(log, "leader="+leader.ID) {
			return errors.New(log)
		}

		return nil
	})

	before := len(p.logOf(others[0]))
	first := "1" // the number of another node
	asked := 0

	for i, n := range p.Domains[0].Nodes {
		if n.ID == others[0].ID {
			first, asked = fmt.Sprint(i+1), i
		}
	}

	poller := p.http(0, "client/reader")

	for range 50 {
		resp, err := poller.Get(others[0].API + "/ad/r/01ARZ3NDEKTSV4RRFFQ69G5FAV")
		if err != nil || resp.StatusCode != http.StatusNotFound {
			t.Fatal(resp, err)
		}

		_ = resp.Body.Close()
	}

	out := p.must(0, asked, "raft", "admit", "9")
	if !strings.Contains(out, "admitted spiffe://alpha.test/roster/node/9") {
		t.Error(out)
	}

	p.must(0, asked, "raft", "admit", "9", "--withdraw")
	p.must(0, asked, "raft", "admit", "--standing", "--max", "4", "x-*")
	p.must(0, asked, "raft", "admit", "--standing", "--withdraw", "x-*")

	p.kill(leader)

	p.eventually("the log of node "+first+" names the next leader", func() error {
		if log := p.logOf(others[0])[before:]; !strings.Contains(log, "leader elected") {
			return errors.New(log)
		}

		return nil
	})

	// A busy machine may need several elections. Each change is logged once all the same: no line
	// says what the line before it said.
	following, state := leader.ID, "ready"

	for _, line := range regexp.MustCompile(`msg=("leader elected"|ready|"not ready")[^\n]*`).
		FindAllStringSubmatch(p.logOf(others[0])[before:], -1) {
		_, elected, _ := strings.Cut(line[0], " leader=")

		switch {
		case line[1] != `"leader elected"`:
			if line[1] == state {
				t.Errorf("the node's state is logged again: %s", line[0])
			}

			state = line[1]
		case elected == "" || strings.HasSuffix(elected, following):
			t.Errorf("the leader after %s is logged as %s", following, line[0])
		default:
			following = elected
		}
	}

	log := p.logOf(others[0])[before:]
	if n := strings.Count(log, "status=404"); n < 1 || n > 5 { // one for each span of time
		t.Errorf("the log has %d lines about a poller that asked 50 times:\n%s", n, log)
	}

	if regexp.MustCompile(`map\[|component=""|="\{|level=ERROR`).MatchString(log) {
		t.Errorf("the log has errors, or values that are no flat fields:\n%s", log)
	}

	p.kill(others[1])

	// At first the leader still takes writes, of which the outcome is unknown.
	p.eventually("a write is refused without a majority", func() error {
		out, code := p.roster(0, asked, "raft", "admit", "spiffe://alpha.test/roster/node/9")
		if code != 6 || strings.Count(out, "nothing was changed") != 1 || strings.Contains(out, "does not lead") ||
			strings.Count(strings.ToLower(out), "try again") != 1 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}

		return nil
	})
}
