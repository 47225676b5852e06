package scenarios

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// An asker sends requests to one node as one of its domain's identities.
type asker func(method, target string) *answer

func askAt(t *testing.T, m *mesh.Mesh, n *mesh.Node, who string) asker {
	client := n.HTTP(who)

	return func(method, target string) *answer {
		t.Helper()
		return exchangeOf(t, client, n.URL(), method, target, "")
	}
}

// exchangeOf sends one request and reads the response.
func exchangeOf(t *testing.T, client *http.Client, url, method, target, body string, header ...string) *answer {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), method, url+target, strings.NewReader(body))
	must(t, err)

	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}

	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	resp, err := client.Do(req)
	must(t, err)
	defer resp.Body.Close()

	b, err := io.ReadAll(resp.Body)
	must(t, err)

	return &answer{resp.StatusCode, resp.Header, b}
}

// want fails unless the answer has that status, and returns its JSON.
func (a *answer) want(t *testing.T, status int) map[string]any {
	t.Helper()

	if a.status != status {
		t.Fatalf("status %d, want %d; body %s", a.status, status, a.body)
	}

	var v map[string]any
	if len(a.body) > 0 {
		if err := json.Unmarshal(a.body, &v); err != nil {
			t.Fatalf("body %s: %v", a.body, err)
		}
	}

	return v
}

func problemOf(a *answer) string {
	var v struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(a.body, &v)

	return v.Type[strings.LastIndexByte(v.Type, '/')+1:]
}

// hrefs returns the paths of a listing's items.
func hrefs(v map[string]any) (paths []string) {
	for _, item := range v["agents"].([]any) {
		paths = append(paths, item.(map[string]any)["href"].(string))
	}

	return paths
}

// Any member of the domain continues a listing, and each item's href resolves on every
// member to a registration that agrees with the item.
//
// Requirement: AD-032, AD-064, AD-065
func TestAnyMemberContinuesAListing(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan})

		var agents []*mesh.Agent
		for i := range 12 {
			for _, d := range m.Domains {
				agents = append(agents, m.RegisterAt(d.Nodes[i%3], fmt.Sprintf("listed-%d", i), 3600))
			}
		}

		for _, a := range agents {
			m.Eventually(5*time.Second, a.Name+" is seen everywhere", func() error { return m.Seen(a) })
		}

		var orders [][]string
		for start := range 3 {
			var order []string

			nodes := m.Domains[0].Nodes
			for at, target := start, "/ad/l?agent=listed-*&count=5"; target != ""; at++ {
				ask := askAt(t, m, nodes[at%3], "/client/reader")

				got := ask("GET", target)
				for _, item := range got.want(t, 200)["agents"].([]any) {
					item := item.(map[string]any)
					order = append(order, item["href"].(string))

					there := askAt(t, m, nodes[(at+1)%3], "/client/reader")("GET", item["href"].(string)).want(t, 200)
					if a, b := item["provenance"].(map[string]any)["revision"],
						there["provenance"].(map[string]any)["revision"]; a != b || there["agent"] != item["agent"] {
						t.Errorf("%s: revision %v in the list, %v there", item["href"], a, b)
					}
				}

				target, _, _ = strings.Cut(strings.TrimPrefix(got.header.Get("Link"), "<"), ">")
			}

			orders = append(orders, order)
		}

		for _, order := range orders {
			if len(order) != len(agents) || !slices.Equal(order, orders[0]) {
				t.Errorf("%d are listed, of %d; the orders are %q", len(order), len(agents), orders)
			}
		}
	})
}

// configure ends a node, changes its configuration, and starts it again.
func (p *processes) configure(changes map[string]string) {
	p.t.Helper()
	n := p.Domains[0].Nodes[0]

	b, err := os.ReadFile(n.Config)
	must(p.t, err)

	text := string(b)
	for was, is := range changes {
		if !strings.Contains(text, was) {
			p.t.Fatalf("%s has no %q", n.Config, was)
		}

		text = strings.Replace(text, was, is, 1)
	}

	p.kill(n)
	p.eventually(10*time.Second, n.ID+" is gone", func() error {
		ln, err := net.Listen("tcp", strings.TrimPrefix(n.API, "https://"))
		if err != nil {
			return err
		}

		return ln.Close()
	})

	must(p.t, os.WriteFile(n.Config, []byte(text), 0o600))

	p.restart(n)
}

