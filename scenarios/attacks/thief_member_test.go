package attacks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/operatorproof"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
	"github.com/roster-mesh/roster/trust"
)

// The thief of one node's key holds node.pem and node.key of a member, and what it has seen on
// the wire.

// memberTLS is the TLS configuration of the thief of a member's key.
func (m *runningMesh) memberTLS(n dev.Node, protocols ...string) *tls.Config {
	m.t.Helper()
	dir := filepath.Dir(n.Config)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key"))
	must(m.t, err)

	return m.trusting(pair, protocols...)
}

func (m *runningMesh) trusting(pair tls.Certificate, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: protocols,
		InsecureSkipVerify: true, // the attacker does not care whom it talks to
	}
}

func clientOf(t *testing.T, config *tls.Config) *http.Client {
	old := slices.Contains(config.NextProtos, "http/1.1")
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: !old}
	t.Cleanup(transport.CloseIdleConnections)

	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// leaderOf returns the leading node and another one.
func (m *runningMesh) leaderOf() (leader, other dev.Node) {
	m.t.Helper()
	nodes := m.Domains[0].Nodes

	launch.Eventually(m.t, "a node leads", func() error {
		var raft struct {
			Leader string `json:"leader"`
		}

		_, body, err := ask(m.t.Context(), m.as(0, "ops/operator"), http.MethodGet,
			nodes[0].API+"/v1/operator/raft", nil)
		if err == nil {
			err = json.Unmarshal(body, &raft)
		}

		at := slices.IndexFunc(nodes, func(n dev.Node) bool { return n.ID == raft.Leader })
		if err != nil || at < 0 {
			return fmt.Errorf("%q: %w", body, errors.Join(err, errors.New("no leader")))
		}

		leader, other = nodes[at], nodes[(at+1)%len(nodes)]

		return nil
	})

	return leader, other
}

// writeFrame sends requests to a member over a write stream, as a follower does, and returns the
// problem of the answer to the first one; empty for success.
func (m *runningMesh) writeFrame(as *tls.Config, to dev.Node, request map[int]any) (problem string, err error) {
	m.t.Helper()

	conn, err := (&tls.Dialer{Config: as}).DialContext(m.t.Context(), "tcp", to.Raft)
	if err != nil {
		return "", err
	}
	defer conn.Close()

	_ = conn.SetDeadline(time.Now().Add(time.Minute))

	body, err := cbor.Marshal(map[int]any{1: []any{request}})
	must(m.t, err)

	frame := binary.BigEndian.AppendUint32(nil, 1)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(body)))

	if _, err := conn.Write(append(frame, body...)); err != nil {
		return "", err
	}

	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return "", err
	}

	if binary.BigEndian.Uint32(head[:]) == 0 {
		return "", errors.New("the member says goodbye")
	}

	body = make([]byte, binary.BigEndian.Uint32(head[4:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return "", err
	}

	var answers struct {
		Replies []struct {
			Problem   string `cbor:"6,keyasint"`
			NotLeader bool   `cbor:"9,keyasint"`
		} `cbor:"1,keyasint"`
		NotLeader bool `cbor:"2,keyasint"`
	}
	if err := cbor.Unmarshal(body, &answers); err != nil {
		return "", err
	}

	if answers.NotLeader || len(answers.Replies) != 1 || answers.Replies[0].NotLeader {
		return "", fmt.Errorf("the member answers %+v", answers)
	}

	return answers.Replies[0].Problem, nil
}

// An auditLine is a line of a node's audit log.
type auditLine struct {
	Phase     string `json:"phase"`
	Action    string `json:"action"`
	Actor     string `json:"actor"`
	Agent     string `json:"agent"`
	Outcome   string `json:"outcome"`
	Proof     string `json:"proof"`
	BroughtBy string `json:"brought_by"`
	Revision  string `json:"revision"`
	Payload   string `json:"payload"`
}

// check returns an error unless the line is of a proven command of the operator that one of the
// members has brought.
func (l *auditLine) check(broughtBy []dev.Node) error {
	brought := slices.ContainsFunc(broughtBy, func(n dev.Node) bool { return n.ID == l.BroughtBy })
	if !brought || l.Actor != "spiffe://alpha.test/ops/operator" || l.Outcome != "ok" ||
		strings.Count(l.Proof, ".") != 2 || l.Revision == "" {
		return fmt.Errorf("%+v", l)
	}

	return nil
}

// auditLines returns the lines of a node's audit log. The last one may be half written.
func auditLines(t *testing.T, n dev.Node) (lines []auditLine) {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(n.Data, "audit.jsonl"))
	must(t, err)

	for raw := range bytes.Lines(data) {
		var line auditLine
		if json.Unmarshal(raw, &line) == nil {
			lines = append(lines, line)
		}
	}

	return lines
}

