package domain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/node/doctor"
	"github.com/roster-mesh/roster/node/metrics"
)

func statusCommand(session *connect.Session) *cobra.Command {
	var exitCode bool

	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the domain on one screen",
		Long: `Show the state of the domain as the addressed node sees it: a verdict, the node, its
certificate and disk, the members, the peers with the age of the last verified page, and the
quotas. NEXT names the command to run if something needs attention; "roster doctor" runs on the
machine of that node, with the configuration of the node as FILE.

With --exit-code the command exits with 1 if something needs attention, for a monitor or a
script.

This needs an operator's or auditor's identity. "roster doctor" checks a node on its own
machine, even if it doesn't answer.`,
		Args: cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			status := domainStatus{session: session, now: time.Now(), Warnings: []statusWarning{}}
			if err := status.read(ctx, client.Operator()); err != nil {
				return err
			}

			if err := status.askLeader(ctx); err != nil {
				session.Note("The leader, which asks the witnesses of the ledger, was not asked for them: %v", err)
			}

			t := status.table()

			if err := session.PrintValue(&status, "warnings", t); err != nil || !exitCode ||
				status.Verdict.Status == doctor.StatusOK {
				return err
			}

			return cli.Failed(cli.ExitFailed, "%s: %s", status.Verdict.Check, status.Verdict.Found)
		}),
	}
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 if something needs attention")

	return cmd
}

// A domainStatus is the output of "roster status".
type domainStatus struct {
	Verdict  doctor.Finding        `json:"verdict"`
	Node     apiclient.NodeStatus  `json:"node"`
	Raft     *apiclient.RaftStatus `json:"raft"`
	Peers    []apiclient.Peer      `json:"peers"`
	Warnings []statusWarning       `json:"warnings"`

	session *connect.Session
	now     time.Time
	rows    [][]string
}

// A statusWarning is a finding that needs attention.
type statusWarning struct {
	Subject string `json:"subject"`
	State   string `json:"state"`
	Detail  string `json:"detail"`
	Next    string `json:"next"` // a command
}

func (s *domainStatus) read(ctx context.Context, operator *apiclient.Operator) (err error) {
	if s.Node, _, err = operator.Node(ctx); err != nil {
		return err
	}

	if s.Raft, _, err = operator.Raft(ctx); err != nil {
		return err
	}

	s.Peers, _, err = operator.Peers(ctx)

	return err
}

// askLeader asks the leader for the state of the witnesses, which no other node has.
func (s *domainStatus) askLeader(ctx context.Context) error {
	for _, member := range s.Raft.Peers {
		if member.ID != s.Raft.Leader || member.ID == s.Node.ID || member.API == "" {
			continue
		}

		client, err := s.session.ClientOf(member.API)
		if err != nil {
			return err
		}

		leader, _, err := client.Operator().Node(ctx)
		if err != nil {
			return err
		}

		s.Node.Ledger.Witnesses = leader.Ledger.Witnesses
	}

	return nil
}

// doctorOfNode is the command for facts that only the node's machine has.
var doctorOfNode = []string{"doctor", "--config", "FILE"}

// fine adds a line about something in order.
func (s *domainStatus) fine(subject, state, detail string) {
	s.rows = append(s.rows, []string{subject, state, detail, ""})
}

// warn adds a line about something that needs attention, with the next command.
func (s *domainStatus) warn(subject, state, detail string, next ...string) {
	command := ""

	// These commands have no flags of a connection.
	if next[0] == "help" || next[0] == doctorOfNode[0] {
		command = s.session.Program + " " + strings.Join(next, " ")
	} else {
		command = s.session.CommandLine(next...)
	}

	s.rows = append(s.rows, []string{subject, state, detail, command})
	s.Warnings = append(s.Warnings, statusWarning{subject, state, detail, command})
}

