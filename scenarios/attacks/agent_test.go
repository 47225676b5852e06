package attacks

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/launch"
)

// Sixteen hostile invocations at once cost a node a bounded amount of memory, and other
// callers' lookups stay fast (finding 3).
//
// Requirement: SEC-005
func TestHostileInputsCostOthersLittle(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	})

	var attacks []attack

	for i, hostile := range hostileJudgements() {
		name := fmt.Sprintf("hostile-%d", i)
		m.registerAgent(0, "agent/ada", name, server.URL, `"input_schema":`+hostile.schema)
		attacks = append(attacks, attack{hostile.name, "/agents/" + name + "/invoke", []byte(hostile.value)})
	}

	m.withstands(attacks)
}

// An agent registers the listeners of its own directory as its endpoint, by address and by
// name, so that the gateway would be its hands inside. Each is refused at every node before a
// connection is made, whichever member listens there (finding 4).
//
// Requirement: SEC-009
func TestAnAgentDoesNotReachTheDirectoryThroughItsGateway(t *testing.T) {
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	endpoints := map[string]string{}

	for i, n := range m.Domains[0].Nodes {
		for kind, address := range map[string]string{
			"api": strings.TrimPrefix(n.API, "https://"), "admin": strings.TrimPrefix(n.Admin, "http://"),
			"raft": n.Raft, "gossip": n.Gossip,
		} {
			endpoints[fmt.Sprintf("%s-%d", kind, i)] = "https://" + address + "/v1/restore"
			endpoints[fmt.Sprintf("%s-%d-named", kind, i)] =
				"https://" + strings.Replace(address, "127.0.0.1", "localhost", 1) + "/agents/x/invoke"
		}
	}

	for name, endpoint := range endpoints {
		m.registerAgent(0, "agent/ada", name, endpoint, `"input_schema":{"type":"object"}`)
	}

	caller := m.as(0, "agent/bob")

	for _, n := range m.Domains[0].Nodes {
		for name := range endpoints {
			// Members publish their listeners once all read the version that has them.
			launch.Eventually(t, name+" is refused at "+n.ID, func() error {
				status, answer, err := ask(t.Context(), caller, http.MethodPost, n.API+"/agents/"+name+"/invoke",
					[]byte(`{}`))
				if err == nil && (status != http.StatusForbidden || !strings.Contains(problemOf(answer), `"address"`)) {
					err = fmt.Errorf("%d %s", status, answer)
				}

				return err
			})
		}
	}
}

// auditRetention is the size of an audit log by default: audit.size times audit.files.
const auditRetention = 32 * 64 << 20

// One agent does as fast as it may what makes long lines and many: with names of 255 bytes
// it registers, refreshes lists, names one registration a thousand times in a list, and has
// changes refused, by the domain and before. In an hour its refusals and refreshes fill at
// most 1 % of the audit log, and its accepted changes 15 % (finding 8).
//
// Requirement: SEC-013
func TestAnAgentDoesNotPushTheAuditLogOut(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]
	ada, eve := m.as(0, "agent/ada"), m.as(0, "agent/eve")

	// grown returns by how many bytes requests of a client make the log grow.
	grown := func(client *http.Client, method, path, body string, times int) (bytes float64, statuses map[int]int) {
		t.Helper()

		before, err := os.Stat(filepath.Join(node.Data, "audit.jsonl"))
		must(t, err)

		statuses = map[int]int{}

		for i := range times {
			target := node.API + strings.ReplaceAll(path, "NAME", fmt.Sprintf("%s%05d", strings.Repeat("a", 250), i))
			status, _, err := ask(t.Context(), client, method, target, []byte(body))
			must(t, err)

			statuses[status]++
		}

		time.Sleep(200 * time.Millisecond) // refusals are written behind

		after, err := os.Stat(filepath.Join(node.Data, "audit.jsonl"))
		must(t, err)

		return float64(after.Size() - before.Size()), statuses
	}

	const document, registrations = `{"base":"https://agent.example/"}`, 200

	accepted, statuses := grown(ada, "POST", "/ad/r?agent=NAME&lt=86400", document, registrations)
	if statuses[201] != registrations {
		t.Fatalf("registrations: %v", statuses)
	}

	items := make([]string, registrations)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id":"%s%05d","lt":86400}`, strings.Repeat("a", 250), i)
	}

	same := "[" + strings.TrimSuffix(strings.Repeat(items[0]+",", 200), ",") + "]"
	if _, statuses = grown(ada, "POST", "/ad/refresh", same, 5); statuses[400] != 5 {
		t.Errorf("a list that names one registration 200 times: %v", statuses)
	}

	list := "[" + strings.Join(items, ",") + "]"

	lists, statuses := grown(ada, "POST", "/ad/refresh", list, 30)
	if statuses[200] == 0 {
		t.Errorf("lists: %v", statuses)
	}

	refreshes, statuses := grown(ada, "POST", "/ad/r/NAME", "", 200)
	if statuses[404]+statuses[204]+statuses[429] == 0 {
		t.Errorf("refreshes: %v", statuses)
	}

	// 100 at once and two a second may be refused by the domain, however fast this machine asks.
	began := time.Now()

	refused, statuses := grown(eve, "POST", "/ad/r?agent=NAME", document, 150)
	if most := 110 + 2*int(time.Since(began).Seconds()); statuses[409] == 0 || statuses[409] > most {
		t.Errorf("names of others: %v, at most %d refused by the domain", statuses, most)
	}

	taken := float64(statuses[409])
	before, statuses := grown(eve, "GET", "/v1/operator/raft", "", 300)

	if statuses[403] == 0 {
		t.Errorf("an operator's route: %v", statuses)
	}

	// The bounds are of a minute. A change has 50 tokens a second, and a refused one two.
	changes := accepted / registrations * 50 * 3600 / auditRetention
	others := (60*(lists+refreshes+before) + refused/taken*(100+2*3600)) / auditRetention
	t.Logf("in an hour: accepted changes %.2f %% of %d MiB (%.0f bytes each), refusals and refreshes %.2f %% "+
		"(lists and refreshes %.0f bytes a minute, %.0f bytes for each change refused by the domain, others %.0f bytes a minute)",
		100*changes, auditRetention>>20, accepted/registrations, 100*others, lists+refreshes, refused/taken, before)

	if changes > .15 || others > .01 {
		t.Errorf("%.1f %% and %.2f %% of the audit log in an hour, at most 15 %% and 1 %% are allowed", 100*changes,
			100*others)
	}
}

// An agent's bodies that never end, to its own invoke route by many connections and streams,
// take no more than the share of one identity (finding 21).
//
// Requirement: SEC-001, SEC-002
func TestEndlessBodiesOfAnAgentAreBounded(t *testing.T) {
	t.Setenv("GOGC", "20") // to measure what is held, not garbage

	m := startMesh(t, "--domains", "1")
	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	m.registerAgent(0, "agent/ada", "hog", server.URL, `"input_schema":{}`)

	var clients []*http.Client
	for range 8 {
		clients = append(clients, m.as(0, "agent/ada"))
	}

	m.holds(m.Domains[0].Nodes[0], endless{clients, 60, []target{{"/agents/hog/invoke", 900 << 10}}}, 32<<20)
}
