package scenarios

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// The leader probes an agent at its base. Every node shows the result with the
// registration, also after a change of leader, and the registration's contents stay as
// its registrant wrote them.
//
// Requirement: AD-044
func TestAgentsAreProbed(t *testing.T) {
	url, ca := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/honest/.well-known/agent-card.json" {
			http.NotFound(w, r)
			return
		}

		fmt.Fprintf(w,
			`{"name":"Honest","description":"D","version":"1","url":"https://%s/honest",`+
				`"skills":[{"id":"hello","name":"H","description":"D","tags":[]}]}`, r.Host)
	})

	m := mesh.Start(t, mesh.Options{Nodes: 3, RealTime: true, Configure: func(c *config.Config) {
		c.Probe = config.Probe{Enabled: true, Every: time.Hour, Concurrent: 2, Renew: true,
			As: "spiffe://alpha.test/tool/commissioner", Allow: []string{"127.0.0.0/8"}, CA: ca}
	}})
	n := m.Domain("alpha.test").Nodes[0]
	register := func(name, base, skill string, lt int) map[string]any {
		return exchangeOf(t, n.HTTP("/agent/ada"), n.URL(), "POST", fmt.Sprintf("/ad/r?agent=%s&lt=%d", name, lt),
			`{"base":"`+base+`","protocols":["a2a"],"capabilities":[{"name":"`+skill+`","type":"skill"}]}`).want(t, 201)
	}
	register("honest", url+"/honest", "hello", 60)
	register("boastful", url+"/honest", "pay", 3600)
	register("silent", url+"/silent", "hello", 3600)
	register("inward", "https://10.0.0.1/", "hello", 3600)
	want := map[string]string{"honest": "verified", "boastful": "mismatch capabilities",
		"silent": "unreachable nothing", "inward": "unreachable address"}
	revisions := map[string]any{}

	see := func(n *mesh.Node) error {
		got := exchangeOf(t, n.HTTP("/client/reader"), n.URL(), "GET", "/ad/l", "")
		if got.status != 200 {
			return fmt.Errorf("status %d", got.status)
		}

		for _, a := range got.want(t, 200)["agents"].([]any) {
			a := a.(map[string]any)
			name := a["agent"].(string)
			provenance := a["provenance"].(map[string]any)
			verification := provenance["verification"].(map[string]any)
			probe, _ := verification["probe"].(map[string]any)

			found := fmt.Sprint(probe["state"])
			if members, ok := probe["members"].([]any); ok {
				found += " " + fmt.Sprint(members...)
			}

			if reason, ok := probe["reason"].(string); ok {
				found += " " + reason
			}

			if found != want[name] || verification["state"] != "local" ||
				!strings.HasSuffix(fmt.Sprint(probe["checked_at"]), "Z") {
				return fmt.Errorf("%s: of %s it shows %v", n.Name, name, verification)
			}

			if revisions[name] == nil {
				revisions[name] = provenance["revision"]
			}

			if provenance["revision"] != revisions[name] {
				t.Errorf("the statement on %s has changed", name)
			}
		}

		return nil
	}
	for _, n := range m.Domain("alpha.test").Nodes {
		m.Eventually(time.Minute, "the result is shown", func() error { return see(n) })
	}

	leader := m.Domain("alpha.test").Leader()
	leader.Kill()

	for _, n := range m.Living() {
		m.Eventually(time.Minute, "it is shown under another leader", func() error { return see(n) })
	}
}
