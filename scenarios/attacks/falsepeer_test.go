package attacks

import (
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
	"github.com/roster-mesh/roster/trust"
)

// A domain is one with an authority of its own, which anybody can make in any name.
type domain struct {
	name spiffeid.TrustDomain
	ca   *trust.CA
	ring *trust.Keyring
}

func newDomain(t testing.TB, name string) *domain {
	t.Helper()
	now := time.Now()
	td := spiffeid.RequireTrustDomainFromString(name)
	ca, err := trust.NewCA(td, now)
	must(t, err)
	svid, err := ca.Issue("/roster/node/1", time.Hour, now)
	must(t, err)
	key, err := trust.OpenKey(t.TempDir())
	must(t, err)
	attestation, err := key.Attest(svid, now)
	must(t, err)

	ring := trust.NewKeyring(td, key, trust.NewBundles())
	ring.SetOwn(&signed.KeyDocument{
		Issuer: td, Epoch: 1, Seq: 1, Expires: now.Unix() + signed.KeyDocumentLifetime,
		Keys: []signed.SigningKey{{Public: key.Public(), Node: svid.ID, Attestations: []string{attestation}}},
	})

	return &domain{td, ca, ring}
}

// A falsePeer is a domain of one node that announces whatever its test chooses, signed as it must be.
// It implements federation's source of pages.
type falsePeer struct {
	*domain
	base    string // of its node
	digests []signed.Digest

	// at is its revision; that of the last digest if it is 0.
	at      uint64
	epoch   uint64                                                                      // 0 for 1
	record  func(name directory.Hash) (statement []byte, disclosures []string, ok bool) // by h
	keys    *signed.KeyDocument
	changed chan struct{}
}

// newFalsePeer starts a false peer of the mesh's first domain, and makes that domain peer with it.
func (m *runningMesh) newFalsePeer(name string, stock func(*falsePeer)) *falsePeer {
	m.t.Helper()

	p := &falsePeer{domain: newDomain(m.t, name), changed: make(chan struct{})}
	p.record = func(directory.Hash) ([]byte, []string, bool) { return nil, nil, false }
	stock(p)

	alpha := spiffeid.RequireTrustDomainFromString(m.Domains[0].TrustDomain)

	own, _, _ := p.ring.Keys(p.name)
	document := *own
	document.Mesh = []spiffeid.TrustDomain{alpha}
	p.keys = &document
	p.ring.SetOwn(p.keys)

	svid, err := p.ca.Issue("/roster/node/1", time.Hour, time.Now())
	must(m.t, err)

	certificate := *trust.NewSource(svid).Certificate()
	server := m.serves(p, svid.ID, alpha, &tls.Config{Certificates: []tls.Certificate{certificate}})
	server.StartTLS()

	p.base = server.URL
	m.peerWith(p)

	return p
}

// serves returns a server, not started yet, of what a false peer announces as a node to its only peer.
func (m *runningMesh) serves(p *falsePeer, as spiffeid.ID, peer spiffeid.TrustDomain, config *tls.Config,
) *httptest.Server {
	m.t.Helper()

	served, err := federation.Open(federation.Config{
		Domain: p.name, Node: as, Dir: m.t.TempDir(), Source: p, Keys: p.ring, View: index.NewView(p.name),
		Peerings: func() []directory.Peering {
			return []directory.Peering{{Domain: peer, State: directory.PeeringActive, Mesh: true}}
		},
		Client: func(spiffeid.TrustDomain) *http.Client { return &http.Client{} }, // it asks nobody
		Logger: slog.New(slog.DiscardHandler),
	})
	must(m.t, err)
	m.t.Cleanup(func() { _ = served.Close() })

	server := httptest.NewUnstartedServer(
		served.Handler(func(r *http.Request) (spiffeid.ID, bool) { return trust.PeerID(r.TLS) }))
	server.TLS = config
	server.TLS.ClientAuth = tls.RequireAnyClientCert // it judges nobody
	server.TLS.NextProtos = []string{"h2"}
	server.EnableHTTP2 = true
	m.t.Cleanup(func() {
		server.CloseClientConnections() // held polls
		server.Close()
	})

	return server
}

// peerWith makes the first domain peer with a false one, by its operator.
func (m *runningMesh) peerWith(p *falsePeer) {
	m.t.Helper()

	bundle, err := p.ca.Bundle().Marshal()
	must(m.t, err)
	body, err := json.Marshal(wire.Peering{
		Domain: p.name.Name(), Bundle: wire.RawJSON(bundle), Addresses: []string{p.base}, Mesh: true,
	})
	must(m.t, err)

	file := filepath.Join(m.t.TempDir(), "peering.json")
	must(m.t, os.WriteFile(file, body, 0o600))

	node := m.Domains[0].Nodes[0]
	target := node.API + "/v1/operator/peers"

	status, answer, err := operate(m.t.Context(), m.as(0, "ops/operator"), http.MethodPost, target,
		m.proofOf(http.MethodPost, target, file), body)
	if err != nil || status != http.StatusNoContent {
		m.t.Fatalf("peering with %s: %d %s: %v", p.name, status, answer, err)
	}
}

