package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/egress"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/node/port"
	"github.com/roster-mesh/roster/trust"
)

// Statuses of a Finding.
const (
	StatusOK      = "ok"
	StatusWarning = "warning" // works, and will not for long
	StatusFailed  = "failed"
	StatusUnknown = "unknown" // could not be looked at
)

// A Finding is the result of one check, with the suggested action.
type Finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"`
}

// A diagnosis is one examination of a node from beside it: of its configuration, its
// files, and the answers of this node and the others. It changes nothing, whether the
// node runs or not.
type diagnosis struct {
	cfg      config.Config
	operator *apiclient.Client // asks the node as its operator; nil if there is none
	now      time.Time

	findings    []Finding
	bundles     *trust.Bundles
	svid        *x509svid.SVID
	gatewaySVID *x509svid.SVID // with which agents are called; nil if there is none
	admin       *http.Client
	runs        bool
	isNew       bool // was never started
	peers       []directory.Peering

	// hidesNames leaves agents, and who changed them, out of the findings: those of a support
	// archive go to others, who may not see each agent.
	hidesNames bool
}

// Bounds of an examination.
const (
	askBound   = 5 * time.Second // for one answer
	clockBound = 2 * time.Second // a leader whose clock is further off hands over (rule T2)
)

// Diagnose checks everything that a node needs, in the order in which it needs it. If
// operator is nil, findings that only an operator can get are unknown.
func Diagnose(ctx context.Context, cfg config.Config, operator *apiclient.Client) []Finding {
	d := newDiagnosis(cfg, operator)
	d.run(ctx)

	return d.findings
}

// run makes all checks.
func (d *diagnosis) run(ctx context.Context) {
	for _, check := range []func(context.Context){
		d.identity, d.gateway, d.authorities, d.authorityKeys, d.running, d.ports, d.names, d.disk, d.health, d.trail,
		d.raft, d.peering, d.clocks,
	} {
		check(ctx)
	}
}

// DiagnoseReadiness checks only that the node runs and is ready.
func DiagnoseReadiness(ctx context.Context, cfg config.Config) []Finding {
	d := newDiagnosis(cfg, nil)
	d.running(ctx)

	if d.isNew {
		d.findings = nil
		d.say("node", StatusFailed, "start it with \"roster serve --config FILE\"", "it was never started here")
	}

	return d.findings
}

// JudgeRaft judges how a domain's nodes hold together, as a diagnosis does.
func JudgeRaft(status *wire.RaftStatus) []Finding {
	d := &diagnosis{}
	d.together("raft", status)

	return d.findings
}

func newDiagnosis(cfg config.Config, operator *apiclient.Client) *diagnosis {
	return &diagnosis{
		cfg: cfg, operator: operator, now: time.Now(), bundles: trust.NewBundles(),
		admin: &http.Client{Timeout: askBound, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

func (d *diagnosis) say(check, status, do, format string, args ...any) {
	if status == StatusOK {
		do = ""
	}

	d.findings = append(d.findings, Finding{check, status, directory.HideUserinfo(fmt.Sprintf(format, args...)), do})
}

// identity checks the SVID: that it is a member's, that the domain's bundle certifies
// it, and how long it is valid.
func (d *diagnosis) identity(ctx context.Context) {
	const check = "identity"
	i := d.cfg.Identity
	do := "renew " + i.Cert + " and " + i.Bundle + ", and check the program that renews them"

	var err error
	if i.WorkloadAPI != "" {
		do = "check the Workload API at " + i.WorkloadAPI
		err = d.fromWorkload(ctx)
	} else if err = d.bundles.LoadFile(d.cfg.TrustDomain, i.Bundle); err == nil {
		d.svid, err = x509svid.Load(i.Cert, i.Key)
	}

	if err != nil {
		d.say(check, StatusFailed, do, "%v", err)
		return
	}

	id, end := d.svid.ID, d.svid.Certificates[0].NotAfter

	left := end.Sub(d.now).Round(time.Second)
	switch err := trust.CheckSVID(d.svid.Certificates, d.bundles); {
	// Membership is judged first, because the SVID of a node that isn't listed may be valid.
	case d.cfg.Member(id) == nil:
		d.say(
			check,
			StatusFailed,
			"add it to members, or configure this node's own SVID",
			"%s is not a member",
			id,
		)
	case err != nil:
		d.say(check, StatusFailed, do, "the SVID of %s is not valid: %v", id, err)
	case JudgeSVID(left) != StatusOK:
		d.say(check, JudgeSVID(left), do, "the SVID of %s expires in %v", id, left)
	default:
		d.say(check, StatusOK, "", "%s, until %s (%v)", id, end.UTC().Format(time.RFC3339), left)
	}

	if info, err := os.Stat(i.Key); i.WorkloadAPI == "" && err == nil && info.Mode().Perm()&0o077 != 0 {
		d.say(
			"identity.key",
			StatusWarning,
			"chmod 600 "+i.Key,
			"others may read the private key: its mode is %v",
			info.Mode().Perm(),
		)
	}
}

func (d *diagnosis) fromWorkload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()

	w, err := trust.OpenWorkloadAPI(
		d.cfg.Identity.WorkloadAPI,
		d.bundles,
		func(id spiffeid.ID) bool { return d.cfg.Member(id) != nil },
	)
	if err != nil {
		return err
	}

	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx, slog.New(slog.DiscardHandler)) }()

	// Run writes into the diagnosis's bundles, so it must have ended before they are read.
	defer func() { cancel(); <-done }()

	source, err := w.Source(ctx)
	if err == nil {
		d.svid = source.SVID()
	}

	if gateway := w.Gateway(); gateway != nil {
		d.gatewaySVID = gateway.SVID()
	}

	return err
}