// applied returns the lines about applied commands of an action.
func applied(t *testing.T, n dev.Node, action string) []auditLine {
	t.Helper()

	return slices.DeleteFunc(auditLines(t, n), func(l auditLine) bool {
		return l.Phase != "applied" || l.Action != action
	})
}

// reportsMisconduct returns nil if a node's audit log has a line about what it refused of a node.
func reportsMisconduct(t *testing.T, at, of dev.Node, action string) error {
	t.Helper()

	if !slices.ContainsFunc(auditLines(t, at), func(l auditLine) bool {
		return l.Outcome == "misconduct" && l.Action == action && l.BroughtBy == of.ID
	}) {
		return errors.New("no line of the audit log does")
	}

	return nil
}

// proofOf returns the header field that roster proof prints.
func (m *runningMesh) proofOf(method, url, file string) (header string) {
	m.t.Helper()

	args := []string{"proof", method, url}
	if file != "" {
		args = append(args, file)
	}

	code, out, errs := runProgram(m.t, append(args, m.flags(0, "ops/operator")...)...)
	name, value, ok := strings.Cut(strings.TrimSpace(out), ": ")

	if code != 0 || !ok || name != "Roster-Operator-Proof" {
		m.t.Fatalf("exit code %d: %q %s", code, out, errs)
	}

	return value
}

// operate sends a request with an operator's proof, or none if it is empty.
func operate(ctx context.Context, client *http.Client, method, url, proof string, body []byte) (int, string, error) {
	status, answer, err := ask(ctx, client, method, url, body, "Roster-Operator-Proof", proof)

	return status, string(answer), err
}

// recomputes fails unless each entry of type 6 in a node's ledger is the hash of a payload in its audit log.
func (m *runningMesh) recomputes(n dev.Node) {
	m.t.Helper()

	entries, _ := m.ledgerOf(n)
	recorded := map[ledger.Entry]bool{}

	for _, line := range auditLines(m.t, n) {
		recorded[ledger.EntryOf(ledger.Command, []byte(line.Payload))] = true
	}

	commands := 0

	for index, entry := range entries {
		if entry[0] != ledger.Command {
			continue
		}

		if commands++; !recorded[entry] {
			m.t.Errorf("entry %d of the ledger has no line in the audit log of %s", index, n.ID)
		}
	}

	if commands < 2 {
		m.t.Errorf("the ledger of %s has %d commands", n.ID, commands)
	}
}

