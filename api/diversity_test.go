package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// One owner has eight agents, another one that matches less well. Every surface that
// ranks has them in the same order, says where that is not the scores', and takes the
// same requests for another.
//
// Requirement: FIND-001
func TestEverySurfaceRanksAlike(t *testing.T) {
	var entries []*directory.Entry
	for i := range 8 {
		name := fmt.Sprintf("planner-%d", i)
		entries = append(entries, entryOf(t, directory.KindAIDIP, alpha, rid(10+i), name, uint64(i+1),
			metadata(name, "Plans a route.", "")))
	}

	rival := entryOf(t, directory.KindAIDIP, alpha, rid(30), "rival", 9,
		metadata("rival", "Plans a route by rail, or at least it tries to.", ""))
	rival.Owner = identity("/agent/mallory")
	s := newTestServer(t, whole, append(entries, rival)...)

	const ada = "spiffe://alpha.test/agent/ada"
	surfaces := map[string]func(more, owner string) (found []string, warnings []string){
		"/discovery/query": func(more, owner string) ([]string, []string) {
			if owner != "" {
				more += fmt.Sprintf(`,"constraints":{"owners":%q}`, owner)
			}

			found, body := found(t, s, "/agent/bob", `{"query":"plan a route","limit":6`+more+`}`)

			return found, textsOf(body["warnings"])
		},
		"/agents/search": func(more, owner string) ([]string, []string) {
			if owner != "" {
				more += fmt.Sprintf(`,"filters":{"owner":%q}`, owner)
			}

			resp := ask(t, s, "/agent/bob", "POST", "/agents/search", `{"query":"plan a route","top":6`+more+`}`)
			found, _ := ids(t, resp)

			var warnings []string
			if text := resp.Header.Get("Roster-Warnings"); text != "" {
				warnings = strings.Split(strings.ReplaceAll(text, `"`, ""), ", ")
			}

			return found, warnings
		},
		"/agents/resolve": func(more, owner string) ([]string, []string) {
			if owner != "" {
				more += fmt.Sprintf(`,"policy":{"allowed_owners":%q}`, owner)
			}

			body := wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/resolve",
				`{"intent":"plan a route","top":6`+more+`}`), 200)

			return idsOf(body["candidates"]), textsOf(body["warnings"])
		},
		"discover_agents": func(more, owner string) ([]string, []string) {
			if owner != "" {
				more += fmt.Sprintf(`,"constraints":{"owners":%q}`, owner)
			}

			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"discover_agents","arguments":{"query":"plan a route","limit":6` + more + `}}}`
			resp := ask(t, s, "/agent/bob", "POST", "/mcp", call, "Accept", "application/json, text/event-stream")
			result := wantStatus(t, resp, 200)["result"].(map[string]any)
			body := result["structuredContent"].(map[string]any)

			return idsOf(body["candidates"]), textsOf(body["warnings"])
		},
	}

	plain := []string{"planner-0", "planner-1", "planner-2", "planner-3", "planner-4", "planner-5"}
	for name, ask := range surfaces {
		for _, c := range []struct {
			more, owner string
			want        []string
			warnings    []string
		}{
			{"", "", []string{"planner-0", "planner-1", "planner-2", "rival", "planner-3", "planner-4"},
				[]string{discovery.WarnDiversified}},
			{`,"diversity":true`, "", []string{"planner-0", "planner-1", "planner-2", "rival", "planner-3",
				"planner-4"}, []string{discovery.WarnDiversified}},
			{`,"diversity":false`, "", plain, nil},
			{"", ada, plain, nil},
		} {
			if found, warnings := ask(c.more, c.owner); !slices.Equal(found, c.want) ||
				!slices.Equal(warnings, c.warnings) {
				t.Errorf("%s with %s of %q found %q with the warnings %q", name, c.more, c.owner, found, warnings)
			}
		}
	}
}

// Requirement: FIND-001
func TestTheShareOfAnOwnerIsPublished(t *testing.T) {
	body := wantStatus(t, ask(t, newTestServer(t, nil), "", "GET", "/.well-known/agent-discovery", ""), 200)

	says := body["diversity"].(map[string]any)
	if says["per_owner"] != 3. || says["displacing_share"] != .5 || says["warning"] != "diversified" {
		t.Errorf("it says %v", says)
	}

	if limits := body["limits"].(map[string]any); !reflect.DeepEqual(limits["per_owner"], says["per_owner"]) {
		t.Errorf("the limits are %v", limits)
	}
}

// Requirement: FIND-001
func TestWhatIsNoOwnerIsRefused(t *testing.T) {
	s := newTestServer(t, whole)
	for path, body := range map[string]string{
		"/discovery/query": `{"query":"route","constraints":{"owners":["ada"]}}`,
		"/agents/search":   `{"query":"route","filters":{"owner":"ada"}}`,
		"/agents/resolve":  `{"intent":"route","policy":{"allowed_owners":["ada"]}}`,
	} {
		if got := wantStatus(t, ask(t, s, "/agent/bob", "POST", path, body),
			400); !strings.Contains(fmt.Sprint(got["pointer"], got["errors"]), "owner") {
			t.Errorf("%s is refused with %v", path, got)
		}

		body = strings.Replace(body, `,`, `,"diversity":"no",`, 1)
		wantStatus(t, ask(t, s, "/agent/bob", "POST", path, body), 400)
	}
}

// A search without words has no ranking, and takes an owner as a filter all the same.
//
// Requirement: FIND-001
func TestASearchWithoutWordsTakesAnOwner(t *testing.T) {
	found, _ := ids(t, ask(t, registry(t, nil), "/agent/bob", "POST", "/agents/search",
		`{"filters":{"owner":"spiffe://alpha.test/agent/ada"}}`))
	if want := []string{"agent-1", "agent-2", rid(5)}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func idsOf(candidates any) (all []string) {
	for _, c := range candidates.([]any) {
		all = append(all, c.(map[string]any)["id"].(string))
	}

	return all
}

func textsOf(values any) (all []string) {
	for _, v := range values.([]any) {
		all = append(all, v.(string))
	}

	return all
}