// authorities checks when the CAs of the domain and of its peers expire.
func (d *diagnosis) authorities(context.Context) {
	d.ends("bundle", d.cfg.TrustDomain, "have the domain's CA renewed, and its bundle with it")

	files, err := peering.ReadFiles(filepath.Join(d.cfg.Data, "peers"))
	if err != nil {
		d.say("bundle of peers", StatusFailed, "delete the damaged file; the domain's log restores it", "%v", err)
	}

	for _, peering := range files {
		name := "bundle of " + peering.Domain.Name()
		if err := d.bundles.Set(peering.Domain, peering.Bundle); err != nil {
			d.say(name, StatusFailed, "ask its operator for a valid bundle", "%v", err)
			continue
		}

		d.peers = append(d.peers, peering)
		d.ends(name, peering.Domain, newAuthority(peering))
	}
}

func (d *diagnosis) ends(check string, td spiffeid.TrustDomain, do string) {
	b, err := d.bundles.GetX509BundleForTrustDomain(td)
	if err != nil {
		d.say(check, StatusUnknown, do, "%v", err)
		return
	}

	last := d.bundles.Expiry(td, d.now)
	count, until := len(b.X509Authorities()), last.UTC().Format(time.RFC3339)

	switch status := JudgeAuthority(last.Sub(d.now)); status {
	case StatusFailed:
		d.say(check, status, do, "none of %d CA certificates is in force", count)
	case StatusWarning:
		d.say(check, status, do, "the last of %d CA certificates expires at %s", count, until)
	default:
		d.say(check, status, "", "CA certificates: %d; in force until %s", count, until)
	}
}

// newAuthority returns the way to get a peer's new CA.
func newAuthority(peering directory.Peering) string {
	if peering.Endpoint.IsZero() {
		return "ask its operator; it has no bundle endpoint here, so a new CA takes a new invitation, or " +
			"\"roster peer set " + peering.Domain.Name() + " --bundle-endpoint URL\""
	}

	return "ask its operator to have its CA renewed; a new bundle is had from " + peering.Endpoint.URL
}

// running asks the node how it is.
func (d *diagnosis) running(ctx context.Context) {
	const check = "node"

	base := "http://" + d.cfg.Listen.Admin

	// A node that still waits for its identity answers there, too.
	if _, err := d.get(ctx, d.admin, base+"/healthz"); err != nil {
		d.notRunning(check)
		return
	}

	d.runs = true

	resp, err := d.get(ctx, d.admin, base+"/readyz")
	switch {
	case err != nil:
		d.say(check, StatusUnknown, "ask again", "it runs, but its readiness is unknown: %v", err)
	case resp.status != http.StatusOK:
		d.say(
			check,
			StatusFailed,
			"check its log for the failed check named here",
			"it runs and is not ready: %s",
			strings.TrimSpace(resp.body),
		)
	default:
		d.say(check, StatusOK, "", "it runs and is ready")
	}
}

