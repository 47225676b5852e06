package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// Shipped limits of one identity.
const (
	bytesPerOwner         = 16 << 20
	registrationsPerOwner = 10_000
)

// A hoard is the set of registrations by which one identity takes as much as it can.
type hoard struct {
	name     string
	size     int // bytes of one document, about
	document func(rng *rand.Rand, size int) []byte
	bound    int64 // bytes that it may cost a node
	long     bool  // it takes minutes at the rate that is shipped
}

var hoards = []hoard{
	{"large documents that nothing compresses", 64<<10 - 64, noise, 64 << 20, false},
	{"large documents of unique words", 64<<10 - 64, words, 64 << 20, false},
	// The index of a small document takes more memory than the document.
	{"small documents of unique words", bytesPerOwner / registrationsPerOwner, words, 96 << 20, true},
	{"small documents of unique tags", bytesPerOwner / registrationsPerOwner, tags, 128 << 20, true},
}

// A short test registers so many documents, which are within the quota.
const (
	shortDocuments = 32
	shortBound     = 24 << 20
)

const letters = "abcdefghijklmnopqrstuvwxyz0123456789"

func word(rng *rand.Rand, size int) string {
	var b strings.Builder
	for range size {
		b.WriteByte(letters[rng.IntN(len(letters))])
	}

	return b.String()
}

func noise(rng *rand.Rand, size int) []byte {
	return fmt.Appendf(nil, `{"base":"https://a.example","x":"%s"}`, word(rng, size-40))
}

// words fills descriptions of capabilities, each of at most 4096 bytes.
func words(rng *rand.Rand, size int) []byte {
	var capabilities []string
	for left := size - 60; left > 120; {
		var text []string
		for length := 60; length < min(left, 4000); length += 7 {
			text = append(text, word(rng, 6))
		}

		said := fmt.Sprintf(`{"name":"%s","type":"skill","description":"%s"}`, word(rng, 8), strings.Join(text, " "))
		capabilities = append(capabilities, said)
		left -= len(said) + 1
	}

	return fmt.Appendf(nil, `{"base":"https://a.example","capabilities":[%s]}`, strings.Join(capabilities, ","))
}

// tags are at most 64.
func tags(rng *rand.Rand, size int) []byte {
	var list []string
	for range 64 {
		list = append(list, `"`+word(rng, (size-60)/64-3)+`"`)
	}

	return fmt.Appendf(nil, `{"base":"https://a.example","tags":[%s]}`, strings.Join(list, ","))
}

// One identity registers the documents that cost most to hold, up to its limit, and
// tries to register more. The refusal names the limit. The memory and disk of a node of
// its domain and of a peer's node stay bounded. After a removal the identity may
// register again.
//
// Requirement: FORM-005
func TestOneIdentityCostsANodeLittle(t *testing.T) {
	for _, h := range hoards {
		t.Run(h.name, func(t *testing.T) {
			if h.long && os.Getenv("STORY_LONG") == "" {
				t.Skip("takes minutes; set STORY_LONG=1")
			}

			most, bound := math.MaxInt, h.bound
			if testing.Short() {
				most, bound = shortDocuments, shortBound
			}

			m := startMesh(t, "--domains", "2")
			nodes := []dev.Node{m.Domains[0].Nodes[0], m.Domains[1].Nodes[0]}
			before := []memory{m.memoryOf(nodes[0]), m.memoryOf(nodes[1])}

			taken, refusal := m.hoard(h, most)
			launch.Eventually(t, "the peer has them", func() error {
				if has := m.metric(nodes[1], `roster_registrations{origin="alpha.test"}`); int(has) != len(taken) {
					return fmt.Errorf("%.0f of %d", has, len(taken))
				}

				return nil
			})

			// Fetches under way and what they leave to the collector count until they end.
			for i, n := range nodes {
				launch.Eventually(t, n.ID+" holds little", func() error {
					cost := m.memoryOf(n).minus(before[i])
					t.Logf("%d documents of %d bytes cost %s %s", len(taken), h.size, n.ID, cost)

					if cost.live > bound {
						return fmt.Errorf("it holds %s; %d MiB are allowed", cost, bound>>20)
					}

					return nil
				})
			}

			m.quotasAreKept(h, taken, refusal)
		})
	}
}

