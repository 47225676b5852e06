package attacks

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// A falseLeader speaks Raft with the key of a member, which runs beside it.
type falseLeader struct {
	net.Listener
	m    *runningMesh
	as   dev.Node
	wire *raft.NetworkTransport
}

func (m *runningMesh) falseLeader(as dev.Node) *falseLeader {
	m.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(m.t, err)

	f := &falseLeader{Listener: listener, m: m, as: as}
	f.wire = raft.NewNetworkTransport(f, 1, 10*time.Second, io.Discard)
	m.t.Cleanup(func() { _ = f.wire.Close() })

	return f
}

// Dial implements raft.StreamLayer.
func (f *falseLeader) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: timeout}, Config: f.m.memberTLS(f.as, "roster-raft/1"),
	}

	return dialer.DialContext(f.m.t.Context(), "tcp", string(address))
}

func (f *falseLeader) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(f.as.ID), Addr: []byte(f.as.Raft)}
}

// end returns the term of a member, and the last entry of its log.
func (f *falseLeader) end(of dev.Node) (term, entry uint64) {
	f.m.t.Helper()

	var answer raft.AppendEntriesResponse

	// A message of an earlier term changes nothing and is answered.
	must(f.m.t, f.wire.AppendEntries(raft.ServerID(of.ID), raft.ServerAddress(of.Raft),
		&raft.AppendEntriesRequest{RPCHeader: f.header(), PrevLogEntry: 1}, &answer))

	return answer.Term, answer.LastLog
}

// append has a member append entries behind its log as committed, as the leader of the next term.
func (f *falseLeader) append(to dev.Node, entries ...*raft.Log) error {
	term, last := f.end(to)
	message := &raft.AppendEntriesRequest{
		RPCHeader: f.header(), Term: term + 1, PrevLogEntry: last, PrevLogTerm: term, Entries: entries,
		LeaderCommitIndex: last + uint64(len(entries)),
	}

	for i, entry := range entries {
		entry.Index, entry.Term = last+uint64(i)+1, term+1
	}

	var answer raft.AppendEntriesResponse

	err := f.wire.AppendEntries(raft.ServerID(to.ID), raft.ServerAddress(to.Raft), message, &answer)
	if err == nil && !answer.Success {
		err = errors.New("it was not appended")
	}

	return err
}

// isRefused has a member append an entry, and fails unless it refuses that and names the false leader. If the term
// moves meanwhile, the message is refused before its entries are looked at, so the attempt is repeated.
func (f *falseLeader) isRefused(at dev.Node, name string, entry *raft.Log, reason string) {
	f.m.t.Helper()

	for range 3 {
		if err := f.append(at, entry); err == nil {
			f.m.t.Errorf("%s has acknowledged %s", at.ID, name)
		}

		if f.m.metric(at, `roster_raft_misconduct_total{reason="`+reason+`"}`) > 0 {
			break
		}
	}

	f.m.names(at, f.as, reason)
}

// names fails unless a node reports, in its metrics and in its audit log, what it has refused of a member.
func (m *runningMesh) names(at, member dev.Node, reason string) {
	m.t.Helper()
	launch.Eventually(m.t, at.ID+" names "+member.ID, func() error {
		if m.metric(at, `roster_raft_misconduct_total{reason="`+reason+`"}`) == 0 {
			return errors.New("the metric says nothing")
		}

		return reportsMisconduct(m.t, at, member, "raft."+reason)
	})
}

// goesOn fails unless every node serves, takes a write, and has the registration that was acknowledged
// before.
func (m *runningMesh) goesOn(acknowledged string) {
	m.t.Helper()
	ada := m.as(0, "agent/ada")

	for i, n := range m.Domains[0].Nodes {
		launch.Eventually(m.t, n.ID+" goes on", func() error {
			status, answer, err := ask(m.t.Context(), ada, http.MethodGet, n.API+"/ad/l?agent="+acknowledged, nil)
			if err != nil || status != http.StatusOK || !strings.Contains(string(answer), acknowledged) {
				return fmt.Errorf("%d %s %w", status, answer, err)
			}

			status, answer, err = ask(m.t.Context(), ada, http.MethodPost,
				fmt.Sprintf("%s/ad/r?agent=after-%s-%d", n.API, acknowledged, i),
				[]byte(`{"base":"https://a.example/"}`))
			if err != nil || status != http.StatusCreated && status != http.StatusOK {
				return fmt.Errorf("%d %s %w", status, answer, err)
			}

			return nil
		})
	}
}

// acknowledge registers an agent at a node.
func (m *runningMesh) acknowledge(at dev.Node, name string) {
	m.t.Helper()

	status, answer, err := ask(m.t.Context(), m.as(0, "agent/ada"), http.MethodPost, at.API+"/ad/r?agent="+name,
		[]byte(`{"base":"https://a.example/"}`))
	if err != nil || status != http.StatusCreated {
		m.t.Fatal(status, string(answer), err)
	}
}

// With the key of one member a false leader sends the others log entries that no member could apply: of a
// version to come, of an unknown type, and a configuration that ends Raft. They are refused, the members
// name the one whose key was used, and the domain goes on with all that it has acknowledged (finding 47).
//
// Requirement: SEC-019
func TestAFalseLeaderEndsNoMember(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	leader, stolen := m.leaderOf()
	thief := m.falseLeader(stolen)
	m.acknowledge(leader, "kept")

	later, err := cbor.Marshal(map[int]any{1: 99, 2: 0, 3: []any{}})
	must(t, err)

	for name, entry := range map[string]raft.Log{
		"a later version":   {Type: raft.LogCommand, Data: later},
		"no commands":       {Type: raft.LogCommand, Data: []byte("garbage")},
		"an unknown type":   {Type: 99},
		"no configuration":  {Type: raft.LogConfiguration, Data: []byte("garbage")},
		"no voter any more": {Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{})},
	} {
		for _, n := range m.Domains[0].Nodes {
			if n.ID == stolen.ID {
				continue
			}

			thief.isRefused(n, name, &entry, "entry")
		}
	}

	m.goesOn("kept")
}
