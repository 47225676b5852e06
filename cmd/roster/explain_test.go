package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// explain shows the components of scores, and why one candidate is not in the result.
func TestExplainShowsComponents(t *testing.T) {
	const evidence = `"evidence":{"weights":{"tag":0.2,"context":0.6,"example":0.1,"protocol":0.1},` +
		`"terms":[{"term":"rout","text":"route","idf":1,"adds":0.25,"fields":{"name":0.2,` +
		`"description":0.05}}],"snippets":[]}`

	var asked string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		says(`{"level":"D2","candidates":[{"id":"planner","agent":"planner","score":0.5,"score_components":{"tag":0,`+
			`"context":0.7,"example":0,"protocol":1,"freshness":1,"policy":1},`+evidence+`,`+
			`"provenance":{"origin_authority":"beta.test"}}],
			"unsupported_filters":[],"warnings":[],"explanation":{"id":"bread","href":"/ad/r/1",`+
			`"why":"required_tags","rank":0,"score":0.1,"needed_score":0.5,`+
			`"score_components":{"protocol":1,"freshness":1,"policy":1},`+evidence+`}}`)(rw, r)
	})

	code, out, errs := w.run("explain", "a route")
	if want := "SCORE\tAGENT\tORIGIN\tID\tTAG\tCONTEXT\tEXAMPLE\tPROTOCOL\tFRESHNESS\tPOLICY\tWORDS\n" +
		"0.500\tplanner\tbeta.test\tplanner\t0.000\t0.700\t0.000\t1.000\t1.000\t1.000\troute +0.250 in description " +
		"and name\n"; code != 0 || errs != "" || out != want {
		t.Errorf("exit code %d: got\n%s%s\nwant\n%s", code, out, errs, want)
	}

	if want := `{"query":"a route","include_evidence":true}`; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}

	code, out, _ = w.run("explain", "a route", "--candidate", "bread", "--tag", "bakery")
	if want := "CANDIDATE\tbread\nwhy\trequired_tags\nscore\t0.100\nscore needed\t0.500\ntag\t0.000 x " +
		"0.200\n"; code != 0 || !strings.HasPrefix(out, want) || !strings.Contains(out, "word\troute "+
		"+0.250 in description and name\n") {
		t.Errorf("exit code %d: got\n%s", code, out)
	}

	if want := `{"query":"a route","required_tags":["bakery"],"include_evidence":true,` +
		`"explain":"bread"}`; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}

	if code, out, _ := w.run("explain", "a route", "--candidate", "bread", "-o", "json"); code != 0 ||
		!strings.HasPrefix(out, `{"id":"bread",`) {
		t.Errorf("exit code %d: as JSON\n%s", code, out)
	}

	if code, _, _ := w.run("explain", "x", "--limit", "101"); code != cli.ExitUsage {
		t.Errorf("exit code %d", code)
	}
}
