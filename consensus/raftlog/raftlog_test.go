package raftlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Of a member that is away for an hour the log tells now and then, and how often it
// did not; what is said of another member, or is new, is there at once.
func TestAMemberThatIsAwayDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer

		log := New(slog.New(slog.NewTextHandler(&out, nil)))
		for range 7200 {
			log.Error("failed to heartbeat to", "peer", "10.0.0.2:8402", "error", "connection refused")
			time.Sleep(500 * time.Millisecond)
		}

		log.Error("failed to heartbeat to", "peer", "10.0.0.3:8402", "error", "connection refused")
		log.Warn("heartbeat timeout reached, starting election")

		text := out.String()
		if n := strings.Count(text, "10.0.0.2"); n < 12 || n > 61 {
			t.Errorf("%d lines tell of the one that is away", n)
		}

		if !strings.Contains(text, "skipped=595") || !strings.Contains(text, "10.0.0.3") ||
			!strings.Contains(text, "election") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

// The libraries' lines have our keys, and durations have their unit in the key.
func TestLinesHaveOurKeys(t *testing.T) {
	var out bytes.Buffer

	log := New(slog.New(slog.NewTextHandler(&out, nil)))
	log.Error("failed", "server-id", "n2", "error", "refused", "last-leader-id", "", "took", 1500*time.Millisecond)

	text := out.String()
	if !strings.Contains(text, "node=n2 err=refused took_ms=1500\n") {
		t.Errorf("the line is %s", text)
	}
}
