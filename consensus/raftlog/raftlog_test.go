package raftlog

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// Of a member that is away for an hour the log tells now and then, and how often it
// did not; what is said of another member, or is new, is there at once.
func TestAMemberThatIsAwayDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer

		log := New(slog.New(slog.NewTextHandler(&out, nil)), func() bool { return false })
		for range 7201 {
			log.Warn("failed to take a snapshot of", "server-id", "10.0.0.2:8402", "time", time.Second)
			log.Error("failed to heartbeat to", "peer", "10.0.0.2:8402", "backoff time", time.Second)
			time.Sleep(500 * time.Millisecond)
		}

		log.Warn("failed to take a snapshot of", "server-id", "10.0.0.3:8402", "time", time.Second)
		log.Warn("heartbeat timeout reached, starting election")
		log.Error("failed to store the log", "error", "disk full")

		text := out.String()
		if n := strings.Count(text, "10.0.0.2"); n < 2 || n > 4 {
			t.Errorf("%d lines tell of the one that is away", n)
		}

		if !strings.Contains(text, "10.0.0.3") || strings.Contains(text, "election") ||
			strings.Contains(text, "heartbeat") || !strings.Contains(text, "disk full") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

// A member that stops, or is away, is no fault of this one: its leader says that it is silent. A
// malformed message, and a leader that has lost its majority, are said.
func TestTheEndOfAConnectionIsOrdinary(t *testing.T) {
	var out bytes.Buffer

	log := New(slog.New(slog.NewTextHandler(&out, nil)), func() bool { return false })
	closed := &net.OpError{Op: "read", Err: net.ErrClosed}
	log.Error("failed to decode incoming command", "error", closed)
	log.Error("failed to decode incoming command", "error", raft.ErrTransportShutdown)
	log.Error("failed to flush response", "error", &net.OpError{Op: "write", Err: syscall.EPIPE})
	log.Warn("failed to contact", "server-id", "10.0.0.2:8402", "time", time.Second)
	log.Error("peer has newer term, stopping replication", "peer", "10.0.0.2:8402") // after each transfer

	if out.Len() > 0 {
		t.Errorf("the log is\n%s", &out)
	}

	log.Error("failed to decode incoming command", "error", errors.New("unknown rpc type 77"))
	log.Warn("failed to contact quorum of nodes, stepping down")

	text := out.String()
	if !strings.Contains(text, "unknown rpc type 77") || !strings.Contains(text, "stepping down") {
		t.Errorf("the log is\n%s", text)
	}
}

// The libraries' lines have our keys, and durations have their unit in the key.
func TestLinesHaveOurKeys(t *testing.T) {
	var out bytes.Buffer

	log := New(slog.New(slog.NewTextHandler(&out, nil)), func() bool { return false })
	log.Error("failed", "server-id", "n2", "error", "refused", "last-leader-id", "", "took", 1500*time.Millisecond,
		"backoff time", time.Second)
	log.Error("refused", "peer", raft.Server{ID: "n3", Address: "10.0.0.3:8402"})

	text := out.String()
	if !strings.Contains(text, "msg=failed node=n2 err=refused took_ms=1500 backoff_time_ms=1000\n") ||
		!strings.Contains(text, "msg=refused node=n3 address=10.0.0.3:8402\n") {
		t.Errorf("the line is %s", text)
	}
}