// table judges the state and returns it for people.
func (s *domainStatus) table() cli.Table {
	s.judgeNode()
	s.judgeRestore()
	s.judgeExpiry("svid", s.Node.SVIDExpires, doctor.JudgeSVID)
	s.judgeExpiry("bundle", s.Node.BundleExpires, doctor.JudgeAuthority)
	s.judgeDisk()
	s.judgeClock()
	s.judgeLedger()

	for _, member := range s.Raft.Peers {
		s.judgeMember(member)
	}

	for i := range s.Peers {
		s.judgePeer(&s.Peers[i])
	}

	for _, quota := range metrics.DomainQuotas(s.Raft.Quotas) {
		s.judgeQuota(quota)
	}

	// The verdict counts the warnings of all rows, and is the first row itself.
	s.judge()
	s.rows = slices.Insert(s.rows, 0, []string{s.Verdict.Check, s.Verdict.Status, s.Verdict.Found, s.Verdict.Do})

	return cli.Table{Head: []string{"SUBJECT", "STATE", "DETAIL", "NEXT"}, Rows: s.rows}
}

// judge sums the state up in one line: how the nodes hold together, in the words of "roster doctor", and how
// much else needs attention.
func (s *domainStatus) judge() {
	findings := doctor.JudgeRaft(s.Raft)

	together := findings[len(findings)-1]
	s.Verdict = doctor.Finding{Check: "verdict", Status: doctor.Worst(findings), Found: together.Found}

	if s.Verdict.Status != doctor.StatusOK {
		s.Verdict.Do = s.session.CommandLine("raft", "peers")
	}

	if len(s.Warnings) > 0 {
		s.Verdict.Found += fmt.Sprintf("; lines below that need attention: %d", len(s.Warnings))
		if s.Verdict.Status == doctor.StatusOK {
			s.Verdict.Status = doctor.StatusWarning
		}
	}
}

func (s *domainStatus) judgeNode() {
	subject := "node " + s.Node.ID
	if !s.Node.Ready {
		s.warn(subject, "not ready", s.Node.NotReady, "raft", "peers")
		return
	}

	s.fine(subject, "ready", fmt.Sprintf("version %s, position %s", s.Node.Version, s.Node.Position))
}

// judgeRestore reports restored registrations until their owners have confirmed all.
func (s *domainStatus) judgeRestore() {
	if s.Node.Unconfirmed == 0 {
		return
	}

	detail := fmt.Sprintf("%d of %d; peers show each once its owner refreshes it", s.Node.Unconfirmed,
		s.Raft.Quotas.Registrations)
	s.warn("restored registrations", "not confirmed", detail, "help", "snapshot", "restore")
}

// judgeExpiry shows the end of a certificate.
func (s *domainStatus) judgeExpiry(subject string, at time.Time, judge func(left time.Duration) string) {
	if at.IsZero() {
		s.warn(subject, "missing", "the node has none", doctorOfNode...)
		return
	}

	detail := "ends " + s.session.Time(at)

	switch judge(at.Sub(s.now)) {
	case doctor.StatusFailed:
		s.warn(subject, "expired", "ended "+s.session.Time(at), doctorOfNode...)
	case doctor.StatusWarning:
		s.warn(subject, "expires soon", detail, doctorOfNode...)
	default:
		s.fine(subject, "valid", detail)
	}
}

func (s *domainStatus) judgeDisk() {
	free, percent := s.Node.DiskFree, s.Node.DiskFreePercent
	if free == nil || percent == nil {
		s.fine("disk", "unknown", "")
		return
	}

	const do = "; make room, or move the node's data to a larger disk"

	detail := fmt.Sprintf("%d MiB free, %d %%", *free>>20, *percent)

	switch {
	case doctor.JudgeSpace(*free, *percent) == doctor.StatusOK:
		s.fine("disk", "ok", detail)
	case *free>>20 == 0:
		s.warn("disk", "full", detail+do, doctorOfNode...)
	default:
		s.warn("disk", "nearly full", detail+do, doctorOfNode...)
	}
}

// judgeClock reports a clock by which the node's domain doesn't run.
func (s *domainStatus) judgeClock() {
	switch status, step, behind := doctor.JudgeClock(s.Node.ClockStep, s.Node.ClockBehind); {
	case status == doctor.StatusOK:
		s.fine("clock", "ok", "")
	case step != 0:
		s.warn("clock", "stepped", fmt.Sprintf("by %v; leases run on without it until it is confirmed", step),
			doctorOfNode...)
	default:
		s.warn("clock", "behind", fmt.Sprintf("%v behind the committed time", behind), doctorOfNode...)
	}
}

