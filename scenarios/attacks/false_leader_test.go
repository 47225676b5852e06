package attacks

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory/operatorproof"
	"github.com/roster-mesh/roster/node/dev"
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

// A refusedLine is a line of an audit log about a message that was refused.
type refusedLine struct {
	Outcome   string `json:"outcome"`
	Action    string `json:"action"`
	Target    string `json:"target"`
	BroughtBy string `json:"brought_by"`
}

// names fails unless a node reports within five seconds, in its metrics and in its audit log, what it has
// refused of a member.
func (m *runningMesh) names(at, member dev.Node, reason string) {
	m.t.Helper()
	eventually(m.t, 5*time.Second, at.ID+" names "+member.ID, func() error {
		if m.metric(at, `roster_raft_misconduct_total{reason="`+reason+`"}`) == 0 {
			return errors.New("the metric says nothing")
		}

		text, err := os.ReadFile(filepath.Join(at.Data, "audit.jsonl"))
		if err != nil {
			return err
		}

		for line := range strings.Lines(string(text)) {
			var refused refusedLine
			if json.Unmarshal([]byte(line), &refused) == nil && refused.Outcome == "misconduct" &&
				refused.Action == "raft."+reason && refused.BroughtBy == member.ID {
				return nil
			}
		}

		return errors.New("no line of the audit log does")
	})
}