// An operator's command is in the audit log of every member, with the operator, the proof, the
// member that brought it and its position (finding 20), and the ledger has no other. The command line
// proves it; without a
// proof, with a used one, and with one for another body it is refused.
//
// Requirement: SEC-012, LOG-020
func TestAnOperatorsCommandIsInEveryMembersAuditLog(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	_, other := m.leaderOf()
	operator := m.as(0, "ops/operator")

	_, old, err := ask(t.Context(), operator, http.MethodGet, other.API+"/v1/operator/policy", nil)
	must(t, err)

	var policy struct {
		Policy string `json:"policy"`
	}
	must(t, json.Unmarshal(old, &policy))

	text := policy.Policy + "\n// one\n"
	file := writeFile(t, t.TempDir(), "policy.cedar", []byte(text))
	flags := append(m.flags(0, "ops/operator"), "--address", other.API)

	if code, out, errs := runProgram(t, append([]string{"policy", "apply", file}, flags...)...); code != 0 {
		t.Fatalf("exit code %d: %s %s", code, out, errs)
	}

	for _, n := range m.Domains[0].Nodes {
		launch.Eventually(t, n.ID+" has the line", func() error {
			lines := applied(t, n, "policy.write")
			if len(lines) != 1 {
				return fmt.Errorf("%+v", lines)
			}

			// The program goes to another node if one is busy.
			return lines[0].check(m.Domains[0].Nodes)
		})
	}

	// By curl.
	url := other.API + "/v1/operator/policy"
	body, err := json.Marshal(map[string]string{"policy": text + "// two\n"})
	must(t, err)
	proof := m.proofOf(http.MethodPut, url, writeFile(t, t.TempDir(), "body", body))

	for name, c := range map[string]struct {
		proof string
		body  []byte
	}{
		"no proof":     {"", body},
		"another body": {proof, append(slices.Clone(body), ' ')},
		"no JWS":       {"a.b.c", body},
	} {
		status, answer, err := operate(t.Context(), operator, http.MethodPut, url, c.proof, c.body)
		if err != nil || status != http.StatusForbidden {
			t.Errorf("%s: %d %s %v", name, status, answer, err)
		}
	}

	status, answer, err := operate(t.Context(), operator, http.MethodPut, url, proof, body)
	if err != nil || status != http.StatusNoContent {
		t.Fatal(status, answer, err)
	}

	for _, n := range m.Domains[0].Nodes {
		launch.Eventually(t, n.ID+" has the line of the second command", func() error {
			lines := applied(t, n, "policy.write")
			if len(lines) != 2 {
				return fmt.Errorf("%+v", lines)
			}

			return lines[1].check([]dev.Node{other})
		})
	}

	for _, n := range m.Domains[0].Nodes {
		m.recomputes(n)
	}

	// A used proof is refused at every node.
	for _, n := range m.Domains[0].Nodes {
		status, answer, err = operate(t.Context(), operator, http.MethodPut, n.API+"/v1/operator/policy", proof, body)
		if err != nil || status < 400 || !strings.Contains(answer, "credential-replayed") {
			t.Errorf("a used proof at %s: %d %s %v", n.ID, status, answer, err)
		}

		if got := m.metric(n, "roster_operator_proof_invalid_total"); got != 0 {
			t.Errorf("%s reports %v invalid proofs", n.ID, got)
		}
	}
}

// A member's key brings no operator's command: not by one frame of a write stream (finding 6),
// with no proof, with a proof by the node itself, with an operator's used proof, or with that
// proof for another command; and not by a restore at the cluster listener (finding 18).
//
// Requirement: SEC-012, SEC-019
func TestAMembersKeyBringsNoOperatorsCommand(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	leader, other := m.leaderOf()
	operator := m.as(0, "ops/operator")
	thief := m.memberTLS(other, "roster-write/1")
	all := []byte(otherPolicy)

	// What the thief has seen: a request of the operator, with its proof.
	url := other.API + "/v1/operator/policy"
	body, err := json.Marshal(map[string]string{"policy": seenPolicy})
	must(t, err)
	file := writeFile(t, t.TempDir(), "body", body)
	used := m.proofOf(http.MethodPut, url, file)

	status, said, err := operate(t.Context(), operator, http.MethodPut, url, used, body)
	if err != nil || status != http.StatusNoContent {
		t.Fatal(status, said, err)
	}

	fresh := m.proofOf(http.MethodPut, url, file)
	request := func(proof, by string, body []byte) map[int]any {
		id, until := use(t, by, proof)

		return map[int]any{
			1: by, 2: "PUT", 3: "/v1/operator/policy", 4: body, 5: hashText(body), 6: proof, 7: id, 8: until,
		}
	}
	own := memberProof(t, other, url, body)
	ops := "spiffe://alpha.test/ops/operator"
	node3 := "spiffe://alpha.test/roster/node/3"
	everything := map[int]any{1: all}
	seen := map[int]any{1: []byte(seenPolicy)}
	changed, err := json.Marshal(map[string]string{"policy": otherPolicy})
	must(t, err)

	removal := map[int]any{1: "remove", 2: node3}

	for name, c := range map[string]struct {
		request map[int]any
		want    string
	}{
		"a policy without a proof":        {map[int]any{9: everything}, "forbidden"},
		"a peering without a proof":       {map[int]any{4: map[int]any{1: "evil.test", 2: "active"}}, "forbidden"},
		"a key without a proof":           {map[int]any{15: map[int]any{1: strings.Repeat("A", 43)}}, "forbidden"},
		"a removal without a proof":       {map[int]any{6: removal}, "forbidden"},
		"a standing admission":            {map[int]any{6: map[int]any{1: "admit", 2: "", 3: "*", 4: 9}}, "forbidden"},
		"a used proof":                    {map[int]any{9: seen, 40: request(used, ops, body)}, "credential-replayed"},
		"a proof for another policy":      {map[int]any{9: everything, 40: request(fresh, ops, body)}, "forbidden"},
		"a proof for another body":        {map[int]any{9: everything, 40: request(fresh, ops, changed)}, "forbidden"},
		"a proof for another command":     {map[int]any{6: removal, 40: request(fresh, ops, body)}, "forbidden"},
		"a proof by the node":             {map[int]any{9: seen, 40: request(own, other.ID, body)}, "forbidden"},
		"a node's proof as an operator's": {map[int]any{9: everything, 40: request(own, ops, body)}, "forbidden"},
	} {
		got, err := m.writeFrame(thief, leader, c.request)
		if err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %s", name, got, err, c.want)
		}
	}

	// A forged restore.
	client := clientOf(t, m.memberTLS(other, "h2"))

	_, backup, err := ask(t.Context(), operator, http.MethodGet, leader.API+"/v1/operator/snapshot", nil)
	must(t, err)

	for name, header := range map[string]map[int]any{"no proof": nil, "another's": request(fresh, ops, body)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"https://"+leader.Raft+"/v1/restore?new_epoch=true&reason=evil", bytes.NewReader(backup))
		must(t, err)

		if header != nil {
			data, err := cbor.Marshal(map[int]any{40: header})
			must(t, err)
			req.Header.Set("Roster-Operator-Request", base64.RawURLEncoding.EncodeToString(data))
		}

		resp, err := client.Do(req)
		must(t, err)
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()

		if !bytes.Contains(answer, []byte("forbidden")) {
			t.Errorf("a restore with %s: %d %q", name, resp.StatusCode, answer)
		}
	}

	// Nothing was changed but the policy that the operator has set.
	for _, n := range m.Domains[0].Nodes {
		if lines := applied(t, n, "policy.write"); len(lines) > 1 {
			t.Errorf("%s has applied %+v", n.ID, lines)
		}

		for _, action := range []string{"peer.write", "raft.remove", "raft.admit", "keys.revoke", "snapshot.restore"} {
			if lines := applied(t, n, action); len(lines) > 0 {
				t.Errorf("%s has applied %+v", n.ID, lines)
			}
		}
	}

	// The genuine proof is good still.
	status, said, err = operate(t.Context(), operator, http.MethodPut, url, fresh, body)
	if err != nil || status != http.StatusNoContent {
		t.Error(status, said, err)
	}
}