// notRunning says that the node doesn't run, which is as it should be before its first start.
func (d *diagnosis) notRunning(check string) {
	if _, err := os.Stat(d.cfg.ConsensusDir()); errors.Is(err, fs.ErrNotExist) {
		d.isNew = true
		d.say(check, StatusOK, "", "not started yet; the other checks are those before a first start")

		return
	}

	d.say(
		check,
		StatusFailed,
		"start it with \"roster serve --config FILE\"",
		"not running: nothing answers at %s",
		d.cfg.Listen.Admin,
	)
}

// ports checks that a running node answers on its listening addresses, or that a stopped
// node could listen there.
func (d *diagnosis) ports(ctx context.Context) {
	list := []struct{ key, address string }{{"listen.api", d.cfg.Listen.API}, {"listen.cluster", d.cfg.Listen.Cluster}}
	if !d.runs {
		// A running node has answered at this address already.
		list = append(list, struct{ key, address string }{"listen.admin", d.cfg.Listen.Admin})
	}

	for key, address := range map[string]string{"listen.health": d.cfg.Listen.Health,
		"listen.metrics": d.cfg.Listen.Metrics} {
		if address == "" {
			continue
		}

		list = append(list, struct{ key, address string }{key, address})

		if !egress.IsLoopback(address) {
			d.say(key, StatusWarning, "restrict access by a firewall",
				"other machines can reach %s, which has no authentication", address)
		}
	}

	if d.cfg.Gossip.Enabled {
		list = append(list, struct{ key, address string }{"listen.gossip", d.cfg.Listen.Gossip})
	}

	var checks []func(*diagnosis)
	for _, l := range list {
		checks = append(checks, func(d *diagnosis) { d.port(ctx, l.key, l.address) })
	}

	d.atOnce(checks)
}

// port checks that a running node answers at one listening address, or that a stopped one could listen
// there.
func (d *diagnosis) port(ctx context.Context, key, address string) {
	if d.runs {
		conn, err := (&net.Dialer{Timeout: askBound}).DialContext(ctx, "tcp", config.LocalAddress(address))
		if err != nil {
			d.say(key, StatusFailed, "check its log, and firewalls on the way", "nothing answers at %s: %v",
				address, err)

			return
		}

		_ = conn.Close()
		d.say(key, StatusOK, "", "something answers at %s", address)

		return
	}

	ln, err := net.Listen("tcp", address)
	if err != nil {
		reason := strings.TrimPrefix(port.Explain(key, address, err).Error(), key+": ")
		d.say(key, StatusFailed, "stop the process that listens there, or configure another address",
			"the node could not listen: %s", reason)

		return
	}

	_ = ln.Close()
	d.say(key, StatusOK, "", "%s is free", address)
}

// raft asks how the domain's nodes hold together.
func (d *diagnosis) raft(ctx context.Context) {
	const check = "raft"

	if d.isNew {
		return
	}

	if d.operator == nil {
		d.say(check, StatusUnknown, asOperator, "only operators may read this")
		return
	}

	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()

	status, _, err := d.operator.Operator().Raft(ctx)
	if err != nil {
		d.say(check, StatusUnknown, asOperator, "%v", err)
		return
	}

	d.together(check, status)
	d.quotas(status.Quotas)
}

// quotas checks the share of its quotas that the domain uses.
func (d *diagnosis) quotas(status wire.QuotaStatus) {
	const check = "quotas"
	for _, use := range metrics.DomainQuotas(status) {
		switch status := JudgeQuota(use); status {
		case StatusFailed:
			d.say(check, status, "raise the limit on all nodes, or find the owner of most registrations",
				"%s is used up: %d of %d; registrations are refused", use.Name, use.Used, use.Limit)
		case StatusWarning:
			d.say(check, status, "raise the limit on all nodes, or find the owner of most registrations",
				"%.0f %% of %s is used: %d of %d", 100*use.Share(), use.Name, use.Used, use.Limit)
		}
	}

	if status.LargestShare >= metrics.QuotaWarning {
		d.say(
			check,
			StatusWarning,
			"raise its quota under limits.callers, if it should have more",
			"an owner uses over %.0f %% of limits.registrations_per_owner or limits.bytes_per_owner",
			100*metrics.QuotaWarning,
		)
	}

	// If the last finding is of another check, nothing was reported above.
	if len(d.findings) == 0 || d.findings[len(d.findings)-1].Check != check {
		d.say(
			check,
			StatusOK,
			"",
			"registrations: %d, bytes of their documents: %d, owners: %d",
			status.Registrations,
			status.Bytes,
			status.Owners,
		)
	}
}

