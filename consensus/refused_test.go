package consensus

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	httpproblem "github.com/roster-mesh/roster/directory/problem"
)

// A member that is refused at the cluster's listener gets the problem that every
// other listener would answer.
//
// Requirement: AD-033
func TestTheClusterListenerRefusesByAProblem(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		l, f := d.leader()
		leader, follower := d.nodes[l], d.nodes[f]

		for _, c := range []struct {
			to           *Store
			method, path string
			body         string
			want         directory.Problem
		}{
			{follower, "POST", readPath, "", httpproblem.Misdirected},
			{follower, "POST", restorePath, "", httpproblem.Misdirected},
			{leader, "POST", readPath, "garbage", directory.BadRequest},
			{leader, "GET", readPath, "", httpproblem.MethodNotAllowed},
			{leader, "POST", "/nothing", "", directory.NotFound},
		} {
			asker := follower.messenger.cluster.Client()
			if c.to == follower {
				asker = leader.messenger.cluster.Client()
			}

			url := "https://" + c.to.group.self().Address + c.path

			r, err := http.NewRequestWithContext(t.Context(), c.method, url, strings.NewReader(c.body))
			must(t, err)

			resp, err := asker.Do(r)
			must(t, err)

			text, err := io.ReadAll(resp.Body)
			must(t, err)

			_ = resp.Body.Close()

			var body map[string]any
			if err := json.Unmarshal(text, &body); err != nil {
				t.Errorf("%s %s: %d %q: %v", c.method, c.path, resp.StatusCode, text, err)
				continue
			}

			if resp.StatusCode != httpproblem.RuleOf(c.want).Status ||
				body["type"] != c.to.cfg.API+"/problems/"+string(c.want) {
				t.Errorf("%s %s: %d %s, want %s", c.method, c.path, resp.StatusCode, text, c.want)
			}

			for _, member := range []string{"title", "status", "detail", "instance", "code", "message",
				"correlation_id", "error"} {
				if body[member] == nil {
					t.Errorf("%s %s: %s is missing in %s", c.method, c.path, member, text)
				}
			}
		}
	})
}