// A node that an operator removes is a stranger at once, on open and on new connections, on
// /federation/v1 and at the cluster listener (finding 19). A node whose SVID lies under the node
// path, and that was never admitted, is one too (finding 10). Both may ask to join.
//
// Requirement: SEC-011, SEC-019
func TestARemovedMemberIsAStranger(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	leader, gone := m.leaderOf()
	url := leader.API + "/federation/v1/heads?origin=alpha.test"
	open := clientOf(t, m.memberTLS(gone))
	cluster := m.memberTLS(gone, "roster-write/1")

	if status, answer, err := ask(t.Context(), open, http.MethodGet, url, nil); err != nil || status != 200 {
		t.Fatal(status, string(answer), err)
	}

	// A long poll that waits while the node is removed.
	polled := make(chan string, 1)

	go func() {
		poll := leader.API + "/federation/v1/pages?origin=alpha.test&aud=mesh&since=1000000&wait=45"
		status, answer, err := ask(t.Context(), open, http.MethodGet, poll, nil)
		polled <- fmt.Sprint(status, string(answer), err)
	}()

	time.Sleep(300 * time.Millisecond)

	flags := append(m.flags(0, "ops/operator"), "--address", leader.API)
	if code, out, errs := runProgram(t, append([]string{"raft", "remove", gone.ID}, flags...)...); code != 0 {
		t.Fatalf("exit code %d: %s %s", code, out, errs)
	}

	for name, client := range map[string]*http.Client{
		"an open connection": open, "a new connection": clientOf(t, m.memberTLS(gone)),
	} {
		for _, path := range []string{
			"/federation/v1/heads?origin=alpha.test", "/federation/v1/keys?origin=alpha.test", "/ad/l",
		} {
			status, answer, err := ask(t.Context(), client, http.MethodGet, leader.API+path, nil)
			if err != nil || status != http.StatusForbidden {
				t.Errorf("%s over %s: %d %s %v", path, name, status, answer, err)
			}
		}
	}

	if said := <-polled; !strings.HasPrefix(said, "403") {
		t.Errorf("the poll of the removed node is answered %.200s", said)
	}

	if problem, err := m.writeFrame(cluster, leader, map[int]any{12: map[int]any{}}); err == nil {
		t.Errorf("a write of the removed node is answered %q", problem)
	}

	never := clientOf(t, m.trusting(m.mintNode("9")))

	status, answer, err := ask(t.Context(), never, http.MethodGet, url, nil)
	if err != nil || status != http.StatusForbidden {
		t.Errorf("a node that was never admitted: %d %s %v", status, answer, err)
	}

	// The open door: a request to join is answered, and refused before the leader and the versions of the
	// group are named, by followers too.
	join := clientOf(t, m.trusting(m.mintNode("9"), "http/1.1"))
	body, err := cbor.Marshal(map[int]any{1: "127.0.0.1:1", 8: map[int]any{1: 1, 2: 1, 3: 1}})
	must(t, err)

	for _, node := range m.Domains[0].Nodes {
		if node.ID == gone.ID {
			continue
		}

		status, answer, err = ask(t.Context(), join, http.MethodPost, "https://"+node.Raft+"/v1/join", body)
		if err != nil || status != http.StatusOK || !bytes.Contains(answer, []byte("is not admitted")) ||
			bytes.Contains(answer, []byte(leader.ID)) {
			t.Errorf("a request to join: %d %q %v", status, answer, err)
		}
	}
}

