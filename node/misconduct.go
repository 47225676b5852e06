package node

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/limit"
	"github.com/roster-mesh/roster/trust/audit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Bounds of the log lines about misconduct, each of one kind by one member.
const maxMisconducts = 256

var misconductRate = limit.Rate{PerSecond: 0.1, Burst: 1}

// A misconductReporter reports the messages of other members that this node has refused: in the log, in the audit log,
// where the doctor finds it, and as a metric.
type misconductReporter struct {
	log     *slog.Logger
	trail   *audit.Log
	refused *prometheus.CounterVec
	lines   *limit.Lines[misconductKey]
}

// A misconductKey has few values: members of the domain, and kinds.
type misconductKey struct {
	by   string
	kind consensus.MisconductKind
}

// report does not block: the audit log writes its line later.
func (r *misconductReporter) report(m consensus.Misconduct) {
	r.refused.WithLabelValues(string(m.Kind)).Inc()
	r.trail.Refused(directory.AuditEvent{
		Action: "raft." + string(m.Kind), Actor: directory.IdentityOf(m.By), BroughtBy: directory.IdentityOf(m.By),
		Target: m.Err.Error(), Outcome: directory.OutcomeMisconduct,
	})

	if skipped, due := r.lines.Take(misconductKey{m.By.String(), m.Kind}); due {
		r.log.Error("refused a message of a member, whose key may be stolen or whose release may be newer",
			"kind", string(m.Kind), "brought_by", m.By, "skipped", skipped, "err", m.Err)
	}
}

// doubted reports a node of a peer whose word this node does not take any more.
func (r *misconductReporter) doubted(peer spiffeid.TrustDomain, node federation.Doubtful) {
	r.trail.Refused(directory.AuditEvent{
		Action: "peer.contradiction", Actor: directory.IdentityOf(node.Node),
		BroughtBy: directory.IdentityOf(node.Node),
		Target:    fmt.Sprintf("%s, by key %s: %s", peer.Name(), node.Key, node.What),
		Outcome:   directory.OutcomeMisconduct,
	})
	r.log.Error("refuse the word of a peer's node, which other nodes of the peer contradict; its key may be stolen",
		"peer", peer.Name(), "node", node.Node, "key", node.Key, "since", node.Since.UTC(), "err", node.What)
}
