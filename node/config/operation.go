package config

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
)

const (
	maxHold       = 365 * 24 * time.Hour
	maxDrain      = 10 * time.Minute
	maxAsked      = 1000
	minHandOver   = 2 * time.Second // a new leader takes a second or two
	maxAuditSize  = 10_000          // MiB
	maxAuditFiles = 10_000
	minAuditKeep  = time.Hour
	maxAuditKeep  = 100 * maxHold
)

// Lifetimes bounds the lifetimes that registrations are granted: in seconds, and in
// multiples of the lifetime of the registrant's credential; 0 of these is no bound.
// Shorter ones than Min are refused.
type Lifetimes struct {
	Min         uint32 `yaml:"min"`
	Max         uint32 `yaml:"max"`
	Credentials uint32 `yaml:"credentials"`
}

func (l *Lifetimes) validate(r *report) {
	r.require(l.Max >= directory.MinLifetime, "lifetimes.max", "must be at least %d s, got %d", directory.MinLifetime,
		l.Max)
	r.require(l.Min >= directory.MinLifetime && l.Min <= max(l.Max, directory.MinLifetime), "lifetimes.min",
		"must be from %d s to lifetimes.max, got %d", directory.MinLifetime, l.Min)
}

// History says how long the contents of statements are kept once another one follows, or the
// registration has ended; 0 keeps them for ever. All take at most MaxBytes; 0 is no bound.
type History struct {
	Keep     time.Duration `yaml:"keep"`
	MaxBytes int64         `yaml:"max_bytes"`
}

func (h *History) validate(r *report) {
	r.require(h.MaxBytes == 0 || h.MaxBytes >= 64<<20, "history.max_bytes",
		"must be 0 or at least 67108864 (64 MiB), got %d", h.MaxBytes)
	r.require(h.Keep == 0 || h.Keep >= time.Hour, "history.keep", "must be 0s or at least 1h, got %s", h.Keep)
}

// Names has the rules for agent names, equal on all nodes of a domain.
type Names struct {
	Hold time.Duration `yaml:"hold" reload:"yes"`
}

func (n *Names) validate(r *report) {
	r.require(n.Hold >= 0 && n.Hold <= maxHold && n.Hold%time.Second == 0, "names.hold",
		"must be whole seconds from 0s to %s, got %s", maxHold, n.Hold)
}

// Disk configures the transfer of leadership away from a slow disk. The leader transfers
// it if each write to the log took longer than Slow for all of HandOverAfter. Slow of 0
// means never.
type Disk struct {
	Slow          time.Duration `yaml:"slow"`
	HandOverAfter time.Duration `yaml:"hand_over_after"`
}

func (d *Disk) validate(r *report) {
	r.require(d.Slow >= 0, "disk.slow", "must not be negative, got %s", d.Slow)
	r.require(d.HandOverAfter >= minHandOver, "disk.hand_over_after", "must be at least %s, got %s", minHandOver,
		d.HandOverAfter)
}

// Audit bounds the audit log: MiB of one file, the number of files, and the time for
// which they are kept; a Keep of 0 is as long as there is room.
type Audit struct {
	Size  int64         `yaml:"size"`
	Files int           `yaml:"files"`
	Keep  time.Duration `yaml:"keep"`
}

func (a *Audit) validate(r *report) {
	r.require(a.Size >= 1 && a.Size <= maxAuditSize, "audit.size", "must be from 1 to %d MiB, got %d", maxAuditSize,
		a.Size)
	r.require(a.Files >= 1 && a.Files <= maxAuditFiles, "audit.files", "must be from 1 to %d, got %d", maxAuditFiles,
		a.Files)
	r.require(a.Keep == 0 || a.Keep >= minAuditKeep && a.Keep <= maxAuditKeep, "audit.keep",
		"must be 0s or from %s to %s, got %s", minAuditKeep, maxAuditKeep, a.Keep)
	r.require(a.Keep == 0 || a.Files != 1, "audit.keep",
		"with audit.files of 1 there is no older file to remove; allow at least 2")
}

// Trace configures OpenTelemetry traces: the collector to which they are exported, the file with the
// CAs that certify it, the share of the node's own traces that are recorded, and how many a second
// are recorded because a caller asks for it. Without an Endpoint nothing is recorded.
type Trace struct {
	Endpoint string  `yaml:"endpoint"`
	CA       string  `yaml:"ca"`
	Sample   float64 `yaml:"sample"`
	Asked    float64 `yaml:"asked"`
}

func (t *Trace) validate(r *report) {
	r.require(t.Endpoint == "" || isCollector(t.Endpoint), "trace.endpoint",
		"must be the URL to which spans are posted, such as http://127.0.0.1:4318/v1/traces, got %q", t.Endpoint)
	r.require(t.CA == "" || strings.HasPrefix(t.Endpoint, "https:"), "trace.ca",
		"is for a trace.endpoint with https, got %q", t.Endpoint)
	r.require(t.Sample >= 0 && t.Sample <= 1, "trace.sample", "must be from 0 to 1, got %v", t.Sample)
	r.require(t.Asked >= 0 && t.Asked <= maxAsked, "trace.asked", "must be from 0 to %d, got %v", maxAsked, t.Asked)
}

// isCollector reports whether text is an absolute URL of http or https with a path, and without an
// account, a query or a fragment.
func isCollector(text string) bool {
	u, err := url.Parse(text)

	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && len(u.Path) > 1 &&
		u.User == nil && u.RawQuery == "" && u.Fragment == "" && isPortOrNone(u.Port())
}

// LogAuto is the log format that is text on a terminal and JSON elsewhere.
const LogAuto = "auto"

// Log says how a node logs.
type Log struct {
	Level  string `yaml:"level"  reload:"yes"`
	Format string `yaml:"format"`
}

func (l *Log) validate(r *report) {
	r.require(new(slog.Level).UnmarshalText([]byte(l.Level)) == nil, "log.level",
		"must be debug, info, warn or error, got %q", l.Level)
	r.require(l.Format == LogAuto || l.Format == "json" || l.Format == "text", "log.format",
		"must be auto, json or text, got %q", l.Format)
}

// MinLevel returns the level of the least important lines.
func (l Log) MinLevel() (level slog.Level) {
	_ = level.UnmarshalText([]byte(l.Level)) // Validate has checked it
	return level
}

// Logger returns a logger that writes lines of at least a level to w; the level of the
// configuration if it is nil. LogAuto is JSON here. No URL in a line shows a password.
func (l Log) Logger(w io.Writer, level slog.Leveler) *slog.Logger {
	if level == nil {
		level = l.MinLevel()
	}

	options := &slog.HandlerOptions{Level: level, ReplaceAttr: hideUserinfo}
	if l.Format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}

	return slog.New(slog.NewJSONHandler(w, options))
}

// hideUserinfo hides the user names and passwords of URLs in a log line.
func hideUserinfo(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() != slog.KindString && attr.Value.Kind() != slog.KindAny {
		return attr
	}

	text := fmt.Sprint(attr.Value)
	if hidden := directory.HideUserinfo(text); hidden != text {
		attr.Value = slog.StringValue(hidden)
	}

	return attr
}