// An operator's configuration holds on the real binary: names are held, owners have a
// quota, callers a rate. A domain with the shipped policy shows nothing to callers
// without permission, except that a name is taken.
//
// Requirement: AD-034, AD-035, AD-041, AD-043, AD-069
func TestAnOperatorsLimits(t *testing.T) {
	p := startProcesses(t, "--domains", "1", "--sample", "0")
	p.configure(map[string]string{"hold: 0s": "hold: 1h", "registrations_per_owner: 0": "registrations_per_owner: 2",
		"policy: development": "policy: shipped"})
	url := p.Domains[0].Nodes[0].API
	clients := map[string]*http.Client{"": p.http(0, "")}
	do := func(who, method, target string, header ...string) *answer {
		t.Helper()

		if clients[who] == nil {
			clients[who] = p.http(0, "agent/"+who)
		}

		body := ""
		if method == "POST" && strings.Contains(target, "?agent=") {
			body = `{"base":"https://agents.example.com/x"}`
		}

		return exchangeOf(t, clients[who], url, method, target, body, header...)
	}
	refused := func(a *answer, status int, problem string) {
		t.Helper()

		if a.want(t, status); problemOf(a) != problem {
			t.Errorf("%d %s, want %s", a.status, a.body, problem)
		}
	}

	one := do("ada", "POST", "/ad/r?agent=one")
	one.want(t, 201)
	at := one.header.Get("Location")
	do("ada", "POST", "/ad/r?agent=two").want(t, 201)
	refused(do("ada", "POST", "/ad/r?agent=three"), 403, "quota-exceeded")
	do("ada", "POST", "/ad/r?agent=one", "If-Match", "*").want(t, 200)
	refused(do("ada", "POST", "/ad/r?agent=one", "If-None-Match", "*"), 412, "precondition-failed")
	refused(do("bob", "POST", "/ad/r?agent=one", "If-None-Match", "*"), 409, "agent-name-taken")

	// shipped: only the domain's own identities read
	do("bob", "GET", at).want(t, 200)
	refused(do("", "GET", at), 404, "not-found")
	refused(do("", "GET", at, "If-None-Match", "*"), 404, "not-found")
	refused(do("", "GET", at+"/record"), 404, "not-found")
	refused(do("", "GET", "/ad/r/one"), 404, "not-found")

	hidden := do("", "GET", "/ad/l?count=1")
	if found := hrefs(hidden.want(t, 200)); len(found) > 0 || hidden.header.Get("Link") != "" {
		t.Errorf("an anonymous lookup finds %q, Link %q", found, hidden.header.Get("Link"))
	}

	do("ada", "DELETE", at).want(t, 204)
	held := do("bob", "POST", "/ad/r?agent=one")
	refused(held, 409, "agent-name-taken")

	if !strings.Contains(string(held.body), "is held for its former registrant until") {
		t.Errorf("the refusal says %s", held.body)
	}

	do("ada", "POST", "/ad/r?agent=one").want(t, 201)

	for _, target := range []string{at, do("ada", "GET", "/ad/r/two").header.Get("Content-Location")} {
		_ = do("ada", "DELETE", target)
	}

	p.configure(map[string]string{"registrations: 0": "registrations: 1", "lookups: 0": "lookups: 0.1",
		"hold: 1h": "hold: 0s"})
	do("bob", "POST", "/ad/r?agent=two").want(t, 201) // it was held, and isn't any more
	limited := do("bob", "GET", "/ad/l")
	limited.want(t, 200)

	if got := limited.header.Get("RateLimit-Policy") + " " +
		limited.header.Get("RateLimit"); got != `"reads";q=1;w=10 "reads";r=0;t=10` {
		t.Errorf("the limits are %s", got)
	}

	limited = do("bob", "GET", "/ad/l")
	refused(limited, 429, "rate-limited")

	if wait, err := strconv.Atoi(limited.header.Get("Retry-After")); err != nil || wait < 5 || wait > 10 {
		t.Errorf("Retry-After is %q", limited.header.Get("Retry-After"))
	}

	do("ada", "GET", "/ad/l").want(t, 200)
	do("", "GET", "/ad/l").want(t, 200)

	writes := 0 // a name that is taken counts, so that names can't be found out at will
	for ; writes < 30; writes++ {
		if do("eve", "POST", "/ad/r?agent=two").status == http.StatusTooManyRequests {
			break
		}
	}

	if writes < 10 || writes > 20 {
		t.Errorf("%d writes were let through at 10 at once and 1 a second", writes)
	}
}

// The directory lists addresses of agents and never contacts them: neither base, nor
// identity, nor a schema's $id, in any domain.
//
// Requirement: AD-003, AD-051
func TestTheDirectoryNeverCallsAnAgent(t *testing.T) {
	p := startProcesses(t, "--domains", "2", "--sample", "0")

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	var calls atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)

		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			calls.Add(1)
			_ = c.Close()
		}
	}()
	base := "https://" + ln.Addr().String()
	document := fmt.Sprintf(`{"base":%q,"identity":%q,"identity_type":"did:web",`+
		`"capabilities":[{"name":"c","type":"tool","input_schema":{"$id":%q,"$ref":"#"}}]}`,
		base+"/agent", base+"/identity", base+"/schema.json")
	url := p.Domains[0].Nodes[0].API
	ada, bob := p.http(0, "agent/ada"), p.http(1, "agent/bob")
	made := exchangeOf(t, ada, url, "POST", "/ad/r?agent=uncalled", document)
	made.want(t, 201)

	at := made.header.Get("Location")
	for _, suffix := range []string{"", "/record", "/proof"} {
		exchangeOf(t, ada, url, "GET", at+suffix, "").want2xx(t)
	}

	exchangeOf(t, ada, url, "POST", at, "").want(t, 204)
	p.eventually(10*time.Second, "the other domain lists it", func() error {
		found := hrefs(exchangeOf(t, bob, p.Domains[1].Nodes[0].API, "GET", "/ad/l?agent=uncalled", "").want(t, 200))
		if len(found) != 1 {
			return errors.New("not there")
		}

		exchangeOf(t, bob, p.Domains[1].Nodes[0].API, "GET", found[0], "").want2xx(t)

		return nil
	})

	for _, path := range []string{"/invoke", "/c", "/agent"} { // nor is there a way to make it
		if got := exchangeOf(t, ada, url, "POST", at+path, `{}`); got.status != 404 && got.status != 405 {
			t.Errorf("POST %s%s: %d", at, path, got.status)
		}
	}

	exchangeOf(t, ada, url, "DELETE", at, "").want(t, 204)
	_ = ln.Close()
	<-done

	if n := calls.Load(); n > 0 {
		t.Errorf("the agent was called %d times", n)
	}
}

func (a *answer) want2xx(t *testing.T) {
	t.Helper()

	if a.status/100 != 2 {
		t.Fatalf("status %d; body %s", a.status, a.body)
	}
}
