package node

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
)

// misconductPause is between two log lines about the same misconduct of a member.
const misconductPause = 10 * time.Second

// A misconductReporter reports what this node has refused of other members of its domain: in the log, in
// the audit log, where the doctor finds it, and as a metric.
type misconductReporter struct {
	log     *slog.Logger
	trail   *audit.Log
	refused *prometheus.CounterVec

	mu    sync.Mutex
	lines map[misconductKey]*misconductLine
}

// A misconductKey has few values: members of the domain, and kinds.
type misconductKey struct {
	by   string
	kind consensus.MisconductKind
}

type misconductLine struct {
	logged  time.Time
	skipped int
}

// report does not block: the audit log writes its line later.
func (r *misconductReporter) report(m consensus.Misconduct) {
	r.refused.WithLabelValues(string(m.Kind)).Inc()
	r.trail.Refused(directory.AuditEvent{
		Action: "raft." + string(m.Kind), Actor: directory.IdentityOf(m.By), BroughtBy: directory.IdentityOf(m.By),
		Target: m.Err.Error(), Outcome: directory.OutcomeMisconduct,
	})

	if skipped, is := r.due(misconductKey{m.By.String(), m.Kind}); is {
		r.log.Error("refused a message of a member, whose key may be stolen or whose release may be newer",
			"kind", string(m.Kind), "brought_by", m.By, "skipped", skipped, "err", m.Err)
	}
}

// due reports whether a line is due, and how many before it were skipped.
func (r *misconductReporter) due(key misconductKey) (skipped int, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	line := r.lines[key]
	if line == nil {
		line = &misconductLine{}
		r.lines[key] = line
	}

	if time.Since(line.logged) < misconductPause {
		line.skipped++

		return 0, false
	}

	skipped = line.skipped
	*line = misconductLine{logged: time.Now()}

	return skipped, true
}
