package attacks

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// Bars of SEC-005.
const (
	judgementsAtOnce = 16
	judgementMemory  = 256 << 20 // bytes that all of them may add to a node's resident set
	judgementLatency = 20 * time.Millisecond
	judgementRounds  = 3 // of which the median counts
	quietTime        = 300 * time.Millisecond
	attackTime       = 700 * time.Millisecond
	invocationSize   = 1<<20 - 64
)

// A judgement is a schema with a value that costs as much as possible to judge by it.
type judgement struct {
	name   string
	schema string
	value  string
}

// hostileJudgements are schemas of agents, and values of almost 1 MB.
func hostileJudgements() []judgement {
	alternatives := strings.Repeat(
		`{"type":"string","minLength":9},{"required":["a"],"properties":{"a":{"type":"null"}}},`, 40) + "false"
	objects := `{"v":[` + strings.Repeat(`{"a":1},`, invocationSize/8-2) + `{"a":1}]}`
	text := `{"v":"` + strings.Repeat("a", invocationSize-16) + `"}`
	within := func(schema string) string { return `{"type":"object","properties":{"v":` + schema + `}}` }

	var names, numbers strings.Builder
	for i := range invocationSize / 11 {
		fmt.Fprintf(&names, `,"%x":0`, 1<<20+i)
	}

	for i := range invocationSize / 8 {
		fmt.Fprintf(&numbers, ",%d", 1_000_000+i)
	}

	return []judgement{
		{"a trivial schema", `{"type":"object"}`, objects},
		{"anyOf over items", within(`{"items":{"anyOf":[` + alternatives + `]}}`), objects},
		{"oneOf over items", within(`{"items":{"oneOf":[` + alternatives + `]}}`), objects},
		{"a pattern over a long text", within(`{"pattern":"^a*b$"}`), text},
		{"unique numbers", within(`{"uniqueItems":true}`), `{"v":[` + numbers.String()[1:] + `]}`},
		{"patterns over names", within(`{"patternProperties":{"(x+x+)+y":{"type":"null"}}}`),
			`{"v":{` + names.String()[1:] + `}}`},
	}
}

// An attack is a request that a hostile caller repeats.
type attack struct {
	name, path string
	body       []byte
}

// agentServer starts an agent with the certificate of one of a domain's identities.
func (m *runningMesh) agentServer(domain int, who string, handler http.HandlerFunc) *httptest.Server {
	return launch.Agent(m.t, &m.Domains[domain], who, handler)
}

// registerAgent registers an agent with one operation, whose schemas are given as members.
func (m *runningMesh) registerAgent(domain int, who, name, base, schemas string) {
	m.t.Helper()

	document := fmt.Sprintf(`{"base":%q,"protocols":["https"],"capabilities":[{"name":"do","type":"tool",%s}]}`,
		base, schemas)
	target := m.Domains[domain].Nodes[0].API + "/ad/r?lt=3600&agent=" + name

	status, _, answer, err := m.register(m.as(domain, who), target, []byte(document))
	if err != nil || status != http.StatusCreated {
		m.t.Fatalf("%s: %d %s %v", name, status, answer, err)
	}
}

// withstands repeats each attack on 16 connections at the first node of domain 0, and
// compares another caller's lookups with those of a quiet node.
func (m *runningMesh) withstands(attacks []attack) {
	m.t.Helper()

	node := m.Domains[0].Nodes[0]
	reader := m.as(0, "agent/bob")
	m.lookups(reader, node, quietTime)

	for _, attack := range attacks {
		var quiet, loud []time.Duration

		most, answers := int64(0), map[int]int{}

		for range judgementRounds {
			quiet = append(quiet, m.lookups(reader, node, quietTime))
			before := m.memoryOf(node).resident
			resetPeak(m.t, node)

			stop := m.flood(attack, answers)
			loud = append(loud, m.lookups(reader, node, attackTime))

			stop()

			most = max(most, peakOf(m.t, node)-before)
		}

		slices.Sort(quiet)
		slices.Sort(loud)

		bound := launch.Within(max(2*quiet[judgementRounds/2], judgementLatency))

		m.t.Logf("%s: p99 of lookups %s quiet, %s under attack; + %d MiB; answers %v", attack.name, quiet, loud,
			most>>20, answers)

		if got := loud[judgementRounds/2]; got > bound {
			m.t.Errorf("%s: another caller's lookups take %s at p99, want at most %s", attack.name, got, bound)
		}

		if bar := mostMemory(judgementMemory); most > bar {
			m.t.Errorf("%s: the node grows by %d MiB, want at most %d", attack.name, most>>20, bar>>20)
		}
	}
}

// flood repeats an attack on 16 connections until stop is called, and counts the answers
// by status.
func (m *runningMesh) flood(attack attack, answers map[int]int) (stop func()) {
	ctx, cancel := context.WithCancel(m.t.Context())
	url := m.Domains[0].Nodes[0].API + attack.path

	var (
		mu      sync.Mutex // guards answers
		clients sync.WaitGroup
	)

	// Two identities, because one may have half of them at one agent.
	for i := range judgementsAtOnce {
		client := m.as(0, []string{"agent/eve", "agent/ada"}[i%2])

		clients.Go(func() {
			for ctx.Err() == nil {
				status, _, err := ask(ctx, client, http.MethodPost, url, attack.body)
				if err != nil {
					continue
				}

				mu.Lock()
				answers[status]++
				mu.Unlock()
			}
		})
	}

	return func() {
		cancel()
		clients.Wait()
	}
}

// lookups returns the 99th percentile of a caller's lookups, one after the other.
func (m *runningMesh) lookups(client *http.Client, node dev.Node, during time.Duration) time.Duration {
	m.t.Helper()

	var all []time.Duration

	for end := time.Now().Add(during); time.Now().Before(end) || len(all) == 0; {
		began := time.Now()

		status, answer, err := ask(m.t.Context(), client, http.MethodGet, node.API+"/ad/l?agent=hostile-0", nil)
		if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests {
			m.t.Fatalf("a lookup: %d %s %v", status, answer, err)
		}

		if status == http.StatusOK {
			all = append(all, time.Since(began))
		}

		time.Sleep(2 * time.Millisecond)
	}

	slices.Sort(all)

	return all[len(all)*99/100]
}

// resetPeak makes the kernel forget the highest resident set of a node's process.
func resetPeak(t *testing.T, node dev.Node) {
	t.Helper()
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", node.PID), []byte("5"), 0))
}

// peakOf returns the highest resident set of a node's process since resetPeak, in bytes.
func peakOf(t *testing.T, node dev.Node) int64 {
	t.Helper()
	process, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", node.PID))
	must(t, err)

	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(process)
	if peak == nil {
		t.Fatalf("no VmHWM in %s", bytes.TrimSpace(process))
	}

	kilobytes, err := strconv.ParseInt(string(peak[1]), 10, 64)
	must(t, err)

	return kilobytes << 10
}
