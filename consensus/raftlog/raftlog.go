package raftlog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLogger gives what the Raft libraries log to log.
func New(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug})
	l.RegisterSink(&sink{log: log, said: map[string]*saying{}})

	return l
}

// Bounds of what the libraries repeat: twice a second of each member that is away.
const (
	sayWithin = 5 * time.Minute
	sayMost   = 5   // lines of one kind about one member within that
	sayKinds  = 256 // that are told apart
)

type sink struct {
	log *slog.Logger

	mu   sync.Mutex // guards what follows
	said map[string]*saying
}

// A saying is what was said of one thing within sayWithin.
type saying struct {
	since          time.Time
	lines, skipped int
}

// Accept is called for every line. Those of Info are about the libraries' inner
// life, so they count as Debug here.
func (s *sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch {
	case level >= hclog.Error:
		to = slog.LevelError
	case level == hclog.Warn:
		to = slog.LevelWarn
	}

	if !s.log.Enabled(context.Background(), to) {
		return
	}

	args = append([]any{"component", name}, args...)
	if to > slog.LevelDebug {
		skipped, say := s.say(kind(msg, args))
		if !say {
			return
		}

		if skipped > 0 {
			args = append(args, "skipped", skipped)
		}
	}

	s.log.Log(context.Background(), to, msg, args...)
}

// kind is what a line says, and of whom.
func kind(msg string, args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "target", "server-id":
			return fmt.Sprint(msg, args[i+1])
		}
	}

	return msg
}

// say reports whether a line of that kind is written, and how many before it were not.
func (s *sink) say(kind string) (skipped int, say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	was := s.said[kind]
	if was == nil || time.Since(was.since) >= sayWithin {
		if len(s.said) >= sayKinds {
			clear(s.said)
		}

		s.said[kind] = &saying{since: time.Now(), lines: 1}

		if was != nil {
			skipped = was.skipped
		}

		return skipped, true
	}

	if was.lines >= sayMost {
		was.skipped++
		return 0, false
	}

	was.lines++

	return 0, true
}
