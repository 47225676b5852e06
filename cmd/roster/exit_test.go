package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

const rid = "01JWNTC0000000000000000AD1"

// If another domain fails, a change may have been made here. The response says so, and the
// hint does not contradict it.
func TestAnotherDomainsFailureIsReportedAsSuch(t *testing.T) {
	w := newWorld(t, problem(502, "upstream", "the peering is pending here"))

	code, _, errs := w.run("peer", "export", "beta.test")
	if code != 6 || !strings.Contains(errs, "pending here") || strings.Contains(errs, "nothing was changed") ||
		!strings.Contains(errs, "another domain") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A refresh that asks for no lifetime names only the one that was granted.
func TestARefreshReportsTheLifetimeThatWasGranted(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", "/ad/r/"+rid)
		says(`{"lt":600}`)(rw, r)
	})

	for args, want := range map[string]string{
		"refresh weather":           "Lifetime granted: 600 s.\n",
		"refresh weather --lt 9000": "Lifetime granted: 600 s instead of 9000 s.\n",
	} {
		if code, _, errs := w.run(strings.Fields(args)...); code != 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, errs, want)
		}
	}
}

// Each failure has one exit code and at most three lines, the last of which is a command.
//
// Requirement: OPS-005, OPS-006
func TestEachFailureHasItsExitCode(t *testing.T) {
	taken := problem(409, "agent-name-taken", `The agent name "weather" is already registered.`)
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		args   string
		code   int
		next   string // the last line
	}{
		{"fine", says(`{"agents":[]}`), "lookup", 0, ""},
		{"its own fault", problem(500, "internal", "Something went wrong here."), "get " + rid, 1, ""},
		{"a bad document", problem(400, "bad-document", "base is missing"), "register weather FILE", 1, ""},
		{"too large", problem(413, "too-large", "too large"), "register weather FILE", 1, ""},
		{"a bad name", problem(400, "bad-name", "no such name can be"), "register weather FILE", 2, ""},
		{"a bad query", problem(400, "bad-query", "scope is odd"), "lookup --scope odd", 2, ""},
		{"an unknown flag", nil, "lookup --colour", 2, "roster lookup --help"},
		{"an unknown verb", nil, "frobnicate", 2, "roster --help"},
		{"an argument missing", nil, "register weather", 2, "roster register --help"},
		{"a lifetime too short", nil, "register weather FILE --lt 59", 2, ""},
		{"an impossible name", nil, "register a*b FILE", 2, ""},
		{"a count too large", nil, "lookup --count 101", 2, ""},
		{"a count of none", nil, "lookup --count 0", 2, ""},
		{"a limit of none", nil, "discover print --limit 0", 2, ""},
		{"an odd visibility", nil, "register weather FILE --visibility odd", 2, ""},
		{"an odd visibility of imports", nil, "import a2a FILE --visibility odd", 2, ""},
		{"no node's ID", nil, "raft admit node/4", 2, ""},
		{"an agent's ID", nil, "raft admit spiffe://alpha.test/agent/ada", 2, ""},
		{"no domain", nil, "peer invite Beta_", 2, ""},
		{"no domain but an ID", nil, "peer invite spiffe://beta.test", 2, ""},
		{"an unknown topic", nil, "help nosuch", 2, "roster --help"},
		{"an unknown topic of a group", nil, "help raft nosuch", 2, "roster --help"},
		{"a topic", nil, "help raft admit", 0, ""},
		{"a language", func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.RawQuery; got != "language=fr&language=en" {
				problem(400, "bad-query", got)(w, r)
				return
			}

			says(`{"agents":[]}`)(w, r)
		}, "lookup --language fr --language en", 0, ""},
		{"plain http", nil, "lookup --address http://127.0.0.1:1", 2, ""},
		{"a key missing", nil, "lookup --key=", 2, ""},
		{"not there", problem(404, "not-found", "nothing here"), "get weather", 3, "roster lookup --agent 'wea*'"},
		{"expired", problem(404, "registration-expired", "it has expired"), "refresh " + rid, 3, "roster lookup"},
		{"nobody", problem(401, "unauthenticated", "who are you"), "register weather FILE", 4, ""},
		{"forbidden", problem(403, "forbidden", "you may not"), "deregister weather", 4,
			"roster get weather --provenance"},
		{"taken", taken, "register weather FILE", 5, "roster get weather --provenance"},
		{"changed meanwhile", problem(412, "precondition-failed", "not that revision"), "register weather FILE", 5,
			"roster get weather --provenance"},
		{"no leader", problem(503, "unavailable", "no leader"), "lookup", 6, ""},
		{"outcome unknown", problem(503, "outcome-unknown", "the leader was lost"), "register weather FILE", 6, ""},
		{"too often", problem(429, "rate-limited", "slower"), "lookup --agent 'a b'", 6, ""},
		{"nobody listens", nil, "lookup --address https://127.0.0.1:1", 6, ""},
		{"no proof", nil, "verify FILE", 10, ""},
		{"no directory", nil, "lookup --address=", 2, "roster dev"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := c.answer
			if answer == nil {
				answer = func(http.ResponseWriter, *http.Request) { t.Error("the directory was asked") }
			}

			w := newWorld(t, answer)
			file := w.file("agent.json", `{"base":"https://weather.example"}`)

			code, _, stderr := w.run(words(strings.ReplaceAll(c.args, "FILE", file))...)
			if code != c.code {
				t.Errorf("exit code %d, want %d; it says:\n%s", code, c.code, stderr)
			}

			if code != 0 {
				checkLines(t, stderr, strings.ReplaceAll(c.next, "FILE", file))
				checkNext(t, strings.ReplaceAll(c.next, "FILE", file))
			}
		})
	}
}

