package domain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
)

// A full disk is full, with a warning; only one of which nothing is known is unknown.
//
// Requirement: FLD-026
func TestAFullDiskIsFull(t *testing.T) {
	for _, c := range []struct{ answer, state string }{
		{`{"disk_free":0,"disk_free_percent":0}`, "full"},
		{`{"disk_free":4096,"disk_free_percent":0}`, "full"},
		{`{"disk_free":1073741824,"disk_free_percent":5}`, "nearly full"},
		{`{"disk_free":1073741823,"disk_free_percent":50}`, "nearly full"},
		{`{"disk_free":1073741824,"disk_free_percent":50}`, "ok"},
		{`{}`, "unknown"},
	} {
		s := domainStatus{session: &connect.Session{Console: &cli.Console{}, Directory: &connect.Directory{}}}
		must(t, json.Unmarshal([]byte(c.answer), &s.Node))

		s.judgeDisk()

		if got := s.rows[0][1]; got != c.state {
			t.Errorf("%s: the disk is %q, want %q", c.answer, got, c.state)
		}

		if warned := len(s.Warnings) > 0; warned != (c.state == "full" || c.state == "nearly full") {
			t.Errorf("%s: a warning: %v", c.answer, warned)
		}

		for _, w := range s.Warnings {
			if !strings.Contains(w.Detail, "make room") || !strings.HasSuffix(w.Next, " doctor --config FILE") {
				t.Errorf("%s: the warning is no help: %+v", c.answer, w)
			}
		}
	}
}

// A member of which the leader has received nothing yet has a last contact in words, not an empty one.
//
// Requirement: FLD-026
func TestAMemberWithoutContactSaysSo(t *testing.T) {
	for _, state := range []string{"unknown", apiclient.RaftPeerSilent} {
		if got := lastContact(&cli.Console{}, apiclient.RaftPeer{State: state}); got == "" {
			t.Errorf("the last contact of a member that is %s is empty", state)
		}
	}
}

// A node whose state is not that of the domain copies that of the others; its disk needs no repair.
//
// Requirement: LOG-003
func TestAnotherStateIsCopiedFromTheOthers(t *testing.T) {
	cause := fmt.Errorf("%w: the ledger differs", node.ErrOtherState)
	failure := addRecoveryHint(cli.Failed(cli.ExitFailed, "the node failed: %w", cause).WithHint("Repair the disk"),
		cause, &config.Config{Data: "data"})

	for _, want := range []string{
		"remove data/consensus", "raft remove ID", "raft admit ID", "runbooks.md#another-state",
	} {
		if !strings.Contains(failure.Hint, want) {
			t.Errorf("the hint lacks %q: %s", want, failure.Hint)
		}
	}
}

// What is counted and is nothing is 0 in an answer.
//
// Requirement: FLD-026
func TestZeroIsInTheAnswer(t *testing.T) {
	zero, none := uint64(0), 0

	for _, c := range []struct {
		value   any
		members []string
	}{
		{wire.NodeStatus{DiskFree: &zero, DiskFreePercent: &none}, []string{"disk_free", "disk_free_percent",
			"unconfirmed", "clock_step_seconds", "clock_behind_seconds"}},
		{wire.Peer{PageAge: new(float64)}, []string{
			"records", "bytes", "missing", "over_quota", "bytes_in", "bytes_out",
			"gossip_in", "gossip_out", "page_age_seconds", "lag_revisions"}},
	} {
		text, err := json.Marshal(c.value)
		must(t, err)

		var members map[string]any
		must(t, json.Unmarshal(text, &members))

		for _, name := range c.members {
			if members[name] != 0.0 {
				t.Errorf("%T has %v as %s, want 0", c.value, members[name], name)
			}
		}
	}
}