// judgeLedger shows how far the ledger is cosigned, and the witnesses that have failed for longer than a moment.
func (s *domainStatus) judgeLedger() {
	ledger := &s.Node.Ledger

	detail := fmt.Sprintf("%d leaves", ledger.Leaves)
	if ledger.Cosigned != nil {
		detail += fmt.Sprintf(", %d of them cosigned by the quorum of witnesses", *ledger.Cosigned)
	}

	if ledger.Incomplete {
		s.warn("ledger", "incomplete", detail+"; the node lacks entries, and asks the other members for them",
			doctorOfNode...)
	} else {
		s.fine("ledger", "ok", detail)
	}

	for _, witness := range ledger.Witnesses {
		subject := "witness " + witness.Name

		last := "has cosigned nothing that this leader submitted"
		if !witness.Cosigned.IsZero() {
			last = "cosigned last at " + s.session.Time(witness.Cosigned)
		}

		switch {
		case witness.Error == "":
			s.fine(subject, "ok", last)
		case doctor.JudgeWitness(&witness, s.now) == doctor.StatusOK:
			s.fine(subject, "retried", last+": "+witness.Error)
		case s.isPeer(witness.Name):
			s.warn(subject, "failing", last+": "+witness.Error, "peer", "show", witness.Name)
		default:
			s.warn(subject, "failing", last+": "+witness.Error, "log", "checkpoint")
		}
	}
}

func (s *domainStatus) isPeer(name string) bool {
	return slices.ContainsFunc(s.Peers, func(p apiclient.Peer) bool { return p.Domain == name })
}

func (s *domainStatus) judgeMember(member apiclient.RaftPeer) {
	subject := "member " + member.ID
	detail := "last contact " + lastContact(s.session.Console, member)

	if member.Duplicate != "" {
		s.warn(subject, "duplicate", "two processes use this identity: "+member.Address+", "+member.Duplicate,
			doctorOfNode...)

		return
	}

	if member.State == apiclient.RaftPeerSilent {
		s.warn(subject, member.State, detail, "raft", "peers")
		return
	}

	s.fine(subject, roleOf(member, s.Raft.Leader), detail)
}

func (s *domainStatus) judgePeer(peer *apiclient.Peer) {
	subject := "peer " + peer.Domain
	detail := fmt.Sprintf("%d revisions behind, %s", peer.LagRevisions, peer.PageText())

	if peer.Theirs != nil && peer.Theirs.Position != "" {
		detail += ", took " + peer.Theirs.Position + " of ours"
	}

	// A peer has one row, with its most urgent state.
	switch {
	case peer.Agreed == "frozen":
		s.warn(subject, peer.StateText(), peer.FrozenText(), "peer", "evidence", peer.Domain)
	case peer.Agreed != "active":
		s.fine(subject, peer.StateText(), "")
	case peer.RefusalText() != "":
		s.warn(subject, "refused", peer.RefusalText(), "peer", "show", peer.Domain)
	case len(peer.ContradictedNodes) > 0:
		s.warn(subject, "contradicted", peer.ContradictedNodes[0].String(), "peer", "show", peer.Domain)
	case peer.Shed:
		s.warn(subject, "not shown", "this node is short of memory; "+detail, "peer", "show", peer.Domain)
	case doctor.JudgePeer(peer) != doctor.StatusOK:
		s.warn(subject, peer.StateText(), detail, "peer", "show", peer.Domain)
	case peer.BundleError != "":
		detail += "; bundle refresh fails: " + peer.BundleError
		s.warn(subject, peer.StateText(), detail, "peer", "show", peer.Domain)
	default:
		s.fine(subject, peer.StateText(), detail)
	}
}

func (s *domainStatus) judgeQuota(quota metrics.QuotaUse) {
	detail := fmt.Sprintf("%d of %d", quota.Used, quota.Limit)
	if quota.Limit == 0 {
		detail = fmt.Sprint(quota.Used)
	}

	switch doctor.JudgeQuota(quota) {
	case doctor.StatusFailed:
		s.warn(quota.Name, "used up", detail, "help", "config")
	case doctor.StatusWarning:
		s.warn(quota.Name, "nearly used up", detail, "help", "config")
	default:
		s.fine(quota.Name, "ok", detail)
	}
}