// words splits a command line at spaces outside of single quotes.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}

	return out
}

// checkNext runs the command that a failure suggests: it exists and has its arguments.
func checkNext(t *testing.T, next string) {
	t.Helper()

	args := words(next)
	if len(args) < 2 {
		return
	}

	if next == "roster dev" {
		args = append(args, "--help") // which would run until it is interrupted
	}

	w := newWorld(t, says(`{"agents":[]}`))
	if code, _, stderr := w.run(args[1:]...); code == 2 {
		t.Errorf("%s is no command: %s", next, stderr)
	}
}

func checkLines(t *testing.T, stderr, next string) {
	t.Helper()

	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if len(lines) > 3 || !strings.HasPrefix(lines[0], "roster: ") {
		t.Errorf("a failure is told in at most three lines; these are\n%s", stderr)
	}

	last := lines[len(lines)-1]

	command, suggested := strings.CutPrefix(last, "Try: ")
	if suggested != (next != "") || suggested && command != next {
		t.Errorf("the last line is %q; want the command %q", last, next)
	}
}

// Requirement: OPS-005
func TestRejectedCertificatesAreExplained(t *testing.T) {
	stranger, err := trust.NewCA(alpha, time.Now())
	must(t, err)
	t.Run("the directory's", func(t *testing.T) {
		w := newWorld(t, says(`{"agents":[]}`))
		pem, _ := stranger.PEM()
		w.env["ROSTER_BUNDLE"] = w.file("other.pem", string(pem))

		code, _, stderr := w.run("lookup")
		if code != 12 || !strings.Contains(stderr, "--bundle") {
			t.Errorf("exit code %d: %s", code, stderr)
		}

		checkLines(t, stderr, "")
	})
	t.Run("the caller's", func(t *testing.T) {
		w := newWorld(t, says(`{"agents":[]}`))
		w.be(stranger, "/agent/ada")

		code, _, stderr := w.run("lookup")
		if code != 4 || !strings.Contains(stderr, "client certificate") {
			t.Errorf("exit code %d: %s", code, stderr)
		}

		checkLines(t, stderr, "")
	})
	t.Run("a file that is none", func(t *testing.T) {
		w := newWorld(t, says(`{"agents":[]}`))

		w.env["ROSTER_CERT"] = w.file("none.pem", "nothing")
		if code, _, stderr := w.run("lookup"); code != 12 {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
}

// Requirement: OPS-005
func TestInterruptedCommandsExitWith130(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())

	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	})
	if code, _, stderr := w.runWith(ctx, "lookup"); code != 130 {
		t.Errorf("exit code %d, want 130: %s", code, stderr)
	}
}

