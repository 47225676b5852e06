package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/node/disk"
	"github.com/roster-mesh/roster/node/tracing"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/audit"
)

// A Collector reads the state of a node at every scrape, by the table stateMetrics.
type Collector struct {
	Data     string // directory
	Store    *consensus.Store
	View     *index.View
	Source   *trust.Source
	Audit    *audit.Log
	Server   *api.Server
	Mesh     *federation.Mesh
	Panics   *contain.Panics
	Tracing  *tracing.Tracing // nil if it is off
	Finder   *discovery.Finder
	Findings *probe.Findings // nil if nothing is probed
	Bundles  *peering.BundleKeeper
	// Cosigned returns the leaves of the ledger that witnesses have cosigned, if any are asked for.
	Cosigned func() (leaves uint64, asked bool)
}

// A snapshot has the values that several metrics of one scrape share.
type snapshot struct {
	*Collector
	quotas wire.QuotaStatus
	peers  []federation.PeerStatus
	index  discovery.Size
}

// emit adds one value to a scrape.
type emit func(value float64, labels ...string)

// A stateMetric is a metric with the function that reads it.
type stateMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*snapshot, emit)
}

func gauge(name, help string, read func(*snapshot, emit), labels ...string) stateMetric {
	return stateMetric{newDesc(name, help, labels), prometheus.GaugeValue, read}
}

func counter(name, help string, read func(*snapshot, emit), labels ...string) stateMetric {
	return stateMetric{newDesc(name, help, labels), prometheus.CounterValue, read}
}

