package attacks

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
	"github.com/roster-mesh/roster/trust"
)

// impersonate stops a node of the first domain and answers the second domain's nodes in its place, with its
// key and at its address, what the false peer's digests are.
func (m *runningMesh) impersonate(n dev.Node, at uint64) *falsePeer {
	m.t.Helper()

	status, document, err := ask(m.t.Context(), clientOf(m.t, m.memberTLS(n)), http.MethodGet,
		m.Domains[0].Nodes[1].API+"/federation/v1/keys?origin="+m.Domains[0].TrustDomain, nil)
	if err != nil || status != http.StatusOK {
		m.t.Fatalf("the key document: %d %s: %v", status, document, err)
	}

	payload, err := directory.B64.DecodeString(strings.Split(string(document), ".")[1])
	must(m.t, err)
	keys, err := signed.ParseKeyDocument(payload)
	must(m.t, err)

	must(m.t, syscall.Kill(n.PID, syscall.SIGKILL))

	key, err := trust.OpenKey(n.Data)
	must(m.t, err)

	name := spiffeid.RequireTrustDomainFromString(m.Domains[0].TrustDomain)
	beta := spiffeid.RequireTrustDomainFromString(m.Domains[1].TrustDomain)
	ring := trust.NewKeyring(name, key, trust.NewBundles())
	ring.SetOwn(keys)

	p := &falsePeer{domain: &domain{name: name, ring: ring}, at: at, keys: keys, epoch: keys.Epoch,
		changed: make(chan struct{})}

	address, err := url.Parse(n.API)
	must(m.t, err)

	server := m.serves(p, spiffeid.RequireFromString(n.ID), beta, m.memberTLS(n))
	must(m.t, server.Listener.Close())
	launch.Eventually(m.t, "the address is free", func() (err error) {
		server.Listener, err = net.Listen("tcp", address.Host)
		return err
	})

	server.StartTLS()

	return p
}

// found returns the agents of the first domain that a node of the second one finds.
func (m *runningMesh) found(at dev.Node, agents ...string) (names []string) {
	m.t.Helper()

	for _, agent := range agents {
		status, answer, err := ask(m.t.Context(), m.as(1, "agent/ada"), http.MethodGet,
			at.API+"/ad/l?agent="+agent+"&domain="+m.Domains[0].TrustDomain, nil)
		if err != nil || status != http.StatusOK && status != http.StatusNotFound {
			m.t.Fatalf("looking %s up: %d %s: %v", agent, status, answer, err)
		}

		if strings.Contains(string(answer), `"`+agent+`"`) {
			names = append(names, agent)
		}
	}

	return names
}

// refusesNode fails unless a node of the second domain names a node of the first one, as one whose word it
// refuses, in its audit log, in its metrics, and to its operator.
func (m *runningMesh) refusesNode(at, thief dev.Node) {
	m.t.Helper()

	origin := m.Domains[0].TrustDomain

	launch.Eventually(m.t, at.ID+" names "+thief.ID, func() error {
		if m.metric(at, `roster_federation_contradicted_nodes{origin="`+origin+`",verdict="distrusted"}`) != 1 {
			return errors.New("the metric says nothing")
		}

		if nodes := m.peerStatus(at, origin).ContradictedNodes; len(nodes) != 1 || nodes[0].Node != thief.ID ||
			nodes[0].Key == "" {
			return fmt.Errorf("its operator is told %v", nodes)
		}

		return reportsMisconduct(m.t, at, thief, "peer.contradiction")
	})
}

// With the key and the address of one node a thief states a position that its domain will never reach, and
// announces an agent that nobody registered. Within a minute the peer's nodes show what the other nodes
// announce, and name the key (finding 29).
//
// Requirement: SEC-019
func TestOneNodesKeyNeitherSilencesNorInventsForLong(t *testing.T) {
	m := startMesh(t, "--domains", "2", "--nodes", "3")
	stolen, follower := m.Domains[0].Nodes[0], m.Domains[1].Nodes[0]

	m.acknowledge(m.Domains[0].Nodes[1], "before")
	launch.Eventually(t, "the peer has it", func() error {
		if found := m.found(follower, "before"); len(found) != 1 {
			return fmt.Errorf("found are %q", found)
		}

		return nil
	})

	p := m.impersonate(stolen, 1<<60)
	p.forge(t, "made-up", 1<<59)

	launch.Eventually(t, "the thief is believed", func() error {
		// A reader that waits for a position makes the follower ask one node after the other.
		status, answer, err := ask(t.Context(), m.as(1, "agent/ada"), http.MethodGet,
			fmt.Sprintf("%s/ad/l?agent=none&wait=1&min=%s", follower.API,
				url.QueryEscape(fmt.Sprintf("%s=%d.%d", m.Domains[0].TrustDomain, p.epoch, uint64(1<<59)))), nil)
		if err != nil || status == http.StatusBadRequest {
			t.Fatalf("waiting for a position: %d %s: %v", status, answer, err)
		}

		if found := m.found(follower, "made-up"); len(found) != 1 {
			peer := m.peerStatus(follower, m.Domains[0].TrustDomain)

			return fmt.Errorf("it isn't; the peer is %s, at %s of %s: %s", peer.State, peer.Watermark, peer.Tip,
				peer.LastError)
		}

		return nil
	})

	began := time.Now()

	launch.Eventually(t, "the domain goes on", func() error {
		status, answer, err := ask(t.Context(), m.as(0, "agent/ada"), http.MethodPost,
			m.Domains[0].Nodes[1].API+"/ad/r?agent=after", []byte(`{"base":"https://a.example/"}`))
		if err != nil || status != http.StatusCreated && status != http.StatusOK {
			return fmt.Errorf("%d %s %w", status, answer, err)
		}

		return nil
	})
	launch.Eventually(t, "the peer shows what the others announce", func() error {
		found := m.found(follower, "before", "made-up", "after")
		if strings.Join(found, " ") != "before after" {
			return fmt.Errorf("found are %q", found)
		}

		return nil
	})

	t.Logf("healed after %s", time.Since(began).Round(time.Second))
	m.refusesNode(follower, stolen)
}

// ledgerOf returns the entries of a node's ledger, which is not long.
func (m *runningMesh) ledgerOf(n dev.Node) (entries []ledger.Entry, epoch uint64) {
	m.t.Helper()

	client := m.as(0, "agent/ada")
	get := func(path string) string {
		status, answer, err := ask(m.t.Context(), client, http.MethodGet, n.API+path, nil)
		if err != nil || status != http.StatusOK {
			m.t.Fatalf("%s: %d %s: %v", path, status, answer, err)
		}

		return string(answer)
	}

	note, err := checkpoint.Parse(get("/log/checkpoint"))
	must(m.t, err)

	_, number, _ := strings.Cut(note.Origin, "/roster/")
	epoch, err = strconv.ParseUint(number, 10, 64)
	must(m.t, err)

	entries, err = ledger.ReadEntries([]byte(get(fmt.Sprintf("/log/%d/tile/entries/%s", epoch,
		ledger.TilePath(0, int(note.Size))))))
	must(m.t, err)

	return entries, epoch
}