// The defect of evidence decides the exit code, in every command.
//
// Requirement: OPS-005
func TestEvidenceHasItsExitCode(t *testing.T) {
	for code, err := range map[int]error{
		10: signed.ErrSignature, 11: trust.ErrKeysForked, 12: signed.ErrKeyRevoked, 13: trust.ErrInclusion,
		14: trust.ErrExpired,
		1:  errors.New("something else"),
	} {
		if got := cli.FailureOf(fmt.Errorf("checking: %w", err)).Code; got != code {
			t.Errorf("%v: exit code %d, want %d", err, got, code)
		}
	}
}

// The response of a proxy or another program says neither that a registration is absent nor
// that a change was not made, even if its status is 200.
//
// Requirement: OPS-005, OPS-006
func TestResponsesOfProxiesAreRecognised(t *testing.T) {
	for _, c := range []struct {
		status, code int
		args         string
	}{
		{404, cli.ExitFailed, "get weather"},
		{404, cli.ExitFailed, "deregister weather"},
		{502, cli.ExitUnavailable, "deregister weather"},
		{503, cli.ExitUnavailable, "keys rotate"},
		{504, cli.ExitUnavailable, "register weather FILE"},
		{200, cli.ExitFailed, "deregister weather"},
		{200, cli.ExitFailed, "register weather FILE"},
		{200, cli.ExitFailed, "raft remove spiffe://alpha.test/roster/node/2"},
		{200, cli.ExitFailed, "lookup"},
		{302, cli.ExitFailed, "lookup"},
	} {
		w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte("{}"))
		})

		code, out, notes := w.run(words(strings.ReplaceAll(c.args, "FILE",
			w.file("agent.json", `{"base":"https://weather.example"}`)))...)
		if code != c.code || out != "" || !strings.Contains(notes, "not from a directory") ||
			strings.Contains(notes, "nothing was changed") {
			t.Errorf("%s, answered with %d: exit code %d, %s%s", c.args, c.status, code, out, notes)
		}
	}
}

// The failure of an invoked agent is not reported as a failure of the directory: the agent
// may have acted.
func TestAgentFailuresAreReportedAsSuch(t *testing.T) {
	for name, want := range map[string]string{"agent-failed": "may have acted", "agent-timeout": "may have acted",
		"agent-unavailable": "registration says so", "unavailable": "nothing was changed"} {
		w := newWorld(t, problem(503, name, "so it is"))
		if code, _, notes := w.run("invoke", "weather", "{}", "--no-validate"); code != cli.ExitUnavailable ||
			!strings.Contains(notes, want) {
			t.Errorf("%s: exit code %d, %s", name, code, notes)
		}
	}
}

// An agent's status is the agent's: no hint takes it for the directory's, and its Retry-After is
// shown.
//
// Requirement: FLD-018
func TestAnAgentsStatusIsTheAgents(t *testing.T) {
	for _, tc := range []struct {
		status  int
		name    string
		code    int
		want    string
		without string
	}{
		{429, "agent-rate-limited", cli.ExitUnavailable, "Try again in 7s", "directory is unavailable"},
		{503, "agent-unavailable", cli.ExitUnavailable, "Try again in 7s", "directory is unavailable"},
		{404, "agent-not-found", cli.ExitFailed, "agent itself refused", "lookup"},
		{409, "agent-conflict", cli.ExitFailed, "agent itself refused", "lookup"},
		{401, "agent-unauthorized", cli.ExitFailed, "agent itself refused", "--cert"},
		{403, "agent-forbidden", cli.ExitFailed, "agent itself refused", "--cert"},
		{409, "agent-name-taken", cli.ExitConflict, "another owner", "the directory works"},
	} {
		w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(tc.status)
			fmt.Fprintf(w, `{"type":"https://ad.alpha.test/problems/%s","code":%q,"title":"T","status":%d,
				"detail":"the agent answered %d","retry_after":7}`, tc.name, tc.name, tc.status, tc.status)
		})

		code, _, notes := w.run("invoke", "weather", "{}", "--no-validate")
		if code != tc.code || !strings.Contains(notes, tc.want) || strings.Contains(notes, tc.without) {
			t.Errorf("%s: exit code %d, %s", tc.name, code, notes)
		}
	}

	w := newWorld(t, problem(502, "agent-failed", "the agent could not be reached; nothing was sent"))
	if _, _, notes := w.run("invoke", "weather", "{}", "--no-validate"); strings.Contains(notes, "may have acted") {
		t.Errorf("nothing was sent: %s", notes)
	}
}

