package domain

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
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
		if err := json.Unmarshal([]byte(c.answer), &s.Node); err != nil {
			t.Fatal(err)
		}

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
		if err != nil {
			t.Fatal(err)
		}

		var members map[string]any
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}

		for _, name := range c.members {
			if members[name] != 0.0 {
				t.Errorf("%T has %v as %s, want 0", c.value, members[name], name)
			}
		}
	}
}
