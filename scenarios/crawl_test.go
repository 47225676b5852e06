package scenarios

import (
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// The domain's leader registers the agents that a crawled document lists, follows the
// document, and removes agents that it no longer lists, also if another node led when
// they were registered. An agent that the document may not list doesn't hold up the
// others.
//
// Requirement: WOA-013, WOA-021, WOA-031
func TestACrawledDocumentIsFollowed(t *testing.T) {
	var listed string
	url, ca := webServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/woa+json")
		fmt.Fprintf(w,
			`{"woa_version":"1","agents":[%s],`+
				`"transports":{"rest":{"base":"https://api.example.com","invoke_path":"/a/{agent_id}"}}}`, listed)
	})

	agent := func(id, more string) string {
		return `{"id":"` + id +
			`","name":"N","description":"D","inputs":{"type":"object"},"outputs":{"type":"object"},` +
			`"transports":["rest"]` + more + `}`
	}
	listed = strings.Join([]string{agent("stays", ``), agent("changes", ``), agent("goes", ``),
		agent("tells", `,"authz":{"password":"p"}`)}, ",")

	m := mesh.Start(t, mesh.Options{Nodes: 1, RealTime: true, Configure: func(c *config.Config) {
		c.Crawl = config.Crawl{As: "spiffe://alpha.test/tool/commissioner", Origins: []string{url},
			Allow: []string{"127.0.0.0/8"}, CA: ca}
	}})
	n := m.Domain("alpha.test").Nodes[0]
	host := strings.TrimPrefix(url, "https://")
	see := func(want ...string) (agents map[string]map[string]any) {
		t.Helper()
		m.Eventually(time.Minute, "the domain has "+strings.Join(want, ", "), func() error {
			agents = map[string]map[string]any{}

			var names []string

			got := exchangeOf(t, n.HTTP("/client/reader"), n.URL(), "GET", "/ad/l", "")
			if got.status != 200 {
				return fmt.Errorf("status %d", got.status)
			}

			for _, a := range got.want(t, 200)["agents"].([]any) {
				a := a.(map[string]any)
				name := strings.TrimSuffix(a["agent"].(string), "@"+host) + " " + a["description"].(string)
				names, agents[a["agent"].(string)] = append(names, name), a
			}

			if slices.Sort(names); !slices.Equal(names, want) {
				return fmt.Errorf("it has %q", names)
			}

			return nil
		})

		return agents
	}

	before := see("changes D", "goes D", "stays D")
	if owner := before["stays@"+
		host]["provenance"].(map[string]any)["registrant"]; owner != "spiffe://alpha.test/tool/commissioner" {
		t.Errorf("the registrant is %v", owner)
	}

	lines, _ := readTrail(t, n.Data())
	if !slices.ContainsFunc(lines, func(l trailLine) bool {
		return l.Action == "register" && l.Actor == "spiffe://alpha.test/tool/commissioner" &&
			l.Agent == "stays@"+host && l.Outcome == "ok"
	}) {
		t.Error("the audit log does not name the registrant of crawled agents")
	}

	n.Kill()
	listed = strings.Join([]string{agent("stays", ``), strings.Replace(agent("changes", ``), `"D"`, `"E"`, 1),
		agent("comes", ``)}, ",")
	n.Restart()

	after := see("changes E", "comes D", "stays D")
	if before["stays@"+host]["href"] != after["stays@"+host]["href"] {
		t.Error("an unchanged agent was registered again")
	}
}

// webServer starts a server of web PKI, and returns its URL and a file with the certificate that certifies it.
func webServer(t *testing.T, handler http.HandlerFunc) (url, ca string) {
	t.Helper()

	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)

	ca = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	must(t, os.WriteFile(ca, text, 0o600))

	return server.URL, ca
}