// announcements returns digests of registrations whose records don't exist.
func announcements(count int) []signed.Digest {
	digests := make([]signed.Digest, count)
	deadline := time.Now().Add(24 * time.Hour).Unix()

	for i := range digests {
		var entropy [10]byte

		binary.BigEndian.PutUint64(entropy[:], uint64(i))
		digests[i] = signed.Digest{
			RID: directory.NewRID(1, entropy), Revision: uint64(i) + 1, Op: signed.OpPut, Deadline: deadline,
			Lifetime: 86400, H: directory.HashOf(fmt.Append(nil, "h", i)), M: directory.HashOf(fmt.Append(nil, "m", i)),
		}
	}

	return digests
}

// Position implements publish.Source.
func (p *falsePeer) Position() directory.Position {
	return directory.Position{Epoch: max(p.epoch, 1), Revision: p.revision()}
}

func (p *falsePeer) revision() uint64 {
	if p.at > 0 {
		return p.at
	}

	return uint64(len(p.digests))
}

// Changed implements publish.Source: nothing changes.
func (p *falsePeer) Changed() <-chan struct{} { return p.changed }

// Digests implements publish.Source.
func (p *falsePeer) Digests(aud directory.Audience, since uint64, limit int) ([]signed.Digest, uint64, uint64) {
	at := p.revision()
	if aud != directory.Mesh {
		return nil, at, at
	}

	first, _ := slices.BinarySearchFunc(p.digests, since+1, func(d signed.Digest, revision uint64) int {
		return cmp.Compare(d.Revision, revision)
	})

	digests := p.digests[first:]
	if len(digests) > limit {
		return digests[:limit], digests[limit-1].Revision, at
	}

	return digests, at, at
}

// Tip implements publish.Source.
func (p *falsePeer) Tip(aud directory.Audience) uint64 {
	if aud != directory.Mesh {
		return 0
	}

	return p.revision()
}

// Record implements publish.Source.
func (p *falsePeer) Record(_ directory.Audience, h, _ directory.Hash) ([]byte, []string, bool) {
	return p.record(h)
}

// Current implements publish.Source.
func (p *falsePeer) Current(directory.RID, directory.Audience) (signed.Digest, bool) {
	return signed.Digest{}, false
}

// KeyDocument implements publish.Source.
func (p *falsePeer) KeyDocument() *signed.KeyDocument { return p.keys }

// Ledger implements publish.Source.
func (p *falsePeer) Ledger() (uint64, directory.Hash) { return 0, directory.Hash{} }

// Format implements publish.Source.
func (p *falsePeer) Format(signed.Structure) uint { return 1 }

// IsLeader implements publish.Source.
func (p *falsePeer) IsLeader() bool { return true }

// peerStatus is what an operator reads of a peer.
func (m *runningMesh) peerStatus(n dev.Node, name string) wire.Peer {
	m.t.Helper()

	code, answer, err := ask(m.t.Context(), m.operatorOf(n), http.MethodGet, n.API+"/v1/operator/peers", nil)
	if err != nil || code != http.StatusOK {
		m.t.Fatalf("the peers: %d %s: %v", code, answer, err)
	}

	var list wire.Peers

	must(m.t, json.Unmarshal(answer, &list))

	for _, peer := range list.Peers {
		if peer.Domain == name {
			return peer
		}
	}

	m.t.Fatalf("%s isn't among %s", name, answer)

	return wire.Peer{}
}

// Bars of a peer that announces records and never delivers them.
const (
	undelivered       = 250_000
	undeliveredMemory = 96 << 20              // bytes that a node may hold for them
	undeliveredDelay  = 60 * time.Millisecond // the peer shares the processors here
)

// A peer announces records that never come. A node holds few of them in memory, and looking for them
// delays no reader (finding 33).
//
// Requirement: MESH-026
func TestRecordsThatNeverComeCostReadersNothing(t *testing.T) {
	m := startMesh(t, "--domains", "1", "--nodes", "1")
	node, ada := m.Domains[0].Nodes[0], m.as(0, "agent/ada")

	before, quiet := m.memoryOf(node), m.lookups(ada, node, 3*time.Second)
	m.newFalsePeer("false.test", func(p *falsePeer) { p.digests = announcements(undelivered) })

	launch.Eventually(t, "all is announced", func() error {
		status := m.peerStatus(node, "false.test")
		if known := status.Missing + int(status.OverQuota); known < undelivered {
			return fmt.Errorf("%d of %d announced: %s", known, undelivered, status.LastError)
		}

		return nil
	})

	busy, after := m.lookups(ada, node, 10*time.Second), m.memoryOf(node)
	status := m.peerStatus(node, "false.test")
	t.Logf("p99 of lookups %s, and %s with %d missing and %d over quota; %v", quiet, busy, status.Missing,
		status.OverQuota, after.minus(before))

	if status.Missing > undelivered/2 || status.OverQuota == 0 {
		t.Errorf("%d records count as missing, %d as over quota", status.Missing, status.OverQuota)
	}

	if busy > launch.Within(max(2*quiet, undeliveredDelay)) {
		t.Errorf("lookups take %s at p99, %s without the peer", busy, quiet)
	}

	if used := after.minus(before).live; used > undeliveredMemory {
		t.Errorf("the node holds %d MiB for them, more than %d", used>>20, undeliveredMemory>>20)
	}
}