// memberAddresses compares the addresses of members in the configuration with those by which Raft
// reaches them.
func (d *diagnosis) memberAddresses(status *wire.RaftStatus) {
	for _, peer := range status.Peers {
		id, err := spiffeid.FromString(peer.ID)
		if err != nil {
			continue
		}

		if listed := d.cfg.Member(id); listed != nil && listed.Cluster != peer.Address {
			d.say("address of "+peer.ID, StatusWarning,
				"correct members in the file, or start that node with the address there",
				"members says %s, and the domain's members reach it at %s", listed.Cluster, peer.Address)
		}
	}
}

func (d *diagnosis) together(check string, status *wire.RaftStatus) {
	d.memberAddresses(status)

	for _, peer := range status.Peers {
		if peer.Duplicate != "" {
			d.say("identity of "+peer.ID, StatusFailed,
				"stop the wrong one; a cloned machine needs its own identity and an empty disk",
				"two processes use this identity: %s, %s", peer.Address, peer.Duplicate)
		}
	}

	voters := 0

	var silent []string
	for _, peer := range status.Peers {
		if !peer.Voter {
			continue
		}

		voters++

		if peer.State == wire.RaftPeerSilent {
			silent = append(silent, peer.ID)
		}
	}

	switch {
	case status.Leader == "" && voters == 0:
		d.say(
			check,
			StatusFailed,
			"start the other nodes of a new domain; a running one lets this node in after "+
				"\"roster raft admit ID\" at a member",
			"the domain has not begun, or this node isn't a member of it yet",
		)
	case status.Leader == "":
		d.say(
			check,
			StatusFailed,
			"start a majority of the domain's nodes, and check that they reach each other at listen.cluster; if it "+
				"is lost permanently, see \"roster snapshot salvage --help\"",
			"no leader is known; %d nodes vote",
			voters,
		)
	case len(silent) > 0:
		d.say(
			check,
			StatusWarning,
			"start it, or remove it with \"roster raft remove\"",
			"%s leads %s; %d more may fail before writes stop; silent: %s",
			status.Leader,
			countVoters(voters),
			max(0, (voters-1)/2-len(silent)),
			strings.Join(silent, ", "),
		)
	default:
		d.say(check, StatusOK, "", "%s leads %s", status.Leader, countVoters(voters))
	}
}

func countVoters(n int) string {
	if n == 1 {
		return "1 voter"
	}

	return fmt.Sprintf("%d voters", n)
}

const asOperator = "give --cert and --key of an operator, and --address where the node is reached elsewhere"

// peering asks how the peers stand.
func (d *diagnosis) peering(ctx context.Context) {
	if d.isNew {
		return
	}

	if d.operator == nil {
		d.say("peers", StatusUnknown, asOperator, "only operators may read this")
		return
	}

	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()

	peers, _, err := d.operator.Operator().Peers(ctx)
	if err != nil {
		d.say("peers", StatusUnknown, asOperator, "%v", err)
		return
	}

	for _, p := range peers {
		d.peer(p)
	}

	if len(peers) == 0 {
		d.say("peers", StatusOK, "", "none")
	}
}

// peer checks one peering: its state, and the behaviour of its domain's nodes.
func (d *diagnosis) peer(p wire.Peer) {
	if p.State == "terminated" {
		return
	}

	d.peerState(p)
	d.peerAddresses(p)
	d.peerNodes(p)
	d.peerLedger(p)
	d.peerQuotas(p)
	d.peerBundleEndpoint(p)
	d.peerMessages(p)
}

