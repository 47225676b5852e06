// Package raftlog writes the log lines of the Raft libraries as our own: with our levels
// and keys, and without endless repetition.
package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/limit"
)

// rate bounds the lines of one kind: the libraries write two a second about each member that
// is away.
var rate = limit.Rate{PerSecond: 2.0 / 3600, Burst: 2}

const maxKinds = 256 // of lines

// keys are our names for the libraries' keys. Other keys get underscores.
var keys = map[string]string{
	"error":       "err",
	"peer":        "node",
	"target":      "node",
	"server-id":   "node",
	"server-addr": "address",
}

// ordinary are the beginnings of lines that come with every election, and with requests
// that fail while a member is away. The node logs its leader, and a leader the silent members.
var ordinary = []string{
	"rejecting pre-vote request", "rejecting vote request", "rejecting appendEntries request", "duplicate requestVote",
	"heartbeat timeout reached", "Election timeout reached", "election timeout reached", "pre-vote", "Pre-vote",
	"failed to make requestVote RPC", "failed to make pre-vote RPC", "failed to make requestPreVote RPC",
	"failed to heartbeat to", "failed to appendEntries to", "failed to start pipeline replication",
	"aborting pipeline replication", "pipelining replication", "appendEntries rejected", "failed to get previous log",
	"not part of stable configuration", "no known peers", "skipping application of old log",
	"peer has newer term", "new leader elected, stepping down", "failed to pipeline appendEntries",
}

// connectionLines are about connections of members. They are ordinary if the connection ended, as when
// a member stops, and not if a message was malformed.
var connectionLines = []string{"failed to decode incoming command", "failed to flush response",
	"failed to accept connection", "failed to send response"}

// ended are the errors of a connection, or of this member's transport, that has ended.
var ended = []error{raft.ErrTransportShutdown, net.ErrClosed, io.EOF, io.ErrClosedPipe, syscall.ECONNRESET,
	syscall.EPIPE}

// isOrdinary reports whether a line comes with every election, or with every member that
// stops. A silent member is logged by its leader.
func isOrdinary(msg string, args []any) bool {
	if msg == "failed to contact" || slices.ContainsFunc(ordinary, func(begin string) bool {
		return strings.HasPrefix(msg, begin)
	}) {
		return true
	}

	return slices.Contains(connectionLines, msg) && slices.ContainsFunc(args, func(arg any) bool {
		err, ok := arg.(error)

		return ok && slices.ContainsFunc(ended, func(end error) bool { return errors.Is(err, end) })
	})
}

// New returns a logger for the libraries that writes to log. While this member stops, warnings about the
// others, which may stop as well, are of level Debug.
func New(log *slog.Logger, stopping func() bool) hclog.Logger {
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug})
	logger.RegisterSink(&sink{log: log, stopping: stopping, lines: limit.NewLines[string](maxKinds, rate)})

	return logger
}

// A sink writes lines, except for those that repeat too often.
type sink struct {
	log      *slog.Logger
	stopping func() bool
	lines    *limit.Lines[string] // by kind
}

// Accept implements hclog.SinkAdapter. Lines of level Info are about the libraries'
// internals, so they become Debug.
func (s *sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch {
	case isOrdinary(msg, args):
	case level >= hclog.Error:
		to = slog.LevelError
	case level == hclog.Warn && s.stopping():
		// The other members may stop, too.
	case level == hclog.Warn:
		to = slog.LevelWarn
	}

	if !s.log.Enabled(context.Background(), to) {
		return
	}

	attributes := attributesOf(args)
	if name != "" {
		attributes = append([]any{"component", name}, attributes...)
	}

	// Lines of level Debug have no limit, because an operator has asked for them.
	if to > slog.LevelDebug {
		skipped, due := s.lines.Take(kindOf(msg, attributes))
		if !due {
			return
		}

		if skipped > 0 {
			attributes = append(attributes, "skipped", skipped)
		}
	}

	s.log.Log(context.Background(), to, msg, attributes...)
}

// attributesOf returns the libraries' keys and values as ours: durations in milliseconds,
// servers as node and address, and no empty values.
func attributesOf(args []any) []any {
	var attributes []any

	for i := 0; i+1 < len(args); i += 2 {
		key := fmt.Sprint(args[i])
		if ours, ok := keys[key]; ok {
			key = ours
		}

		key = strings.NewReplacer("-", "_", " ", "_").Replace(key)

		switch value := args[i+1].(type) {
		case nil:
		case raft.Server:
			attributes = append(attributes, key, string(value.ID), "address", string(value.Address))
		case time.Duration:
			attributes = append(attributes, key+"_ms", value.Milliseconds())
		case bool, int, int64, uint64, error:
			attributes = append(attributes, key, value)
		default:
			if text := fmt.Sprint(value); text != "" {
				attributes = append(attributes, key, text)
			}
		}
	}

	return attributes
}

// kindOf returns a line's message and the member that it is about.
func kindOf(msg string, attributes []any) string {
	for i := 0; i+1 < len(attributes); i += 2 {
		if attributes[i] == "node" {
			return fmt.Sprint(msg, attributes[i+1])
		}
	}

	return msg
}