// A stockedRecord is a record that a false peer delivers.
type stockedRecord struct {
	statement   []byte
	disclosures []string
}

// register makes the record of a registration, and completes its digest.
func (p *falsePeer) register(t *testing.T, digest *signed.Digest, agent, owner string, document []byte) stockedRecord {
	t.Helper()

	parsed, err := directory.ParseDocument(directory.KindAD, document)
	must(t, err)

	now, seed := time.Now().Unix(), directory.HashOf([]byte(agent))
	change := &signed.Change{
		Issuer: p.name, RID: digest.RID, Op: signed.OpPut, Epoch: max(p.epoch, 1), Revision: digest.Revision,
		IssuedAt: now, Since: now, Agent: agent, Document: parsed,
		Salt:  signed.Salt(seed[:len(signed.Salt{})]),
		Owner: directory.IdentityOf(spiffeid.RequireFromPath(p.name, owner)),
	}
	disclosures := change.Disclosures()
	statement, err := signed.Statement(signed.StatementFormat, change, disclosures)
	must(t, err)

	shown, m := signed.Disclosed(disclosures, directory.Grant{Audience: directory.Mesh, All: true})
	digest.H, digest.M = directory.HashOf(statement), m

	return stockedRecord{statement, shown}
}

// forge announces one registration more, at a revision above all others.
func (p *falsePeer) forge(t *testing.T, agent string, revision uint64) {
	t.Helper()

	digest := announcements(1)[0]
	digest.Revision = revision
	record := p.register(t, &digest, agent, "/agent/mallory", []byte(`{"base":"https://mallory.example/"}`))
	p.digests = append(p.digests, digest)
	p.record = func(name directory.Hash) ([]byte, []string, bool) {
		return record.statement, record.disclosures, name == digest.H
	}
}

// stock gives the peer registrations whose records it delivers, with documents of about that many
// bytes.
func (p *falsePeer) stock(t *testing.T, count, size int) {
	t.Helper()

	rng := rand.New(rand.NewPCG(1, 2))
	records := make(map[directory.Hash]stockedRecord, count)
	p.digests = announcements(count)

	for i := range p.digests {
		digest := &p.digests[i]
		record := p.register(t, digest, fmt.Sprintf("stocked-%d", i), fmt.Sprintf("/agent/%d", i%32), words(rng, size))
		records[digest.H] = record
	}

	p.record = func(name directory.Hash) ([]byte, []string, bool) {
		found, ok := records[name]
		return found.statement, found.disclosures, ok
	}
}

// Three peers fill their default quotas at a node with little memory. Its own domain's lookups are
// answered all the while, and what it doesn't show for want of memory is said (finding 35).
//
// Requirement: FORM-009
func TestPeersLeaveANodeMemoryForItsOwnDomain(t *testing.T) {
	const (
		limit = "192MiB"
		count = 12_000 // of each peer
	)

	t.Setenv("GOMEMLIMIT", limit)

	m := startMesh(t, "--domains", "1")
	node, ada := m.Domains[0].Nodes[0], m.as(0, "agent/ada")

	m.lookups(ada, node, time.Second)

	var peers []*falsePeer

	for i := range 3 {
		peer := m.newFalsePeer(fmt.Sprintf("false-%d.test", i), func(p *falsePeer) { p.stock(t, count, 4000) })
		peers = append(peers, peer)
	}

	// While they fill their quotas each lookup is answered.
	launch.Eventually(t, "what is left out for want of memory is said", func() error {
		m.lookups(ada, node, 2*time.Second) // fails if one is refused

		var (
			shed          []string
			records, left uint64
		)

		for _, p := range peers {
			status := m.peerStatus(node, p.name.Name())
			records += status.Records
			left += status.OverQuota + uint64(status.Missing)

			if status.Shed {
				shed = append(shed, p.name.Name())
			}
		}

		_, ready, err := ask(t.Context(), &http.Client{}, http.MethodGet, node.Admin+"/readyz", nil)
		must(t, err)

		seen := fmt.Sprintf("%d records are held, %d are not; shed: %q; %s; %v", records, left, shed, ready,
			m.memoryOf(node))

		if records+left != count*3 || left == 0 || len(shed) == 0 ||
			!strings.Contains(string(ready), strings.Join(shed, " ")) {
			return errors.New(seen)
		}

		for _, search := range [][]string{{"lookup"}, {"discover", "translate"}} {
			code, _, notes := runProgram(t, append(m.flags(0, "ops/operator"), search...)...)
			if code != 0 || !strings.Contains(notes, "shows no registrations of "+strings.Join(shed, ", ")) {
				return fmt.Errorf("roster %s, exit code %d, says %q; %s", search[0], code, notes, seen)
			}
		}

		t.Log(seen)

		return nil
	})
}