// peerState checks the state of a peering, and this node's lag behind the peer.
func (d *diagnosis) peerState(p wire.Peer) {
	check := "peer " + p.Domain
	lag := fmt.Sprintf("%d revisions and %.1f s behind, %s", p.LagRevisions, p.LagSeconds, p.PageText())

	reach := "see that its nodes are reached at " + strings.Join(
		p.Addresses,
		", ",
	) + "; where they have moved: \"roster peer set " + p.Domain + " --nodes URL,…\""
	status := JudgePeer(&p)

	switch p.State {
	case "active", "behind":
		if status == StatusOK {
			d.say(check, status, "", "active, %s", lag)
			break
		}

		d.say(check, status, reach, "%s, and %d records are missing: %s", lag, p.Missing,
			cmp.Or(p.LastError, "no error"))
	case "pending":
		do, found := "\"roster peer accept\" at the other side", "pending"
		if p.LastError != "" {
			do, found = "\"roster peer invite\" or \"roster peer accept\" again", "pending: "+p.LastError
		}

		d.say(check, status, do+", or \"roster peer remove "+p.Domain+"\" here", "%s", found)
	case "frozen":
		d.say(check, status, "read \"roster peer evidence "+p.Domain+"\", and release it once the cause is known",
			"%s", p.FrozenText())
	case "refused":
		d.say(check, status, p.RefusalAdvice(d.cfg.TrustDomain.Name()), "it refuses this domain's records: %s",
			p.RefusalText())
	case "unsupported":
		d.say(check, status, "upgrade this node", "%s", p.Unsupported)
	case "connecting":
		d.say(check, status, "ask again in ten seconds", "the node has just started, and the peer has not "+
			"answered yet")
	case "not_exported":
		d.say(check, status, "ask its operator to run \"roster peer export "+d.cfg.TrustDomain.Name()+"\"",
			"it doesn't export to this domain yet")
	default:
		d.say(check, status, reach, "%s, %s: %s", p.StateText(), lag, cmp.Or(p.LastError, "no message from it yet"))
	}
}

// peerAddresses names the addresses of a peer's nodes that the peering doesn't have.
func (d *diagnosis) peerAddresses(p wire.Peer) {
	if len(p.StatedAddresses) > 0 {
		d.say("addresses of "+p.Domain, StatusOK, "", "its nodes also state the addresses %s, which are used; "+
			"once its operator confirms them, make them permanent with \"roster peer set %s --nodes URL,…\"",
			strings.Join(p.StatedAddresses, ", "), p.Domain)
	}
}

// peerNodes names the nodes of a peer that other nodes of it contradict.
func (d *diagnosis) peerNodes(p wire.Peer) {
	for _, node := range p.ContradictedNodes {
		d.say("nodes of "+p.Domain, StatusFailed, "call its operator: the key of that node may be stolen "+
			"(docs/runbooks.md#rosterpeercontradicted)", "%s", node)
	}
}

// peerLedger names the nodes to which a peer has shown another ledger.
func (d *diagnosis) peerLedger(p wire.Peer) {
	if len(p.LedgerDiffers) > 0 {
		d.say("ledger of "+p.Domain, StatusFailed, "keep both checkpoints and call its operator "+
			"(docs/runbooks.md#rosterpeerledgerdiffers)", "another ledger than this node has copied was shown to %s",
			strings.Join(p.LedgerDiffers, ", "))
	}
}

// peerQuotas checks the share of its quotas that a peer's records use.
func (d *diagnosis) peerQuotas(p wire.Peer) {
	if p.Shed {
		d.say("records of "+p.Domain, StatusFailed, "give the node more memory, or lower the quotas of its peers: "+
			"\"roster peer set "+p.Domain+" --records N --bytes N\"",
			"the node is short of memory and doesn't show them")
	}

	for _, use := range metrics.PeerQuotas(p.Domain, p.Records, p.RecordsLimit, p.Bytes, p.BytesLimit) {
		if JudgeQuota(use) != StatusOK {
			d.say("quota of "+p.Domain, StatusWarning,
				"if it should have more: \"roster peer set "+p.Domain+" --records N --bytes N\"",
				"%.0f %% of the %s that may be held are: %d of %d; %d are left out",
				100*use.Share(), use.Name, use.Used, use.Limit, p.OverQuota)
		}
	}
}

// peerBundleEndpoint checks whether the last request to a peer's bundle endpoint failed.
func (d *diagnosis) peerBundleEndpoint(p wire.Peer) {
	switch {
	case p.BundleError != "":
		d.say(
			"bundle endpoint of "+p.Domain,
			StatusFailed,
			"ask its operator to repair "+p.BundleEndpoint+", or set its new address: \"roster peer set "+p.Domain+
				" --bundle-endpoint URL\"; the last good bundle stays in force",
			"%s",
			p.BundleError,
		)
	case !p.BundleChecked.IsZero():
		d.say(
			"bundle endpoint of "+p.Domain,
			StatusOK,
			"",
			"fetched %v ago",
			d.now.Sub(p.BundleChecked).Round(time.Second),
		)
	}
}

