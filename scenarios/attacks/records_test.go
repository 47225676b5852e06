package attacks

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
)

// Bars of a peer's node that asks for records without end.
const (
	recordAgents   = 300
	recordSize     = 20 << 10 // bytes of a document
	recordRequests = 64       // at once

	// recordDelay bounds the operator's median meanwhile: the peer's client shares the processors here.
	recordDelay = 100 * time.Millisecond
)

// recordNames returns the names of all records that a node gives to another domain's node.
func (m *runningMesh) recordNames(peer *http.Client, n dev.Node) (names [][2]string) {
	m.t.Helper()

	target := n.API + "/federation/v1/pages?origin=alpha.test&aud=mesh&since=0&limit=1000"

	status, page, err := ask(m.t.Context(), peer, http.MethodGet, target, nil)
	if err != nil || status != http.StatusOK {
		m.t.Fatalf("a page: %d %s: %v", status, page, err)
	}

	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(string(page), ".")[1])
	must(m.t, err)

	var digests struct {
		D []struct{ H, M string } `json:"d"`
	}

	must(m.t, json.Unmarshal(payload, &digests))

	for _, digest := range digests.D {
		if digest.H != "" && digest.M != "" {
			names = append(names, [2]string{digest.H, digest.M})
		}
	}

	return names
}

// A node of a peer asks for all records again and again, many at once. Whoever looks something up
// meanwhile waits little: reading for peers takes places of its own (finding 34).
//
// Requirement: MESH-026
func TestRecordsForAPeerDelayNobody(t *testing.T) {
	m := startMesh(t, "--domains", "2")
	node, agent := m.Domains[0].Nodes[0], m.as(0, "agent/ada")
	note := strings.Repeat("x", recordSize)

	for i := range recordAgents {
		document := fmt.Sprintf(`{"base":"https://agent.example/%d","note":%q}`, i, note)
		target := fmt.Sprintf("%s/ad/r?agent=record-%d&lt=3600", node.API, i)

		eventually(t, time.Minute, "an agent is registered", func() error {
			status, _, answer, err := m.register(agent, target, []byte(document))
			if err == nil && status != http.StatusCreated {
				err = fmt.Errorf("%d %s", status, answer)
			}

			return err
		})
	}

	peer := m.foreign(1, "/roster/node", 2)[1] // of node 1, which the peer's key document lists
	names := m.recordNames(peer, node)

	if len(names) < recordAgents {
		t.Fatalf("the peer's node gets %d names of %d", len(names), recordAgents)
	}

	body, err := json.Marshal(map[string]any{"origin": "alpha.test", "names": names})
	must(t, err)

	quiet, quietHigh := m.operatorTakes(node, 3*time.Second)
	ctx, stop := context.WithCancel(t.Context())

	var (
		all      sync.WaitGroup
		answered atomic.Int64
	)

	for range recordRequests {
		all.Go(func() {
			for ctx.Err() == nil {
				status, _, err := ask(ctx, peer, http.MethodPost, node.API+"/federation/v1/records", bytes.Clone(body))
				if err == nil && status == http.StatusOK {
					answered.Add(1)
				}
			}
		})
	}

	busy, busyHigh := m.operatorTakes(node, 6*time.Second)

	eventually(t, time.Minute, "a request for records is answered", func() error {
		if answered.Load() == 0 {
			return errors.New("none is")
		}

		return nil
	})
	stop()
	all.Wait()
	t.Logf("the operator waits %s, %s at p99; %s and %s while %d requests for records are answered", quiet, quietHigh,
		busy, busyHigh, answered.Load())

	if busy > max(2*quiet, recordDelay) {
		t.Errorf("the operator waits %s, %s without the peer", busy, quiet)
	}
}