// A caller whose token is refused may need another token, and not a certificate.
func TestARefusedCallerLearnsOfBothCredentials(t *testing.T) {
	w := newWorld(t, problem(401, "unauthenticated", "it has expired"))

	_, _, notes := w.run("lookup")
	for _, flag := range []string{"--cert", "--token-file", "--wit"} {
		if !strings.Contains(notes, flag) {
			t.Errorf("%s is not in %s", flag, notes)
		}
	}
}

// With -o json a failure is one object on standard error, with all faults of a document; with a
// table it is text.
//
// Requirement: OPS-004
func TestFailuresAreDataWithJSON(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"type":"https://ad.alpha.test/problems/invalid-document","code":"invalid_document",` +
			`"title":"Invalid","status":422,"detail":"Wrong.","errors":[{"detail":"one"},{"detail":"two"},` +
			`{"detail":"three"},{"detail":"four"}]}`))
	})
	document := w.file("agent.json", `{"base":"https://weather.example"}`)

	for _, format := range []string{"json", "jsonl"} {
		code, _, errs := w.run("register", "weather", document, "-o", format)

		var failed failedCommand
		if err := json.Unmarshal([]byte(errs), &failed); err != nil || failed.Code != code || code == 0 ||
			failed.Error == "" || failed.Problem == "" || len(failed.Faults) != 3 {
			t.Errorf("-o %s: %v, exit code %d, %s", format, err, code, errs)
		}
	}

	if _, _, errs := w.run("register", "weather", document); !strings.HasPrefix(errs, "roster: ") {
		t.Errorf("a table: %s", errs)
	}
}

// An agent that answers a plain call with a stream is printed as what it says, without the stream's
// framing; an error in the stream is the agent's failure.
func TestStreamsArePrintedWithoutFraming(t *testing.T) {
	for _, x := range []struct {
		body string
		args []string
		code int
		out  string
	}{
		{"data: {\"n\": 1}\n\n", nil, 0, "{\"n\":1}\n"},
		{"data: {\"n\": 1}\n\n", []string{"-o", "json"}, 0, `{"n":1}`},
		{"data: one\n\ndata: {\"n\":2}\n\n", nil, 0, "one\n{\"n\":2}\n"},
		{"data: one\n\ndata: {\"n\":2}\n\n", []string{"-o", "jsonl"}, 0, "\"one\"\n{\"n\":2}\n"},
		{"data: one\n\ndata: {\"n\":2}\n\n", []string{"-o", "json"}, 0, `{"outputs":["one",{"n":2}]}` + "\n"},
		{"data: 1\n\nevent: error\ndata: {\"error\":{\"message\":\"late\"}}\n\n", nil,
			cli.ExitUnavailable, "1\n"},
	} {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, x.body)
		})

		code, out, notes := w.run(append([]string{"invoke", "weather", "{}", "--no-validate"}, x.args...)...)
		if failed := strings.Contains(notes, "stream ended with an error: late"); code != x.code || out != x.out ||
			failed != (code != 0) {
			t.Errorf("%q %v: exit %d, %q; %s", x.body, x.args, code, out, notes)
		}
	}
}
