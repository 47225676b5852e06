package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// A registration that its owner may no longer register is not renewed by any door: not by its
// owner, and not by a commissioning tool. It ends at its deadline, which the refusal says. Without
// a leader, any other refresh is answered by 503.
//
// Requirement: AD-070
func TestWhatMayNotBeRegisteredIsNotRenewed(t *testing.T) {
	const document = `{"base": "https://x.example"}`

	barred := entry(t, alpha, "01JWNTC0000000000000000AD1", "reserved-1", 1, document)
	free := entry(t, alpha, "01JWNTC0000000000000000AD2", "free-1", 2, document)
	s := newTestServer(t, nil, barred, free)

	for _, caller := range []string{"/agent/ada", "/tool/commissioner"} {
		for _, path := range []string{
			"/ad/r/" + barred.RID.String(), "/ad/r/reserved-1", "/ad/r/alpha.test/" + barred.RID.String(),
			"/ad/r/reserved-1?lt=600",
		} {
			answer := ask(t, s, caller, "POST", path, "")
			if text := textOf(t, answer); answer.StatusCode != http.StatusForbidden ||
				!strings.Contains(text, "may no longer register") || !strings.Contains(text, "ends at its deadline") ||
				!strings.Contains(text, `"policies":["reserved-names"]`) {
				t.Errorf("%s refreshes %s: %d %s", caller, path, answer.StatusCode, text)
			}
		}

		answer := ask(t, s, caller, "POST", "/ad/refresh", `[{"id":"reserved-1"}]`)

		var renewed []struct {
			Status int    `json:"status"`
			Detail string `json:"detail"`
		}
		if err := json.Unmarshal([]byte(textOf(t, answer)), &renewed); err != nil || len(renewed) != 1 ||
			renewed[0].Status != http.StatusForbidden || !strings.Contains(renewed[0].Detail, "reserved-names") {
			t.Errorf("%s refreshes a list: %v, %+v", caller, err, renewed)
		}
	}

	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/r/free-1", ""), http.StatusServiceUnavailable)
	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/refresh", `[{"id":"free-1"}]`), http.StatusServiceUnavailable)
}

// Policy is asked about the owner of what a commissioning tool changes, not about the tool.
//
// Requirement: AD-002
func TestAChangeByAToolIsJudgedForTheOwner(t *testing.T) {
	const document = `{"base": "https://x.example"}`

	blocked := entry(t, alpha, "01JWNTC0000000000000000AD1", "blocked-1", 1, document)
	blocked.Owner = identity("/agent/blocked")
	free := entry(t, alpha, "01JWNTC0000000000000000AD2", "free-1", 2, document)
	s := newTestServer(t, nil, blocked, free)

	for agent, want := range map[string]int{
		"blocked-1": http.StatusForbidden, "free-1": http.StatusServiceUnavailable,
	} {
		for _, patch := range []string{`{"base": "https://y.example"}`, `{}`} {
			answer := ask(t, s, "/tool/commissioner", "POST", "/ad/r/"+agent, patch)
			if text := textOf(t, answer); answer.StatusCode != want ||
				want == http.StatusForbidden && !strings.Contains(text, "/agent/blocked") {
				t.Errorf("the tool patches %s by %s: %d %s", agent, patch, answer.StatusCode, text)
			}
		}
	}
}
