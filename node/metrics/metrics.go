// Package metrics has the Prometheus metrics of a node. A [Set] counts events as they happen;
// a [Collector] reads the node's state at every scrape. [WatchQuotas] logs quotas that are
// nearly used up.
package metrics

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/consensus"
)

const namespace = "roster"

// A Set has the metrics that count events, and the registry of all metrics. Labels have few values: domains, routes of
// the table, codes; never a name, a path or a query.
type Set struct {
	Registry    *prometheus.Registry
	requests    *prometheus.HistogramVec
	handshakes  *prometheus.CounterVec
	credentials *prometheus.CounterVec
	Probes      *prometheus.CounterVec
	shed        *prometheus.CounterVec
	refused     *prometheus.CounterVec
	Connections *prometheus.CounterVec
	Proofs      prometheus.Counter
	Unsent      prometheus.Counter
	Forbids     prometheus.Counter
	Unchecked   *prometheus.CounterVec
	Misconduct  *prometheus.CounterVec
	submissions *prometheus.CounterVec
}

// The reasons for commands that were not checked.
const (
	MissedSnapshot = "snapshot"
	MissedOverflow = "overflow"
	MissedEndpoint = "endpoint"
)

// New returns metrics that are all 0, but for the version of the program. A Collector is registered
// once the node has the parts that it reads.
func New(version string) *Set {
	m := &Set{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "http_request_duration_seconds",
			Help:      "Duration of HTTP requests, by route of the table and status.",
			Buckets:   []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 60},
		}, []string{"method", "route", "status"}),

		handshakes: counterVec("tls_handshakes_refused_total",
			"TLS handshakes refused because of the client's certificate, by reason.", "reason"),
		credentials: counterVec("credentials_refused_total",
			"Credentials of requests refused, by reason.", "reason"),
		Probes: counterVec("probes_total",
			"Probes of agents by this node, by result.", "state"),
		shed: counterVec("requests_shed_total",
			"Requests refused because the node was overloaded, by class. Queries are shed first, then lookups, "+
				"registrations, and refreshes last.", "class"),
		refused: counterVec("requests_refused_total",
			"Requests that were not answered as asked, by method (one of a fixed set, or other) and status. "+
				"The log has a few of them each second.", "method", "status"),
		Connections: counterVec("connections_refused_total",
			"Connections closed by the limit of a listener: limits.connections and limits.connections_per_address "+
				"for api, 1024 each for cluster and gossip, 256 each for health and metrics.", "listener"),
		Proofs: counterOf("operator_proof_invalid_total",
			"Operators' commands that were applied without a valid proof of the operator: the key of the "+
				"member that brought one may be stolen."),
		Unsent: counterOf("changes_unsent_total",
			"Changes that were applied in this node's name and that this node has not sent: its key may be "+
				"stolen."),
		Forbids: counterOf("policy_forbids_failed_total",
			"Decisions in which a forbid of the domain's policy could not be evaluated, and so forbade. The "+
				"log names it."),
		Unchecked: counterVec("operator_commands_unchecked_total",
			"Operators' commands, and nodes' own, that this node did not check, by reason: they came in a snapshot, "+
				"or so many came at once that it dropped them (overflow), which a thief of a member's key may do, "+
				"or a peer's new bundle could not be checked at its endpoint (endpoint).",
			"reason"),
	}

	m.submissions = counterVec("witness_submissions_total",
		"Checkpoints of the own ledger that this node, as the leader, has submitted to a witness, by "+
			"outcome: cosigned or failed.", "witness", "outcome")
	m.Misconduct = counterVec("raft_misconduct_total",
		"Messages of other members that this node refused as false, by what they were about: the key of "+
			"the member may be stolen. The log names it.", "reason")

	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "1, with the version of the program.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)

	m.Registry.MustRegister(
		build, m.Proofs, m.Unsent, m.Forbids, m.Unchecked, m.Misconduct, m.submissions, m.requests, m.handshakes,
		m.credentials,
		m.Probes, m.shed, m.refused, m.Connections,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(cpuTime, liveHeap)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)

	// All classes exist from the start, so that a rate over the first refusal is right.
	for _, class := range admission.WorkClasses {
		m.shed.WithLabelValues(class)
	}

	for _, reason := range []string{MissedSnapshot, MissedOverflow, MissedEndpoint} {
		m.Unchecked.WithLabelValues(reason)
	}

	for _, kind := range consensus.MisconductKinds() {
		m.Misconduct.WithLabelValues(string(kind))
	}

	return m
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(counterOpts(name, help), labels)
}

func counterOf(name, help string) prometheus.Counter {
	return prometheus.NewCounter(counterOpts(name, help))
}

func counterOpts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
}

// cpuTime is the processor time of garbage collection, and the idle and the total time by
// which to divide it.
var cpuTime = collectors.GoRuntimeMetricsRule{
	Matcher: regexp.MustCompile(`^/cpu/classes/(gc/total|idle|total):cpu-seconds$`),
}

// liveHeap is the memory that the last collection found in use: the heap's size without the garbage since then.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)}

// maxScrapes bounds the requests for metrics at once; more get 503.
const maxScrapes = 8

// Handler returns the handler of GET /metrics.
func (m *Set) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// HandshakeRefused counts a refused TLS handshake.
func (m *Set) HandshakeRefused(reason string) { m.handshakes.WithLabelValues(reason).Inc() }

// CredentialRefused counts a refused credential.
func (m *Set) CredentialRefused(reason string) { m.credentials.WithLabelValues(reason).Inc() }

// RequestShed counts a request that was refused under overload.
func (m *Set) RequestShed(class string) { m.shed.WithLabelValues(class).Inc() }

// Observe counts an answered request; route is "" for a path without a row in the route table.
func (m *Set) Observe(method, route string, status int, took time.Duration) {
	code := strconv.Itoa(status)
	if status >= http.StatusBadRequest {
		m.refused.WithLabelValues(method, code).Inc()
	}

	// The duration is not observed for a request without a row in the table: it is of no
	// interest, and a histogram is many series.
	if route != "" {
		m.requests.WithLabelValues(method, route, code).Observe(took.Seconds())
	}
}

// Submitted counts a checkpoint that was submitted to a witness.
func (s *Set) Submitted(witness string, err error) {
	outcome := "cosigned"
	if err != nil {
		outcome = "failed"
	}

	s.submissions.WithLabelValues(witness, outcome).Inc()
}
