package scenarios

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A load is requests of one class that clients make one after another.
type load struct {
	class   string
	clients int
	request func(client, i int) (method, target, body string)
}

// A tally is how requests of one class were answered.
type tally struct {
	mu           sync.Mutex
	served, shed int
	other        []string
}

// drive runs all loads at once for a while, and returns the outcomes by class.
func (p *processes) drive(client *http.Client, loads []load, during time.Duration) map[string]*tally {
	ctx, cancel := context.WithTimeout(p.t.Context(), during)
	defer cancel()
	tallies := map[string]*tally{}

	var all sync.WaitGroup
	for _, l := range loads {
		t := &tally{}

		tallies[l.class] = t
		for n := range l.clients {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					t.count(p.request(ctx, client, l, n, i))
				}
			})
		}
	}

	all.Wait()

	return tallies
}

// request makes one request, and returns its status and problem; a request that was cut
// by the end of the load has none.
func (p *processes) request(ctx context.Context, client *http.Client, l load, n, i int) (status int, said string) {
	method, target, body := l.request(n, i)

	r, err := http.NewRequestWithContext(ctx, method, p.Domains[0].Nodes[0].API+target, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}

	if body == "" {
		r.Body = http.NoBody
	} else {
		r.Header.Set("Content-Type", "application/json")
	}

	resp, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return 0, ""
		}

		return 0, err.Error()
	}
	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	if err != nil && ctx.Err() != nil {
		return 0, ""
	}

	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		return resp.StatusCode, "503 without Retry-After"
	}

	return resp.StatusCode, string(text)
}

func (t *tally) count(status int, said string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	switch {
	case status == 0 && said == "":
	case status >= 200 && status < 300:
		t.served++
	case status == http.StatusServiceUnavailable && strings.Contains(said, "/problems/overloaded"):
		t.shed++
	default:
		t.other = append(t.other, fmt.Sprintf("%d %.200s", status, said))
	}
}

// shedAt returns a node's counters of shed requests, by class.
func shedAt(t *testing.T, url string) map[string]int {
	t.Helper()

	resp, err := admin.Get(url + "/metrics")
	must(t, err)
	defer resp.Body.Close()

	counts := map[string]int{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var n float64

		name, value, _ := strings.Cut(lines.Text(), " ")
		if class, ok := strings.CutPrefix(name, `roster_requests_shed_total{class="`); ok {
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatal(err)
			}

			counts[strings.TrimSuffix(class, `"}`)] = int(n)
		}
	}

	return counts
}

// A node gets far more requests than it can work on. It sheds ranked queries and
// continues with all else; it sheds lookups and continues with registrations and
// refreshes. Operators, health and metrics are answered all the time.
//
// Requirement: FORM-009
func TestAnOverloadedNodeShedsQueriesFirstAndRefreshesLast(t *testing.T) {
	p := startProcesses(t, "--domains", "1", "--sample", "0")
	p.configure(map[string]string{"workers: 0": "workers: 2", "waiting: 0": "waiting: 16"})
	n := p.Domains[0].Nodes[0]
	ada, operator := p.http(0, "agent/ada"), p.http(0, "ops/operator")

	document := func(i int) string {
		return fmt.Sprintf(`{"base":"https://planner.example/%d","description":"Plans the route number %d. %s"}`, i, i,
			strings.Repeat("It knows roads, rivers and railways. ", 40))
	}
	registration := func(client, i int) (string, string, string) {
		return "POST", fmt.Sprintf("/ad/r?agent=planner-%d&lt=600", (client*1000+i)%300), document(i)
	}

	setup := p.drive(ada, []load{{"registrations", 1, func(client, i int) (string, string, string) {
		return "POST", fmt.Sprintf("/ad/r?agent=planner-%d&lt=600", i%300), document(i)
	}}}, 4*time.Second)
	if s := setup["registrations"]; s.served < 10 || s.shed > 0 || len(s.other) > 0 {
		t.Fatalf("before the load %d were registered, %d shed, others: %q", s.served, s.shed, s.other)
	}

	query := func(client, i int) (string, string, string) {
		return "POST", "/discovery/query",
			`{"query":"plan a route by road, river or railway","limit":100,"include_evidence":true}`
	}
	lookup := func(client, i int) (string, string, string) { return "GET", "/ad/l?count=200", "" }
	refresh := func(client, i int) (string, string, string) {
		return "POST", fmt.Sprintf("/ad/r/planner-%d", i%10), ""
	}

	watch, done := context.WithCancel(t.Context())
	defer done()
	failed := make(chan string, 1)

	var watcher sync.WaitGroup
	watcher.Go(func() {
		for watch.Err() == nil {
			for client, target := range map[*http.Client]string{admin: n.Admin + "/healthz",
				operator: n.API + "/v1/operator/raft"} {
				resp, err := client.Get(target)
				if err != nil || resp.StatusCode != http.StatusOK {
					failed <- fmt.Sprintf("%s is answered with %v, %v", target, resp, err)
					return
				}

				_ = resp.Body.Close()
			}

			time.Sleep(50 * time.Millisecond)
		}
	})

	before := shedAt(t, n.Admin)
	for _, phase := range []struct {
		flood string
		loads []load
		lower string // is shed as well
	}{
		{"queries", []load{{"queries", 64, query}, {"lookups", 1, lookup}, {"registrations", 2, registration},
			{"refreshes", 2, refresh}}, ""},
		{"lookups", []load{{"queries", 4, query}, {"lookups", 64, lookup}, {"registrations", 2, registration},
			{"refreshes", 2, refresh}}, "queries"},
	} {
		got := p.drive(ada, phase.loads, 4*time.Second)
		for class, t2 := range got {
			t.Logf("under a flood of %s: of %s %d were served and %d shed", phase.flood, class, t2.served, t2.shed)

			switch {
			case len(t2.other) > 0:
				t.Errorf("under a flood of %s, %s were answered with %q", phase.flood, class, t2.other[0])
			case class == phase.flood && t2.shed == 0, class == phase.lower && t2.shed == 0:
				t.Errorf("under a flood of %s none of %s were shed", phase.flood, class)
			case class != phase.flood && class != phase.lower && (t2.shed > 0 || t2.served == 0):
				t.Errorf("under a flood of %s, of %s %d were shed and %d served", phase.flood, class, t2.shed,
					t2.served)
			}
		}
	}

	done()
	watcher.Wait()

	select {
	case what := <-failed:
		t.Error(what)
	default:
	}

	after := shedAt(t, n.Admin)
	if len(after) != 4 || after["queries"] <= before["queries"] || after["lookups"] <= before["lookups"] ||
		after["registrations"] != before["registrations"] || after["refreshes"] != before["refreshes"] {
		t.Errorf("the node counted %v, and %v before", after, before)
	}
}
