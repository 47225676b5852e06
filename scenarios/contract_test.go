package scenarios

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
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
			m.Eventually(10*time.Second, a.Name+" is seen everywhere", func() error { return m.Seen(a) })
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
	p.eventually("the other domain lists it", func() error {
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
