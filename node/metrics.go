package node

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/roster-mesh/roster/api/admission"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/trust"
)

// metrics are what an operator watches a node by. Labels are bounded: domains,
// routes of the table, codes of a gate; never a name, a path or a query.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.HistogramVec
	handshakes *prometheus.CounterVec
	refused    *prometheus.CounterVec
	probes     *prometheus.CounterVec

	shed        *prometheus.CounterVec // requests, by class
	connections *prometheus.CounterVec // that found no place, by listener
}

func newMetrics(n *Node) *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "roster_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "roster_http_request_duration_seconds",
			Help:    "Time to answer a request, by route of the table and status.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 60},
		}, []string{"method", "route", "status"}),
		handshakes: counter("tls_handshakes_refused_total", "Certificates that did not hold, by reason.", "reason"),
		refused: counter(
			"credentials_refused_total",
			"Credentials of requests that did not hold, by reason.",
			"reason",
		),
		probes: counter("probes_total", "Agents that this node asked what they are, by what came of it.", "state"),
		shed: counter(
			"requests_shed_total",
			"Requests that were not worked on since the node was overloaded, by class: queries are shed first, then lookups, registrations, and refreshes last.",
			"class",
		),
		connections: counter(
			"connections_refused_total",
			"Connections that were closed for want of a place, by listener: api has the places of limits.connections and limits.connections_per_address, cluster and gossip have 1,024 each.",
			"listener",
		),
	}
	m.registry.MustRegister(
		m.requests,
		m.handshakes,
		m.refused,
		m.probes,
		m.shed,
		m.connections,
		state{n},
		collectors.NewGoCollector(
			collectors.WithGoCollectorRuntimeMetrics(collectorTime),
		),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	for _, class := range admission.WorkClasses {
		m.shed.WithLabelValues(class) // so that there are all of them from the start
	}
	return m
}

// collectorTime is the processor time that garbage collection takes, and what it
// is a share of: the total less the idle, as the runtime reckons all three.
var collectorTime = collectors.GoRuntimeMetricsRule{
	Matcher: regexp.MustCompile(`^/cpu/classes/(gc/total|idle|total):cpu-seconds$`),
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) handshakeRefused(reason string) { m.handshakes.WithLabelValues(reason).Inc() }

func (m *metrics) credentialRefused(reason string) { m.refused.WithLabelValues(reason).Inc() }

func (m *metrics) requestShed(class string) { m.shed.WithLabelValues(class).Inc() }

func (m *metrics) observe(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
}

// state reads a node's state at every scrape.
type state struct{ n *Node }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("roster_"+name, help, labels, nil)
}