// peerMessages checks whether a peer's nodes sent messages that no honest node sends.
func (d *diagnosis) peerMessages(p wire.Peer) {
	var bad []string
	for _, code := range []protocol.Code{protocol.CodeFormat, protocol.CodeHeader, protocol.CodeJSON,
		protocol.CodeSignature, protocol.CodeRecord} {
		if n := p.Refused[string(code)]; n > 0 {
			bad = append(bad, fmt.Sprintf("%d for %s", n, code))
		}
	}

	if len(bad) > 0 {
		d.say(
			"messages from "+p.Domain,
			StatusWarning,
			"ask its operator to check its nodes; \"roster peer remove "+p.Domain+"\" ends the peering",
			"its nodes sent messages that no honest node sends, refused since this node started: %s",
			strings.Join(bad, ", "),
		)
	}
}

// clocks compares this machine's clock with those of the members and of peers' nodes.
func (d *diagnosis) clocks(ctx context.Context) {
	var list []clock
	for _, m := range d.cfg.Members {
		if m.API != "" && (d.svid == nil || m.ID != d.svid.ID) {
			list = append(list, clock{m.API, d.cfg.TrustDomain})
		}
	}

	for _, p := range d.peers {
		for _, a := range p.Addresses[:min(len(p.Addresses), 1)] {
			list = append(list, clock{a, p.Domain})
		}
	}

	var checks []func(*diagnosis)
	for _, c := range list {
		checks = append(checks, func(d *diagnosis) { d.compare(ctx, c) })
	}

	d.atOnce(checks)
}

// atOnce makes checks that wait for an answer at the same time, each with a diagnosis of its own, and
// adds their findings in order.
func (d *diagnosis) atOnce(checks []func(*diagnosis)) {
	parts := make([]diagnosis, len(checks))

	var wg sync.WaitGroup
	for i, check := range checks {
		parts[i] = *d
		parts[i].findings = nil

		wg.Go(func() { check(&parts[i]) })
	}

	wg.Wait()

	for _, part := range parts {
		d.findings = append(d.findings, part.findings...)
	}
}

type clock struct {
	address string
	domain  spiffeid.TrustDomain
}

func (d *diagnosis) compare(ctx context.Context, clock clock) {
	check := "clock of " + clock.address
	t := &http.Transport{
		TLSClientConfig:   trust.ClientTLS(nil, d.bundles, node.AuthorizeNodesOf(clock.domain)),
		DisableKeepAlives: true,
	}
	began := time.Now()
	resp, err := d.get(ctx, &http.Client{Transport: t, Timeout: askBound}, clock.address+"/.well-known/ad")
	took := time.Since(began)

	if err != nil && d.isNew {
		return // the others may not run yet either
	}

	if err != nil {
		d.say(check, StatusUnknown, "check that it runs and is reachable from here", "%v", err)
		return
	}

	date, err := http.ParseTime(resp.date)
	if err != nil {
		d.say(check, StatusUnknown, "", "it doesn't state its time")
		return
	}

	status, off, slack := judgeOffset(date, began, took)
	if status == StatusFailed {
		d.say(check, status, "synchronise both clocks by NTP", "differs by %v from this machine's",
			off.Round(time.Second))
	} else {
		d.say(check, status, "", "within %v of this machine's", (off.Abs() + slack).Round(100*time.Millisecond))
	}
}

type reply struct {
	status     int
	body, date string
}

func (d *diagnosis) get(ctx context.Context, client *http.Client, url string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return reply{}, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b := make([]byte, 4<<10)
	n, _ := resp.Body.Read(b)

	return reply{resp.StatusCode, string(b[:n]), resp.Header.Get("Date")}, nil
}

// Worst returns the worst status of the findings; StatusOK if there are none.
func Worst(findings []Finding) string {
	for _, status := range []string{StatusFailed, StatusUnknown, StatusWarning} {
		if slices.ContainsFunc(findings, func(f Finding) bool { return f.Status == status }) {
			return status
		}
	}

	return StatusOK
}