// quotasAreKept checks the refusals and counters, and that a removal makes room.
func (m *runningMesh) quotasAreKept(h hoard, taken []string, refusal []byte) {
	m.t.Helper()
	own, peer := m.Domains[0].Nodes[0], m.Domains[1].Nodes[0]

	used := m.metric(own, "roster_quota_bytes")
	if used > bytesPerOwner || used < float64(len(taken)*h.size)*.9 {
		m.t.Errorf("%.0f bytes are counted of %d documents of %d", used, len(taken), h.size)
	}

	if limit := m.metric(own, "roster_quota_bytes_limit"); limit != 4<<30 {
		m.t.Errorf("the domain may have %.0f bytes", limit)
	}

	if limit := m.metric(peer, `roster_quota_peer_bytes_limit{origin=""}`); limit != 4<<30 {
		m.t.Errorf("%.0f bytes may be held of a peer", limit)
	}

	if held := m.metric(peer, `roster_quota_peer_bytes{origin="alpha.test"}`); held < used {
		m.t.Errorf("of a peer that has %.0f bytes %.0f are said to be held", used, held)
	}

	if testing.Short() {
		return
	}

	if share := m.metric(own, "roster_quota_largest_owner_ratio"); share < .9 {
		m.t.Errorf("the largest share is said to be %.2f", share)
	}

	var problem struct{ Type, Detail string }
	must(m.t, json.Unmarshal(refusal, &problem))

	named := regexp.MustCompile(`^limits\.(bytes|registrations)_per_owner: ` +
		`spiffe://alpha\.test/agent/ada .*\d+.* (16777216|10000)\b`)
	if !strings.HasSuffix(problem.Type, "/problems/quota-exceeded") || !named.MatchString(problem.Detail) {
		m.t.Errorf("the refusal is %s", refusal)
	}

	client := m.as(0, "agent/ada")

	status, answer, err := ask(m.t.Context(), client, http.MethodDelete, own.API+taken[0], nil)
	if err != nil || status != http.StatusNoContent {
		m.t.Fatalf("a removal: %d %s %v", status, answer, err)
	}

	document := h.document(rand.New(rand.NewPCG(2, 2)), h.size)
	launch.Eventually(m.t, "another in its place", func() error {
		status, answer, err := ask(m.t.Context(), client, http.MethodPost, own.API+"/ad/r?agent=another&lt=3600",
			document)
		if err == nil && status != http.StatusCreated {
			err = fmt.Errorf("%d %s", status, answer)
		}

		return err
	})
}

// hoard registers until the directory refuses or holds most documents. It returns their
// locations and the last refusal's text.
func (m *runningMesh) hoard(h hoard, most int) (taken []string, refusal []byte) {
	m.t.Helper()
	client, url := m.as(0, "agent/ada"), m.Domains[0].Nodes[0].API
	ctx, full := context.WithCancel(m.t.Context())
	defer full()

	var mu sync.Mutex // guards taken and refusal

	var next atomic.Int64
	register := func(rng *rand.Rand) error {
		n := next.Add(1)
		if int(n) > most {
			full()
			return nil
		}

		target := fmt.Sprintf("%s/ad/r?agent=hoard-%d&lt=86400", url, n)

		document := h.document(rng, h.size)
		for {
			status, location, answer, err := m.register(client, target, document)
			mu.Lock()
			switch {
			case err != nil:
			case status == http.StatusCreated:
				taken = append(taken, location)
			case status == http.StatusForbidden:
				refusal = answer
				full()
			case status != http.StatusTooManyRequests:
				err = fmt.Errorf("%d %s", status, answer)
			}

			mu.Unlock()

			if err != nil || status != http.StatusTooManyRequests {
				return err
			}

			time.Sleep(200 * time.Millisecond) // as who is paced does
		}
	}

	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for ctx.Err() == nil {
				if err := register(rng); err != nil {
					m.t.Error(err)
					full()
				}
			}
		})
	}

	workers.Wait()

	return taken, refusal
}

// register does one registration, and returns where it is.
func (m *runningMesh) register(client *http.Client, target string, document []byte) (status int, location string,
	answer []byte, err error) {
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, target, bytes.NewReader(document))
	if err != nil {
		return 0, "", nil, err
	}

	req.Header.Set("Content-Type", "application/json")

	resp, err := client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))

	return resp.StatusCode, resp.Header.Get("Location"), answer, err
}