// mintNode makes an SVID under the node path, as the domain's authority does for any workload
// that may have one.
func (m *runningMesh) mintNode(name string) tls.Certificate {
	m.t.Helper()
	d := m.Domains[0]
	cert, err := os.ReadFile(d.Bundle)
	must(m.t, err)
	key, err := os.ReadFile(d.CAKey)
	must(m.t, err)
	ca, err := trust.LoadCA(cert, key)
	must(m.t, err)
	svid, err := ca.Issue("/roster/node/"+name, time.Hour, time.Now())
	must(m.t, err)

	pair := tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
	for _, c := range svid.Certificates {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}

	return pair
}

// Policies of the attack: the one that the operator sets, and the thief's own.
const (
	seenPolicy  = `@id("seen") permit (principal, action, resource);`
	otherPolicy = `@id("other") permit (principal, action, resource);`
)

// memberProof returns a proof that the thief makes by the member's key.
func memberProof(t *testing.T, n dev.Node, url string, body []byte) string {
	t.Helper()
	dir := filepath.Dir(n.Config)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key"))
	must(t, err)

	proof, err := operatorproof.Make(&pair, operatorproof.Request{
		Domain: "alpha.test", Method: http.MethodPut, URL: url, Body: sha256.Sum256(body),
	}, time.Now())
	must(t, err)

	return proof
}

// use returns the members of a request that identify its proof.
func use(t *testing.T, by, proof string) (id string, until int64) {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(proof, ".")[1])
	must(t, err)

	var claims struct {
		ID      string `json:"jti"`
		Expires int64  `json:"exp"`
	}
	must(t, json.Unmarshal(raw, &claims))

	return hashText([]byte("roster-op\x00" + by + "\x00" + claims.ID)), claims.Expires + 60
}

func hashText(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// An identity of a peer domain orders nothing, even where a policy permits everything to everyone: its
// proof is by another authority.
//
// Requirement: SEC-012
func TestAnotherDomainsOperatorOrdersNothing(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "2", "--nodes", "1")
	node := m.Domains[0].Nodes[0]
	text := `@id("all") permit (principal, action, resource);`
	file := writeFile(t, t.TempDir(), "all.cedar", []byte(text))
	m.mustRun(append(m.flags(0, "ops/operator"), "policy", "apply", file))

	pair := m.as(1, "ops/operator").Transport.(*http.Transport).TLSClientConfig.Certificates[0]
	client := clientOf(t, m.trusting(pair, "h2"))
	url := node.API + "/v1/operator/policy"
	body, err := json.Marshal(map[string]string{"policy": text + "\n// beta\n"})
	must(t, err)

	proof, err := operatorproof.Make(&pair, operatorproof.Request{
		Domain: "alpha.test", Method: http.MethodPut, URL: url, Body: sha256.Sum256(body),
	}, time.Now())
	must(t, err)

	status, answer, err := operate(t.Context(), client, http.MethodPut, url, proof, body)
	if err != nil || status != http.StatusForbidden || !strings.Contains(answer, "no identity of alpha.test") {
		t.Errorf("%d %s %v", status, answer, err)
	}

	if lines := applied(t, node, "policy.write"); len(lines) != 1 {
		t.Errorf("applied are %+v", lines)
	}
}
