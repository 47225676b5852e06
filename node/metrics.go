package node

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/roster-mesh/roster/api/admission"
)

const namespace = "roster"

// metrics are the node's Prometheus metrics. Labels have few values: domains, routes of
// the table, codes; never a name, a path or a query.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.HistogramVec
	handshakes  *prometheus.CounterVec
	credentials *prometheus.CounterVec
	probes      *prometheus.CounterVec
	shed        *prometheus.CounterVec
	refused     *prometheus.CounterVec
	connections *prometheus.CounterVec
	proofs      prometheus.Counter
	unchecked   *prometheus.CounterVec
}

// The reasons for commands that were not checked.
const (
	missedSnapshot = "snapshot"
	missedOverflow = "overflow"
	missedEndpoint = "endpoint"
)

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
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
		probes: counterVec("probes_total",
			"Probes of agents by this node, by result.", "state"),
		shed: counterVec("requests_shed_total",
			"Requests refused because the node was overloaded, by class. Queries are shed first, then lookups, "+
				"registrations, and refreshes last.", "class"),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "requests_refused_total",
			Help: "Requests that were not answered as asked, by method (one of a fixed set, or other) and status. " +
				"The log has a few of them each second."}, []string{"method", "status"}),
		connections: counterVec("connections_refused_total",
			"Connections closed by the limit of a listener: limits.connections and limits.connections_per_address "+
				"for api, 1024 each for cluster and gossip, 256 each for health and metrics.", "listener"),
		proofs: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace,
			Name:      "operator_proof_invalid_total",
			Help: "Operators' commands that were applied without a valid proof of the operator: the key of the " +
				"member that brought one may be stolen.",
		}),
		unchecked: counterVec("operator_commands_unchecked_total",
			"Operators' commands, and nodes' own, that this node did not check, by reason: they came in a snapshot, "+
				"or so many came at once that it dropped them (overflow), which a thief of a member's key may do, "+
				"or a peer's new bundle could not be checked at its endpoint (endpoint).",
			"reason"),
	}

	m.registry.MustRegister(
		m.proofs, m.unchecked, m.requests, m.handshakes, m.credentials, m.probes, m.shed, m.refused, m.connections,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(cpuTime, liveHeap)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)

	// All classes exist from the start, so that a rate over the first refusal is right.
	for _, class := range admission.WorkClasses {
		m.shed.WithLabelValues(class)
	}

	for _, reason := range []string{missedSnapshot, missedOverflow, missedEndpoint} {
		m.unchecked.WithLabelValues(reason)
	}

	return m
}

func counterVec(name, help, label string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
	return prometheus.NewCounterVec(opts, []string{label})
}

// cpuTime is the processor time of garbage collection, and the idle and the total time by
// which to divide it.
var cpuTime = collectors.GoRuntimeMetricsRule{
	Matcher: regexp.MustCompile(`^/cpu/classes/(gc/total|idle|total):cpu-seconds$`),
}

// liveHeap is what the last collection found in use: the heap's size without the garbage
// since then.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)}

// maxScrapes bounds the requests for metrics at once; more get 503.
const maxScrapes = 8

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

func (m *metrics) handshakeRefused(reason string) { m.handshakes.WithLabelValues(reason).Inc() }

func (m *metrics) credentialRefused(reason string) { m.credentials.WithLabelValues(reason).Inc() }

func (m *metrics) requestShed(class string) { m.shed.WithLabelValues(class).Inc() }

func (m *metrics) observe(method, route string, status int, took time.Duration) {
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