var (
	descLeader        = desc("raft_is_leader", "1 on the domain's leader.")
	descHeard         = desc("raft_leader_heard_seconds", "Seconds since the leader was heard; 0 on the leader.")
	descRevision      = desc("revision", "The last applied revision of the own domain.")
	descLedger        = desc("ledger_size", "Leaves of the own domain's ledger.")
	descRegistrations = desc(
		"registrations",
		"Registrations held, by origin; dead ones until they are freed.",
		"origin",
	)
	descLag = desc(
		"federation_lag_revisions",
		"Revisions that a peer has announced and this node lacks.",
		"origin",
	)
	descLagSeconds = desc("federation_lag_seconds", "How long this node has lacked what a peer announced.", "origin")
	descHeadAge    = desc("federation_head_age_seconds", "Seconds since a peer's last verified word.", "origin")
	descEpoch      = desc(
		"federation_epoch_timestamp_seconds",
		"When the epoch of a peer began that is shown here, Unix seconds; another one tells of a restore there.",
		"origin",
	)
	descWatches = desc("watches", "Clients that watch the directory at this node.")
	descSVID    = desc("svid_remaining_seconds", "Seconds until the node's SVID ends; negative once it has.")
	descProbed  = desc(
		"probed_registrations",
		"Registrations whose agents were asked what they are, by what came of it last.",
		"state",
	)
	descTrouble = desc(
		"identity_failing",
		"1 while the node's SVID or its domain's bundle can't be renewed, the last good ones being in use, and once the SVID has ended.",
	)
	descTrail = desc(
		"audit_failing",
		"1 while the audit trail can't be written, without which no change is made here.",
	)
	descBundleBad = desc(
		"bundle_failing",
		"1 while a peer's bundle can't be had from its endpoint; the last good one is in use.",
		"origin",
	)
	descBytes = desc(
		"federation_bytes_total",
		"Bytes of bodies that a peer's nodes answered (in) and were answered (out).",
		"origin",
		"way",
	)
	descGossip = desc(
		"gossip_bytes_total",
		"Bytes that a peer's nodes gossiped to this one (in) and that it gossiped to them (out).",
		"origin",
		"way",
	)
	descStalled = desc(
		"federation_store_stalled_seconds",
		"How long the disk of the federation store has not answered; 0 while it does. Alert on anything above 0.",
	)
	descPanics = desc(
		"panics_contained_total",
		"Panics on foreign bytes that were contained, by the place in the program; each is a bug to report.",
		"where",
	)
	descOverQuota = desc(
		"federation_over_quota",
		"A peer's registrations for which its quotas have no room.",
		"origin",
	)
	descUnsupported = desc(
		"federation_unsupported",
		"1 while a peer announces what this release can't read; upgrade this node.",
		"origin",
	)
	descUnopened = desc(
		"federation_unopened_records",
		"A peer's records that are held until a later release can read them, by their format.",
		"origin",
		"format",
	)
	descQuotaRegs = desc(
		"quota_registrations",
		"Registrations of the own domain, which limits.registrations_per_domain bounds.",
	)
	descQuotaRegsMax = desc(
		"quota_registrations_limit",
		"Registrations that the own domain may have; 0 for any number.",
	)
	descQuotaBytes = desc(
		"quota_bytes",
		"Bytes of the own domain's documents as they were written, which limits.bytes_per_domain bounds.",
	)
	descQuotaBytesMax = desc("quota_bytes_limit", "Bytes of documents that the own domain may have; 0 for any number.")
	descQuotaShare    = desc(
		"quota_largest_owner_ratio",
		"The part of its quota, from 0 to 1, that the owner uses who uses most of it; exact to a 64th.",
	)
	descPeerRecords = desc(
		"quota_peer_records",
		"Records held of a peer, which limits.records_per_peer or its peering bounds.",
		"origin",
	)
	descPeerRecsMax = desc(
		"quota_peer_records_limit",
		"Records that may be held of a peer; 0 for any number.",
		"origin",
	)
	descPeerBytes = desc(
		"quota_peer_bytes",
		"Bytes of records held of a peer, which limits.bytes_per_peer or its peering bounds.",
		"origin",
	)
	descPeerBytesMax = desc(
		"quota_peer_bytes_limit",
		"Bytes of records that may be held of a peer; 0 for any number.",
		"origin",
	)
	descFound   = desc("discovery_registrations", "Registrations in the discovery index.")
	descTerms   = desc("discovery_terms", "Words and tags in the discovery index.")
	descLeftOut = desc(
		"discovery_left_out_total",
		"Registrations, and words of registrations, that the discovery index had no room for.",
	)
	descMessages = desc(
		"federation_messages_total",
		"Pages, heads and records that name an origin, by what the gate said, whoever brought them.",
		"origin",
		"code",
	)
	descRefusing = desc(
		"federation_refused_total",
		"Messages that a peer's nodes brought and that were refused, whomever they name.",
		"peer",
		"code",
	)
)

// Describe implements prometheus.Collector.
func (s state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLeader, descHeard, descRevision, descLedger, descRegistrations, descLag, descLagSeconds, descHeadAge, descEpoch, descWatches, descSVID, descTrouble, descTrail, descBundleBad, descProbed, descFound, descTerms, descLeftOut, descMessages, descRefusing, descBytes, descGossip, descOverQuota,
		descUnsupported, descUnopened,
		descQuotaRegs, descQuotaRegsMax, descQuotaBytes, descQuotaBytesMax, descQuotaShare,
		descPeerRecords, descPeerRecsMax, descPeerBytes, descPeerBytesMax, descStalled, descPanics} {
		ch <- d
	}
}

