package attacks

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
	"github.com/roster-mesh/roster/trust"
)

// identities is how many identities a peer makes: more than it needs to have all shares if
// each had its own.
const identities = 1000

// A peer with many identities gets at most twice the rate and the watches of one of them, and
// the operator of the domain is answered fast meanwhile (finding 7).
//
// Requirement: SEC-004
func TestAPeerHasTheShareOfTwoIdentities(t *testing.T) {
	m := startMesh(t, "--domains", "3")
	node := m.Domains[0].Nodes[0]

	one := m.queries(node, m.foreign(1, "/agent", 1))

	many := make(chan float64, 1)
	clients := m.foreign(2, "/agent", identities)
	m.connect(node, clients)

	quiet, quiet99 := m.operatorTakes(node, time.Second)

	go func() { many <- m.queries(node, clients) }()

	p50, p99 := m.operatorTakes(node, floodTime)
	all := <-many

	t.Logf("one identity gets %.1f queries a second, all of a domain %.1f; the operator waits %s, %s at p99, "+
		"%s and %s without them", one, all, p50, p99, quiet, quiet99)

	if all > 2.1*one {
		t.Errorf("a domain with %d identities gets %.1f queries a second, one with a single identity %.1f", identities, all, one)
	}

	if most := launch.Within(operatorWaits); p50 > most {
		t.Errorf("the operator waits %s, want at most %s", p50, most)
	}

	// Shares of 1,024 watches.
	if of := m.watches(node, clients[:1]); of != 64 {
		t.Errorf("one identity has %d watches, want a sixteenth", of)
	}

	if of := m.watches(node, clients[1:9]); of != 64 {
		t.Errorf("all others of its domain have %d watches, want a sixteenth as well", of)
	}

	if of := m.watches(node, m.foreign(1, "/agent", 1)); of != 64 {
		t.Errorf("an identity of another domain has %d watches", of)
	}

	if of := m.watches(node, []*http.Client{m.as(0, "agent/bob")}); of != 128 {
		t.Errorf("an identity of the domain has %d watches, want an eighth", of)
	}
}

// foreign returns clients of the first domain that show identities of another, below a path.
func (m *runningMesh) foreign(domain int, path string, count int) (clients []*http.Client) {
	m.t.Helper()

	certificate, err := os.ReadFile(m.Domains[domain].Bundle)
	must(m.t, err)
	key, err := os.ReadFile(m.Domains[domain].CAKey)
	must(m.t, err)
	ca, err := trust.LoadCA(certificate, key)
	must(m.t, err)

	for i := range count {
		svid, err := ca.Issue(fmt.Sprintf("%s/%d", path, i), time.Hour, time.Now())
		must(m.t, err)

		clients = append(clients, m.client(&tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{*trust.NewSource(svid).Certificate()},
		}, &net.Dialer{}))
	}

	return clients
}

// connect opens the connections of clients, so that their handshakes, half of which this
// machine does as the client, are not measured.
func (m *runningMesh) connect(n dev.Node, clients []*http.Client) {
	m.t.Helper()

	for _, client := range clients {
		if _, _, err := ask(m.t.Context(), client, http.MethodGet, n.API+"/.well-known/ad", nil); err != nil {
			m.t.Fatal(err)
		}
	}
}

// floodTime is how long a peer sends all that it can.
const floodTime = 4 * time.Second

// queries returns how many queries of clients are answered in a second, of the flood's time and
// the ten seconds before it whose requests may be made at once.
func (m *runningMesh) queries(n dev.Node, clients []*http.Client) float64 {
	var (
		all      sync.WaitGroup
		answered atomic.Int64
	)

	began := time.Now()

	for i := range max(len(clients), 16) { // one client, too, asks for all that it may have
		client := clients[i%len(clients)]

		all.Go(func() {
			for time.Since(began) < floodTime {
				status, _, err := ask(m.t.Context(), client, http.MethodPost, n.API+"/discovery/query",
					[]byte(`{"query":"anything"}`))
				if err == nil && status == http.StatusOK {
					answered.Add(1)
				}

				if status == http.StatusTooManyRequests {
					time.Sleep(500 * time.Millisecond)
				}
			}
		})
	}

	all.Wait()

	return float64(answered.Load()) / (10 + time.Since(began).Seconds())
}

// watches returns how many watches clients get, one after the other until all were refused.
func (m *runningMesh) watches(n dev.Node, clients []*http.Client) (opened int) {
	m.t.Helper()

	for _, client := range clients {
		for {
			req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, n.API+"/ad/watch", nil)
			must(m.t, err)

			client.Timeout = 0
			answer, err := client.Do(req)
			must(m.t, err)
			m.t.Cleanup(func() { _ = answer.Body.Close() })

			if answer.StatusCode != http.StatusOK {
				break
			}

			opened++
		}
	}

	return opened
}
