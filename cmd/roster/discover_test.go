package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

const discovered = `{"level":"D2","candidates":[{"id":"hr-1","agent":"hr-helper","name":"HR Helper",` +
	`"description":"Onboards","bindings":[{"protocol":"https","endpoint":"https://hr.example/` +
	"\u202e" +
	`"}],"score":0.8125,"score_components":{"tag":1,"context":0.5},"matched_tags":["hr"],` +
	`"matched_examples":[{"id":"1","score":0.5,"text":"Prepare a contract"}],
	"status":"active","provenance":{"origin_authority":"beta.test","revision":7,` +
	`"expires_at":"2026-06-02T12:00:00.000Z","verification":{"state":"verified"}}}],
	"unsupported_filters":["region"],"warnings":["fields withheld by beta.test"]}` + "\n"

// discover sends the flags as a query, and prints the response as a table and unchanged.
//
// Requirement: OPS-004, AD-072
func TestDiscoverSendsItsFlagsAndPrints(t *testing.T) {
	var asked, target string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)

		asked, target = string(body), r.URL.String()
		if r.URL.Path == "/agents/resolve" {
			says(`{"candidates":[{"id":"hr-1","agent":"hr-helper","name":"HR Helper","endpoint":"https://hr.example/",`+
				`"invocation":{"method":"POST","transport":"https","auth":{"type":"none"},"schema":{}},
				"score":1,"reasons":[{"matched":"tag","value":"hr"},{"matched":"word","value":"onboard",`+
				`"fields":["tags"]}],"provenance":{"origin_authority":"beta.test",`+
				`"verification":{"state":"verified"}}}],
				"excluded":{"allowed_domains":2},"warnings":[]}`)(rw, r)

			return
		}

		says(discovered)(rw, r)
	})

	code, out, errs := w.run("discover", "onboard somebody", "--tag", "hr", "--prefer", "api", "--exclude", "toy",
		"--protocol", "https", "--origin", "beta.test",
		"--region", "eu", "--min-verification", "logged", "--max-age", "300", "--limit", "5", "--evidence",
		"--consistency", "stale")
	if want := `{"query":"onboard somebody","required_tags":["hr"],"preferred_tags":["api"],` +
		`"excluded_tags":["toy"],"protocols":["https"],` +
		`"constraints":{"max_results_age_seconds":300,"origins":["beta.test"],"region":["eu"],` +
		`"min_verification":"logged"},"limit":5,` +
		`"include_evidence":true}`; code != 0 || asked != want || target != "/discovery/query?consistency=stale" {
		t.Errorf("exit code %d; %s was asked\n%s\nwant\n%s", code, target, asked, want)
	}

	if want := "SCORE\tAGENT\tORIGIN\tID\tNAME (CLAIMED)\tPROTOCOL\tENDPOINT (CLAIMED)\tMATCHED TAGS\tEVIDENCE\n" +
		"0.812\thr-helper\tbeta.test\thr-1\tHR Helper\thttps\thttps://hr.example/\\u202e\thr\tcontext 0.500, tag " +
		"1.000, \"Prepare a contract\"\n"; out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}

	if errs != "The directory does not support these filters and ignored them: region\n"+
		"Warning from the directory: fields withheld by beta.test\n" {
		t.Errorf("the notes are\n%s", errs)
	}

	if _, out, _ := w.run("discover", "x", "-o", "json"); asked != `{"query":"x"}` || out != discovered {
		t.Errorf("%s is answered as\n%s", asked, out)
	}

	if _, out, _ := w.run("discover", "x", "-o", "jsonl"); !strings.HasPrefix(out, `{"id":"hr-1","agent":`) ||
		strings.Count(out, "\n") != 1 {
		t.Errorf("as lines:\n%s", out)
	}

	_, out, errs = w.run("discover", "x", "--resolve", "--tag", "hr", "--region", "eu", "--min-verification", "logged",
		"--protocol", "https", "--origin", "beta.test", "--limit", "3", "-o", "wide")

	if want := `{"intent":"x","context":{"tags":["hr"],"region":["eu"]},` +
		`"policy":{"allowed_domains":["beta.test"],"allowed_protocols":["https"],` +
		`"min_verification":"logged"},"top":3}`; asked != want || target != "/agents/resolve" {
		t.Errorf("%s was asked\n%s\nwant\n%s", target, asked, want)
	}

	if !strings.Contains(out, "1.000\thr-helper\tbeta.test\thr-1\tHR Helper\thttps\thttps://hr.example/\ttag hr, word "+
		"onboard\tPOST\t\t{\"type\":\"none\"}\tverified\t\n") || errs != "2 excluded by allowed_domains\n" {
		t.Errorf("got\n%s%s", out, errs)
	}

	for _, line := range []string{"discover", "discover x --limit 101", "discover x --max-age -1",
		"discover x --resolve --detail full"} {
		if code, _, _ := w.run(strings.Fields(line)...); code != cli.ExitUsage {
			t.Errorf("roster %s: exit code %d", line, code)
		}
	}

	if code, _, errs := w.run("discover", " "); code != cli.ExitUsage || !strings.Contains(errs, "in words") {
		t.Errorf("no question: exit code %d, %s", code, errs)
	}
}

// A command that gets the name that an agent claims says by which name it is registered.
func TestAClaimedNameIsExplained(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/discovery/query" {
			says(`{"level":"D2","candidates":[`+
				`{"id":"1","agent":"other","name":"Shouter of beta","provenance":{"origin_authority":"beta.test"}},`+
				`{"id":"2","agent":"my-shout","name":"Shouter","provenance":{"origin_authority":"alpha.test"}}]}`)(rw, r)

			return
		}

		problem(http.StatusNotFound, "not-found", "No such registration.")(rw, r)
	})

	for _, line := range []string{"get Shouter", "refresh shouter", "deregister Shouter", "verify Shouter",
		"invoke Shouter {} --no-validate", "transfer Shouter --to spiffe://alpha.test/agent/bob"} {
		code, _, errs := w.run(strings.Fields(line)...)
		if code != cli.ExitNotFound || !strings.Contains(errs, "is what the agent my-shout of alpha.test calls") ||
			!strings.Contains(errs, "Try: roster get my-shout --origin alpha.test") {
			t.Errorf("%s: exit code %d: %s", line, code, errs)
		}
	}

	if _, _, errs := w.run("get", "whisper"); !strings.Contains(errs, "Try: roster lookup --agent 'whi*'") {
		t.Errorf("a name that nothing has: %s", errs)
	}
}