// identityFails reports whether an operator is to see to the node's identity. An SVID that
// has ended, and that nothing has tried to renew, is no trouble of any file.
func identityFails(s *trust.Source, now time.Time) bool {
	return s.Trouble() != nil || !now.Before(s.SVID().Certificates[0].NotAfter)
}

// Collect implements prometheus.Collector.
func (s state) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n := s.n
	leaves, _ := n.store.Ledger()
	gauge(descLeader, oneIf(n.store.IsLeader()))
	gauge(descHeard, n.store.Heard().Seconds())
	gauge(descRevision, float64(n.store.Position().Revision))
	gauge(descLedger, float64(leaves))
	gauge(descRegistrations, float64(n.view.Own().Len()), n.cfg.TrustDomain.Name())
	for _, td := range n.view.Origins() {
		gauge(descRegistrations, float64(n.view.Origin(td).Len()), td.Name())
	}
	quotas := n.quotas()
	gauge(descQuotaRegs, float64(quotas.Registrations))
	gauge(descQuotaRegsMax, float64(quotas.RegistrationsLimit))
	gauge(descQuotaBytes, float64(quotas.Bytes))
	gauge(descQuotaBytesMax, float64(quotas.BytesLimit))
	gauge(descQuotaShare, quotas.LargestShare)
	gauge(descSVID, time.Until(n.source.SVID().Certificates[0].NotAfter).Seconds())
	gauge(descTrouble, oneIf(identityFails(n.source, time.Now())))
	gauge(descTrail, oneIf(n.trail.Err() != nil))
	gauge(descWatches, float64(n.face.Watches()))
	gauge(descStalled, n.mesh.StoreStalled().Seconds())
	for _, place := range contain.Places {
		ch <- prometheus.MustNewConstMetric(descPanics, prometheus.CounterValue, float64(n.panics.Count(place)), string(place))
	}
	size := n.finder.Size()
	gauge(descFound, float64(size.Registrations))
	gauge(descTerms, float64(size.Terms))
	ch <- prometheus.MustNewConstMetric(descLeftOut, prometheus.CounterValue, float64(size.LeftOut))
	if n.findings != nil {
		for state, count := range n.findings.Count() {
			gauge(descProbed, float64(count), string(state))
		}
	}
	s.collectPeers(ch, gauge)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (s state) collectPeers(ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string)) {
	for _, p := range s.n.mesh.Peers() {
		name := p.Domain.Name()
		gauge(descLag, float64(p.LagRevisions), name)
		gauge(descLagSeconds, p.LagSeconds, name)
		gauge(descHeadAge, p.HeadAge.Seconds(), name)
		if e := p.Position.Epoch; e > 0 {
			gauge(descEpoch, float64(e), name)
		}
		gauge(descBundleBad, oneIf(s.n.keeper.of(p.Domain).err != nil), name)
		for way, bytes := range map[string]uint64{"in": p.BytesIn, "out": p.BytesOut} {
			ch <- prometheus.MustNewConstMetric(descBytes, prometheus.CounterValue, float64(bytes), name, way)
		}
		for way, bytes := range map[string]uint64{"in": p.GossipIn, "out": p.GossipOut} {
			ch <- prometheus.MustNewConstMetric(descGossip, prometheus.CounterValue, float64(bytes), name, way)
		}
		gauge(descOverQuota, float64(p.OverQuota), name)
		gauge(descPeerRecords, float64(p.Records), name)
		gauge(descPeerRecsMax, float64(p.RecordsLimit), name)
		gauge(descPeerBytes, float64(p.Bytes), name)
		gauge(descPeerBytesMax, float64(p.BytesLimit), name)
		gauge(descUnsupported, oneIf(p.Unsupported != ""), name)
		for format, records := range p.Unopened {
			gauge(descUnopened, float64(records), name, format)
		}
		for code, count := range p.Received {
			ch <- prometheus.MustNewConstMetric(descMessages, prometheus.CounterValue, float64(count), name, string(code))
		}
		for code, count := range p.Refused {
			ch <- prometheus.MustNewConstMetric(descRefusing, prometheus.CounterValue, float64(count), name, string(code))
		}
	}
}
