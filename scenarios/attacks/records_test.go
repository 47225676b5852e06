package attacks

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	recordRequests = 64       // at once; half of them are over the share of a domain
)

// mostDelay returns the bar of the operator's 99th percentile: that of the threat model if STORY_LONG asks
// for it, else one for a machine whose processors other tests use too.
func mostDelay() time.Duration {
	if os.Getenv("STORY_LONG") == "" {
		return 250 * time.Millisecond
	}

	return 20 * time.Millisecond
}

// takeRecords asks for records, and drops the answer as it comes: the attacker shares the processors with the
// node here.
func takeRecords(ctx context.Context, peer *http.Client, n dev.Node, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.API+"/federation/v1/records", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "zstd")

	resp, err := peer.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	_, err = io.Copy(io.Discard, resp.Body)

	return resp.StatusCode, err
}

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
		refused  atomic.Int64
	)

	began := time.Now()

	for range recordRequests {
		all.Go(func() {
			for ctx.Err() == nil {
				status, err := takeRecords(ctx, peer, node, body)

				switch {
				case err == nil && status == http.StatusOK:
					answered.Add(1)
				case err == nil:
					refused.Add(1)
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
	took := time.Since(began)

	stop()
	all.Wait()
	t.Logf("the operator waits %s, %s at p99; %s and %s while %d requests for records are answered and %d refused",
		quiet, quietHigh, busy, busyHigh, answered.Load(), refused.Load())

	if busyHigh > max(2*quietHigh, mostDelay()) {
		t.Errorf("the operator waits %s at p99, %s without the peer", busyHigh, quietHigh)
	}

	// Requests over the share are refused late. Without that, thousands are.
	if most := int64(recordRequests * (took/time.Second + 1)); refused.Load() > most {
		t.Errorf("%d requests are refused in %s, want at most %d", refused.Load(), took, most)
	}
}