// goesOn fails unless every node serves, takes a write, and has the registration that was acknowledged
// before.
func (m *runningMesh) goesOn(acknowledged string) {
	m.t.Helper()
	ada := m.as(0, "agent/ada")

	for i, n := range m.Domains[0].Nodes {
		eventually(m.t, 20*time.Second, n.ID+" goes on", func() error {
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

// install has a member install a snapshot that ends behind its log, as the leader of the next term.
func (f *falseLeader) install(to dev.Node, snapshot []byte) error {
	var configuration raft.Configuration
	for _, n := range f.m.Domains[0].Nodes {
		configuration.Servers = append(configuration.Servers,
			raft.Server{ID: raft.ServerID(n.ID), Address: raft.ServerAddress(n.Raft)})
	}

	term, last := f.end(to)
	message := &raft.InstallSnapshotRequest{
		RPCHeader: f.header(), SnapshotVersion: raft.SnapshotVersionMax, Term: term + 1, LastLogIndex: last + 1,
		LastLogTerm: term, Configuration: raft.EncodeConfiguration(configuration), ConfigurationIndex: 1,
		Size: int64(len(snapshot)),
	}

	var answer raft.InstallSnapshotResponse

	err := f.wire.InstallSnapshot(raft.ServerID(to.ID), raft.ServerAddress(to.Raft), message, &answer,
		bytes.NewReader(snapshot))
	if err == nil && !answer.Success {
		err = errors.New("it was not installed")
	}

	return err
}

// forged returns the snapshot in a backup, with members of its header changed.
func (m *runningMesh) forged(backup []byte, change func(header map[int]any)) []byte {
	m.t.Helper()

	text, found := bytes.CutPrefix(backup, []byte("ROSTER BACKUP 1\n"))
	if !found || len(text) < 32 {
		m.t.Fatalf("a backup begins with %.20q", backup)
	}

	var top cbor.RawMessage

	items, err := cbor.UnmarshalFirst(text[:len(text)-32], &top)
	must(m.t, err)

	var header map[int]any

	rest, err := cbor.UnmarshalFirst(items, &header)
	must(m.t, err)
	change(header)

	data, err := cbor.Marshal(header)
	must(m.t, err)

	return append(data, rest...)
}

// With the key of one member a false leader sends another one snapshots: with a policy that permits
// everything to everyone, behind the one in force or in its place, and with a state of the past. They are
// refused, the member names the one whose key was used, the operator's policy is in force everywhere, and
// the domain goes on with all that it has acknowledged (finding 52).
//
// Requirement: SEC-012, SEC-019
func TestAFalseLeaderReplacesNoPolicy(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	leader, stolen := m.leaderOf()
	thief := m.falseLeader(stolen)
	operator := m.as(0, "ops/operator")

	backup := func() []byte {
		status, data, err := ask(t.Context(), operator, http.MethodGet, leader.API+"/v1/operator/snapshot", nil)
		if err != nil || status != http.StatusOK {
			t.Fatal(status, err)
		}

		return data
	}

	m.mustRun(append(m.operator(0), "policy", "apply", m.file([]byte(seenPolicy))))

	before := backup()

	m.acknowledge(leader, "kept")

	now := backup()
	all := []byte(`@id("all") permit (principal, action, resource);`)
	ahead := func(header map[int]any) {
		header[4] = header[4].(uint64) + 5
		header[6] = header[4]
		header[21] = map[int]any{1: all, 2: header[4]}
	}
	inPlace := func(header map[int]any) {
		header[21] = map[int]any{1: all, 2: header[21].(map[any]any)[uint64(2)]}
	}

	for name, c := range map[string]struct {
		snapshot []byte
		reason   string
	}{
		"a policy of a later version":    {m.forged(now, ahead), "snapshot"},
		"another policy of that version": {m.forged(now, inPlace), "history"},
		"the state of an earlier backup": {m.forged(before, func(map[int]any) {}), "history"},
		"a version of snapshots to come": {m.forged(now, func(h map[int]any) { h[1] = 99 }), "snapshot"},
		"a snapshot that is cut in half": {now[len(now)/2:], "snapshot"},
		"a snapshot of another domain":   {m.forged(now, func(h map[int]any) { h[2] = "beta.test" }), "snapshot"},
	} {
		for _, n := range m.Domains[0].Nodes {
			if n.ID == stolen.ID {
				continue
			}

			if err := thief.install(n, c.snapshot); err == nil {
				t.Errorf("%s has installed %s", n.ID, name)
			}

			m.names(n, stolen, c.reason)
		}
	}

	m.goesOn("kept")

	for _, n := range m.Domains[0].Nodes {
		status, answer, err := ask(t.Context(), operator, http.MethodGet, n.API+"/v1/operator/policy", nil)

		var inForce struct {
			Policy string `json:"policy"`
		}
		if err != nil || json.Unmarshal(answer, &inForce) != nil || inForce.Policy != seenPolicy {
			t.Errorf("%s has the policy %d %s %v", n.ID, status, answer, err)
		}
	}
}

// ordered returns a log entry with a policy of that text, ordered by an identity with its own key, or by
// nobody if the key is nil. version is that of the policy in force.
func (m *runningMesh) ordered(from dev.Node, by string, key *tls.Certificate, text string, version uint64) raft.Log {
	m.t.Helper()

	const target = "/v1/operator/policy"

	now := time.Now()
	origin := map[int]any{1: from.ID, 4: now.UnixMilli(), 5: version}

	if key != nil {
		body, err := json.Marshal(map[string]string{"policy": text})
		must(m.t, err)

		hash := sha256.Sum256(body)
		proof, err := operatorproof.Make(key, operatorproof.Request{
			Domain: "alpha.test", Method: http.MethodPut, URL: from.API + target, Body: hash,
		}, now)
		must(m.t, err)

		id, until := use(m.t, by, proof)
		origin[2] = map[int]any{
			1: by, 2: http.MethodPut, 3: target, 4: body, 5: hashText(body), 6: proof, 7: id, 8: until,
		}
	}

	data, err := cbor.Marshal(map[int]any{1: 1, 2: now.UnixMilli(), 3: []any{
		map[int]any{18: map[int]any{1: []byte(text)}, 41: origin}}})
	must(m.t, err)

	return raft.Log{Type: raft.LogCommand, Data: data}
}

// With the key of one member a false leader sends the others a policy that permits everything: without an
// operator, with a proof by the member's own key, and with one by an agent of the domain. No member
// acknowledges it, so it is in force nowhere; the members name the one whose key was used, and the domain
// goes on with all that it has acknowledged. The operator's own policy is taken.
//
// Requirement: SEC-012, SEC-019
func TestAFalseLeadersPolicyIsNotInForce(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	leader, stolen := m.leaderOf()
	thief := m.falseLeader(stolen)
	operator := m.as(0, "ops/operator")

	inForce := func(n dev.Node) (text string, version uint64) {
		status, answer, err := ask(t.Context(), operator, http.MethodGet, n.API+"/v1/operator/policy", nil)

		var policy struct {
			Policy  string `json:"policy"`
			Version uint64 `json:"version"`
		}
		if err != nil || json.Unmarshal(answer, &policy) != nil {
			t.Fatal(status, string(answer), err)
		}

		return policy.Policy, policy.Version
	}

	m.mustRun(append(m.operator(0), "raft", "admit", "spiffe://alpha.test/roster/node/x"))
	m.acknowledge(leader, "kept")

	_, version := inForce(leader) // the built-in policy, by which an agent orders nothing
	all := `@id("all") permit (principal, action, resource);`
	member := m.memberTLS(stolen).Certificates[0]
	agent := m.as(0, "agent/ada").Transport.(*http.Transport).TLSClientConfig.Certificates[0]

	for name, entry := range map[string]raft.Log{
		"a policy without an operator":    m.ordered(stolen, "", nil, all, version),
		"a policy by the member's key":    m.ordered(stolen, stolen.ID, &member, all, version),
		"a policy by an agent of alpha":   m.ordered(stolen, "spiffe://alpha.test/agent/ada", &agent, all, version),
		"a policy under a later policy":   m.ordered(stolen, "spiffe://alpha.test/agent/ada", &agent, all, version+9),
		"a policy by an agent as another": m.ordered(stolen, "spiffe://alpha.test/ops/operator", &agent, all, version),
	} {
		for _, n := range m.Domains[0].Nodes {
			if n.ID == stolen.ID {
				continue
			}

			thief.isRefused(n, name, &entry, "command")
		}
	}

	m.goesOn("kept")
	m.mustRun(append(m.operator(0), "policy", "apply", m.file([]byte(otherPolicy))))

	for _, n := range m.Domains[0].Nodes {
		eventually(t, 10*time.Second, n.ID+" has the operator's policy", func() error {
			if text, _ := inForce(n); text != otherPolicy {
				return errors.New(text)
			}

			return nil
		})
	}
}