func newDesc(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// value reads a metric without labels.
func value(read func(*snapshot) float64) func(*snapshot, emit) {
	return func(s *snapshot, emit emit) { emit(read(s)) }
}

// held reads how much of a pool is taken.
func held(pool admission.Pool) func(*snapshot, emit) {
	return value(func(s *snapshot) float64 { return float64(s.Server.Pools().Held(pool)) })
}

// perPeer reads a metric with the label origin.
func perPeer(read func(federation.PeerStatus) float64) func(*snapshot, emit) {
	return func(s *snapshot, emit emit) {
		for _, p := range s.peers {
			emit(read(p), p.Domain.Name())
		}
	}
}

// perPeerUnlessZero is like perPeer, without the zeros: a node has many peers, and few of them in trouble.
func perPeerUnlessZero(read func(federation.PeerStatus) float64) func(*snapshot, emit) {
	return func(s *snapshot, emit emit) {
		for _, p := range s.peers {
			if value := read(p); value != 0 {
				emit(value, p.Domain.Name())
			}
		}
	}
}

var stateMetrics = []stateMetric{
	// The domain's consensus.
	gauge("raft_is_leader", "1 on the domain's Raft leader.",
		value(func(s *snapshot) float64 { return oneIf(s.Store.IsLeader()) })),
	gauge("raft_leader_last_contact_seconds", "Time since the last contact with the Raft leader; 0 on the leader.",
		value(func(s *snapshot) float64 { return s.Store.Heard().Seconds() })),
	gauge("raft_member_silent", "1 while the leader has received nothing of a member for three seconds, else 0; "+
		"only the leader has it.", (*snapshot).silentMembers, "member"),
	gauge("raft_member_duplicate", "1 while a second process uses a member's identity, as that of a cloned machine, "+
		"else 0; only the leader has it.", (*snapshot).duplicateMembers, "member"),
	gauge("applied_revision", "Last applied revision of the own domain.",
		value(func(s *snapshot) float64 { return float64(s.Store.Position().Revision) })),
	gauge("ledger_leaves", "Leaves of the own domain's ledger.",
		value(func(s *snapshot) float64 { leaves, _ := s.Store.Ledger(); return float64(leaves) })),
	gauge("ledger_incomplete", "1 while entries of the own domain's ledger are missing or damaged on this node, "+
		"which asks the other members for them, else 0.",
		value(func(s *snapshot) float64 { return oneIf(!s.Store.Logs.Whole()) })),
	gauge("ledger_cosigned_leaves", "Leaves of the own domain's ledger under the newest checkpoint that its witnesses "+
		"have cosigned; absent while none are asked for.", (*snapshot).cosignedLeaves),
	gauge("clock_skew_seconds", "Time by which this node's clock is ahead of its leader's, or behind if negative, "+
		"while that is too much to be ready; else 0.",
		value(func(s *snapshot) float64 { return s.Store.Clock().Skew.Seconds() })),
	gauge("clock_step_seconds", "Time by which this machine's clock is ahead of the domain's time, or behind if "+
		"negative, since a step that nothing has confirmed; else 0.",
		value(func(s *snapshot) float64 { return s.Store.Clock().Step.Seconds() })),
	gauge("clock_behind_seconds", "On the domain's Raft leader, the time by which its clock is behind the committed "+
		"time, if that is over 2 s; else 0.",
		value(func(s *snapshot) float64 { return s.Store.Clock().Behind.Seconds() })),
	gauge("disk_free_bytes", "Free space on the disk of the data directory.",
		(*snapshot).diskFree),
	gauge("disk_free_ratio", "Free share of the disk of the data directory, from 0 to 1, exact to a hundredth.",
		(*snapshot).diskFreeRatio),
	gauge("registrations", "Registrations held, by origin, including expired ones that are not removed yet.",
		(*snapshot).registrations, "origin"),
	gauge("watch_clients", "Clients that watch the directory at this node.",
		held(admission.WatchPool)),
	gauge("request_bytes_in_flight", "Bytes of request bodies that are being read or worked on, limited by "+
		"limits.request_bytes.", held(admission.RequestBytesPool)),
	gauge("answer_bytes_unread", "Bytes of agents' answers, and of those that clients have not read; limited by "+
		"limits.answer_bytes.", held(admission.AnswerBytesPool)),
	gauge("requests_in_progress", "Requests in progress, by the pool of which they take a place.",
		(*snapshot).requestsInProgress, "pool"),
	counter("panics_contained_total", "Panics on foreign bytes that were contained, by place in the program; "+
		"each is a bug to report.", (*snapshot).containedPanics, "place"),
	counter("trace_spans_total", "Spans of traces, by fate: exported, or lost because the queue was full, the "+
		"collector was not reached or failed, or it rejected them; 0 while traces are off.",
		(*snapshot).traceSpans, "fate"),

	// Identity and audit.
	gauge("svid_remaining_seconds", "Time until the node's SVID expires; negative afterwards.",
		value(func(s *snapshot) float64 { return time.Until(s.Source.SVID().Certificates[0].NotAfter).Seconds() })),
	gauge("svid_lifetime_seconds", "Lifetime of the node's SVID, from its issue to its end.",
		value(func(s *snapshot) float64 { return svidLifetime(s.Source).Seconds() })),
	gauge("identity_failing", "1 while the node's SVID or its domain's bundle can't be renewed and the last valid "+
		"ones are in use, and after the SVID has expired.",
		value(func(s *snapshot) float64 { return oneIf(identityFails(s.Source, time.Now())) })),
	gauge("audit_failing", "1 while the audit log can't be written; no change is accepted here meanwhile.",
		value(func(s *snapshot) float64 { return oneIf(s.Audit.Err() != nil) })),
	counter("audit_lines_removed_total", "Lines of the audit log that were removed because audit.files were full, "+
		"and not for their age; archive the log, or raise audit.size and audit.files.",
		value(func(s *snapshot) float64 { return float64(s.Audit.Outgrown()) })),

	gauge("registrations_unconfirmed", "Registrations of the own domain that were restored from a backup and that "+
		"their owners have not refreshed since; peers don't have them.",
		value(func(s *snapshot) float64 { return float64(s.Store.Unconfirmed()) })),

	// Quotas.
	gauge("quota_registrations", "Registrations of the own domain, limited by limits.registrations_per_domain.",
		value(func(s *snapshot) float64 { return float64(s.quotas.Registrations) })),
	gauge("quota_registrations_limit", "Limit of registrations of the own domain; 0 is no limit.",
		value(func(s *snapshot) float64 { return float64(s.quotas.RegistrationsLimit) })),
	gauge("quota_bytes", "Bytes of the own domain's documents as registered, limited by limits.bytes_per_domain.",
		value(func(s *snapshot) float64 { return float64(s.quotas.Bytes) })),
	gauge("quota_bytes_limit", "Limit of bytes of the own domain's documents; 0 is no limit.",
		value(func(s *snapshot) float64 { return float64(s.quotas.BytesLimit) })),
	gauge("quota_largest_owner_ratio", "Largest share of its quota that an owner uses, from 0 to 1, exact to a 64th.",
		value(func(s *snapshot) float64 { return s.quotas.LargestShare })),
	gauge("quota_peer_records", "Records held of a peer, limited by limits.records_per_peer or its peering.",
		perPeer(func(p federation.PeerStatus) float64 { return float64(p.Records) }), "origin"),
	gauge("quota_peer_records_limit", "Limit of records held of a peer; 0 is no limit. Without an origin it is "+
		"that of all peers whose peering has none of its own.", (*snapshot).recordsLimits, "origin"),
	gauge("quota_peer_bytes", "Bytes of records held of a peer, limited by limits.bytes_per_peer or its peering.",
		perPeer(func(p federation.PeerStatus) float64 { return float64(p.Bytes) }), "origin"),
	gauge("quota_peer_bytes_limit", "Limit of bytes of records held of a peer; 0 is no limit. Without an origin it is "+
		"that of all peers whose peering has none of its own.", (*snapshot).bytesLimits, "origin"),

	// Federation.
	gauge("federation_lag_revisions", "Revisions that a peer has announced and this node lacks.",
		perPeer(func(p federation.PeerStatus) float64 { return float64(p.LagRevisions) }), "origin"),
	gauge("federation_lag_seconds", "Time for which this node has lacked revisions that a peer announced.",
		perPeer(func(p federation.PeerStatus) float64 { return p.LagSeconds }), "origin"),
	gauge("federation_head_age_seconds", "Time since the last verified head of a peer.",
		perPeer(func(p federation.PeerStatus) float64 { return p.HeadAge.Seconds() }), "origin"),
	gauge("federation_page_age_seconds", "Time since the issue of the last verified page of a peer; an idle domain "+
		"issues none.", (*snapshot).pageAges, "origin"),
	gauge("federation_checkpoint_age_seconds", "Time since the last verified checkpoint of an active peer's ledger "+
		"that is not behind the one before. Absent for less than two minutes.", (*snapshot).checkpointAges, "origin"),
	gauge("federation_ledger_differs", "Nodes of this domain and of peers that were shown another ledger of an active "+
		"peer than this node. Absent for none.",
		perPeerUnlessZero(func(p federation.PeerStatus) float64 { return float64(len(p.LedgerDiffers)) }), "origin"),
	gauge("peer_up", "1 if a node of the active peer has answered this node within nine seconds, else 0.",
		(*snapshot).peersUp, "origin"),
	gauge("peer_refuses", "1 while a peer takes nothing from this domain, by how it sees this domain: frozen, none, "+
		"certificate, unreachable or failing. Absent at other times.", (*snapshot).refusingPeers, "origin", "reason"),
	gauge("federation_contradicted_nodes", "Nodes of a peer that other nodes of it contradict, "+
		"by what this node makes "+
		"of it: it refuses their word (distrusted), or too few nodes answer to tell who is right (undecided). The key "+
		"of one may be stolen. Absent for none.", (*snapshot).contradictedNodes, "origin", "verdict"),
	gauge("federation_unconfirmed", "Registrations of a peer that for over a minute only one of its nodes has "+
		"announced, or that are in no ledger which another one signs. The key of that node may be stolen. Absent for "+
		"none.",
		perPeerUnlessZero(func(p federation.PeerStatus) float64 { return float64(p.Unconfirmed) }), "origin"),
	gauge("federation_shed", "1 while the registrations of a peer are not shown, because this node is short of "+
		"memory; absent at other times.",
		perPeerUnlessZero(func(p federation.PeerStatus) float64 { return oneIf(p.Shed) }), "origin"),
	gauge("federation_frozen", "1 while a peer is frozen because it contradicted itself; this node has evidence. "+
		"Absent at other times.",
		perPeerUnlessZero(func(p federation.PeerStatus) float64 {
			return oneIf(p.State == string(directory.PeeringFrozen))
		}), "origin"),
	gauge("federation_epoch_timestamp_seconds", "Start of the epoch of a peer, in Unix seconds; it changes with a "+
		"restore there.",
		perPeerUnlessZero(func(p federation.PeerStatus) float64 { return float64(p.Position.Epoch) }), "origin"),
	gauge("federation_over_quota_registrations", "Registrations of a peer that its quotas exclude; absent for none.",
		perPeerUnlessZero(func(p federation.PeerStatus) float64 { return float64(p.OverQuota) }), "origin"),
	gauge("federation_unsupported", "1 while a peer announces a format that this release can't read; "+
		"upgrade this node. Absent at other times.",
		perPeerUnlessZero(func(p federation.PeerStatus) float64 { return oneIf(p.Unsupported != "") }), "origin"),
	gauge("federation_unopened_records", "Records of a peer that are held until a later release can read them, "+
		"by format.", (*snapshot).unopened, "origin", "format"),
	counter("federation_messages_total", "Pages, heads and records that name an origin, by result of the "+
		"verification, whichever node sent them.", (*snapshot).messages, "origin", "code"),
	counter("federation_messages_refused_total", "Messages from a peer's nodes that were refused, by reason.",
		(*snapshot).refusals, "peer", "code"),
	counter("federation_bytes_total", "Bytes of response bodies received from a peer's nodes (in) and sent to "+
		"them (out).", (*snapshot).bytes, "origin", "direction"),
	counter("gossip_bytes_total", "Bytes of gossip received from a peer's nodes (in) and sent to them (out).",
		(*snapshot).gossipBytes, "origin", "direction"),
	gauge("federation_store_stalled_seconds", "Time for which the disk of the federation store has not answered; "+
		"alert on a value over 0.",
		value(func(s *snapshot) float64 { return s.Mesh.StoreStalled().Seconds() })),
	gauge("bundle_failing", "1 while a peer's bundle can't be fetched from its endpoint and the last valid one is "+
		"in use; absent at other times.", (*snapshot).bundleFailures, "origin"),

	// Discovery and probes.
	gauge("discovery_registrations", "Registrations in the discovery index.",
		value(func(s *snapshot) float64 { return float64(s.index.Registrations) })),
	gauge("discovery_terms", "Words and tags in the discovery index.",
		value(func(s *snapshot) float64 { return float64(s.index.Terms) })),
	counter("discovery_dropped_total", "Registrations, and words of registrations, for which the discovery index "+
		"had no room.", value(func(s *snapshot) float64 { return float64(s.index.LeftOut) })),
	gauge("probed_registrations", "Registrations by the result of their last probe.",
		(*snapshot).probes, "state"),
}

func (s *snapshot) silentMembers(emit emit) {
	for _, member := range s.ledMembers() {
		if !member.Leader {
			emit(oneIf(member.State == consensus.ContactSilent), member.ID.String())
		}
	}
}

func (s *snapshot) cosignedLeaves(emit emit) {
	if leaves, asked := s.Cosigned(); asked {
		emit(float64(leaves))
	}
}

func (s *snapshot) duplicateMembers(emit emit) {
	for _, member := range s.ledMembers() {
		emit(oneIf(member.Duplicate != ""), member.ID.String())
	}
}

// ledMembers returns the domain's members on their leader, and none elsewhere.
func (s *snapshot) ledMembers() []consensus.RaftPeer {
	if !s.Store.IsLeader() {
		return nil
	}

	return s.Store.RaftPeers()
}

func (s *snapshot) diskFree(emit emit) {
	if free, _, err := disk.FreeSpace(s.Data); err == nil {
		emit(float64(free))
	}
}

func (s *snapshot) diskFreeRatio(emit emit) {
	if _, percent, err := disk.FreeSpace(s.Data); err == nil {
		emit(float64(percent) / 100)
	}
}

func (s *snapshot) requestsInProgress(emit emit) {
	pools := s.Server.Pools()

	emit(float64(pools.Held(admission.RequestPool)), "requests")
	emit(float64(pools.Held(admission.WatchPool)), "watches")
	emit(float64(pools.Held(admission.InvocationPool)), "invocations")
	emit(float64(pools.Held(admission.NodePool)), "nodes")
	emit(float64(pools.Held(admission.AwaitingPool)), "awaiting")
}

func (s *snapshot) registrations(emit emit) {
	emit(float64(s.View.Own().Len()), s.View.Domain().Name())

	for _, td := range s.View.Origins() {
		emit(float64(s.View.Origin(td).Len()), td.Name())
	}
}

func (s *snapshot) containedPanics(emit emit) {
	for _, place := range contain.Places {
		emit(float64(s.Panics.Count(place)), string(place))
	}
}

func (s *snapshot) traceSpans(emit emit) {
	for fate, count := range s.Tracing.Counts() {
		emit(float64(count), fate)
	}
}

func (s *snapshot) pageAges(emit emit) {
	for _, p := range s.peers {
		if !p.LastPage.IsZero() {
			emit(p.PageAge.Seconds(), p.Domain.Name())
		}
	}
}

// peersUp has no value for a peer of which nothing is asked, such as a frozen one.
func (s *snapshot) peersUp(emit emit) {
	for _, p := range s.peers {
		if p.Asked {
			emit(oneIf(p.Up), p.Domain.Name())
		}
	}
}

// checkpointAges has a value for the peers alone whose ledger can't be followed: most have none, so
// that many peers make no more series.
func (s *snapshot) checkpointAges(emit emit) {
	for _, p := range s.peers {
		if p.LedgerAge >= 2*time.Minute {
			emit(p.LedgerAge.Seconds(), p.Domain.Name())
		}
	}
}

func (s *snapshot) refusingPeers(emit emit) {
	for _, p := range s.peers {
		if p.Refusal != "" {
			emit(1, p.Domain.Name(), p.Refusal)
		}
	}
}

func (s *snapshot) contradictedNodes(emit emit) {
	for _, p := range s.peers {
		verdicts := map[string]float64{}
		for _, node := range p.Doubtful {
			verdicts[node.Verdict()]++
		}

		for verdict, nodes := range verdicts {
			emit(nodes, p.Domain.Name(), verdict)
		}
	}
}

func (s *snapshot) unopened(emit emit) {
	for _, p := range s.peers {
		for format, records := range p.Unopened {
			emit(float64(records), p.Domain.Name(), format)
		}
	}
}

func (s *snapshot) messages(emit emit) {
	for _, p := range s.peers {
		emitCodes(emit, p, p.Received)
	}
}

func (s *snapshot) refusals(emit emit) {
	for _, p := range s.peers {
		emitCodes(emit, p, p.Refused)
	}
}

func emitCodes(emit emit, p federation.PeerStatus, counts map[protocol.Code]uint64) {
	for code, count := range counts {
		emit(float64(count), p.Domain.Name(), string(code))
	}
}

func (s *snapshot) bytes(emit emit) {
	for _, p := range s.peers {
		emit(float64(p.BytesIn), p.Domain.Name(), "in")
		emit(float64(p.BytesOut), p.Domain.Name(), "out")
	}
}

func (s *snapshot) gossipBytes(emit emit) {
	for _, p := range s.peers {
		emit(float64(p.GossipIn), p.Domain.Name(), "in")
		emit(float64(p.GossipOut), p.Domain.Name(), "out")
	}
}

func (s *snapshot) bundleFailures(emit emit) {
	for _, p := range s.peers {
		if _, err := s.Bundles.Endpoint(p.Domain); err != nil {
			emit(1, p.Domain.Name())
		}
	}
}

// recordsLimits has a value for all peers, and one for each peer whose limit differs.
func (s *snapshot) recordsLimits(emit emit) {
	common, _ := s.Mesh.PeerQuotas()
	emit(float64(common), "")

	for _, p := range s.peers {
		if p.RecordsLimit != common {
			emit(float64(p.RecordsLimit), p.Domain.Name())
		}
	}
}

// bytesLimits is like recordsLimits.
func (s *snapshot) bytesLimits(emit emit) {
	_, common := s.Mesh.PeerQuotas()
	emit(float64(common), "")

	for _, p := range s.peers {
		if p.BytesLimit != common {
			emit(float64(p.BytesLimit), p.Domain.Name())
		}
	}
}

func (s *snapshot) probes(emit emit) {
	if s.Findings == nil {
		return
	}

	for state, count := range s.Findings.Count() {
		emit(float64(count), string(state))
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range stateMetrics {
		descs <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(values chan<- prometheus.Metric) {
	s := &snapshot{
		Collector: c,
		quotas:    QuotaStatus(c.Store),
		peers:     c.Mesh.Peers(),
		index:     c.Finder.Size(),
	}

	for _, m := range stateMetrics {
		m.read(s, func(value float64, labels ...string) {
			values <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		})
	}
}

// identityFails reports whether an operator must repair the node's identity. An SVID that
// has expired without an attempt to renew it leaves no error of a file.
func identityFails(s *trust.Source, now time.Time) bool {
	return s.Trouble() != nil || !now.Before(s.SVID().Certificates[0].NotAfter)
}

// svidLifetime returns the whole lifetime of the node's SVID.
func svidLifetime(s *trust.Source) time.Duration {
	leaf := s.SVID().Certificates[0]
	return leaf.NotAfter.Sub(leaf.NotBefore)
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}

	return 0
}
