package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// poison has what a terminal acts on: C0 and C1 controls, DEL, characters that change the
// direction of writing, and invisible ones.
const poison = "seen\x1b[2J\x1b]0;x\x07\u009b2J\x7f\u202egnp.exe\u2066\u200b\u200d\ufeff\u2028\U000e0041\u3164\r"

// poisoned is poison as a JSON string. It escapes only what JSON must.
var poisoned = func() string {
	var out strings.Builder
	for _, b := range []byte(poison) {
		if b < ' ' {
			fmt.Fprintf(&out, `\u%04x`, b)
		} else {
			out.WriteByte(b)
		}
	}

	return `"` + out.String() + `"`
}()

// The answers of a hostile directory or agent. @ is the poison.
const (
	hostileItem = `{"agent":@,"name":@,"id":@,"rid":"01K00000000000000000000000",` +
		`"href":"/ad/r/01K00000000000000000000000","base":@,"kind":@,"description":@,"vendor":@,"version":@,` +
		`"status":@,"protocols":[@],"score":1,"endpoint":@,` +
		`"capabilities":[{"name":@,"type":@,"description":@}],"registered_at":"2026-06-02T12:00:00.000Z",` +
		`"evidence":{"matched_tags":[@],"excerpt":@},"reasons":[@],` +
		`"provenance":{"origin_authority":@,"registrant":@,"visibility":@,"service":@,"received_from":@,` +
		`"verification":{"state":@,"key":@}}}`
	hostileEvents = "id: 1.1\nevent: reset\ndata: {\"why\":\"new\"}\n\nid: 1.2\nevent: added\ndata: " + hostileItem +
		"\n\nid: 1.3\nevent: removed\ndata: {\"agent\":@,\"origin\":@,\"rid\":@,\"why\":@}\n\n"
	hostileProblem = `{"type":"https://ad.alpha.test/problems/conflict","title":@,"status":409,"detail":@,` +
		`"correlation_id":@}`
)

// hostileAnswers are the bodies by path; any other path has hostileItem.
var hostileAnswers = map[string]string{
	"/ad/l":            `{"agents":[` + hostileItem + `]}`,
	"/ad/watch":        hostileEvents,
	"/discovery/query": `{"candidates":[` + hostileItem + `],"agents":[` + hostileItem + `],"warnings":[@]}`,
	"/v1/operator/peers": `{"peers":[{"domain":"beta.test","state":@,"agreed":@,"last_error":@,` +
		`"addresses":[@]}]}`,
	"/v1/operator/members":       `{"members":[{"id":@,"domain":@,"address":@,"state":@}]}`,
	"/bundles":                   `{"bundles":[{"domain":@,"fingerprints":[@]}]}`,
	"/v1/operator/status":        `{"id":@,"version":@,"ready":false,"not_ready":@,"position":@}`,
	"/v1/operator/audit":         `{"time":"2026-06-02T12:00:00.000Z","phase":@,"owner":@,"what":@,"outcome":@}` + "\n",
	"/v1/operator/raft":          `{"leader":@,"peers":[{"id":@,"address":@,"api":@,"voter":true}]}`,
	"/v1/operator/keys":          `{"epoch":1,"seq":1,"keys":[{"id":@,"node":@}],"revoked":[@]}`,
	"/v1/operator/policy":        `{"version":1,"policy":@}`,
	"/v1/operator/peers/accept":  `{"domain":@,"fingerprints":[@]}`,
	"/v1/operator/peers/invite":  `{"token":@,"until":"2026-06-02T12:00:00Z","fingerprints":[@]}`,
	"/v1/operator/flagged":       `{"registrations":[{"agent":@,"origin":@,"rid":@,"reasons":[@]}],"flagged":[]}`,
	"/v1/operator/registrations": `{"registrations":[{"agent":@,"rid":@}]}`,
}

// terminalArguments are arguments of each command that prints, so that it gets to work. A
// command without a row must be in unreachable.
var terminalArguments = map[string][]string{
	"register":   {"x\u009b", "@doc"},
	"refresh":    {"weather"},
	"deregister": {"weather"},
	"transfer":   {"weather", "--to", "spiffe://alpha.test/agent/bob"},
	"get":        {"weather"},
	"lookup":     {},
	"watch":      {},
	"discover":   {"hello"},
	"explain":    {"hello"},
	"invoke":     {"weather", `{"a":1}`, "--no-validate"},
	"export":     {"weather", "--as", "mcp"},
	"verify":     {"weather"},
	"bundle":     {},
	"members":    {},
	"flagged":    {},
	"revoke":     {"spiffe://alpha.test/agent/eve"},
	"doctor":     {},
	"find":       {"--wait", "10ms"},
	"version":    {},

	"verify-release": {"x\u009b", "--key", "@doc"},

	"log check":      {"@doc"},
	"log checkpoint": {},
	"log enroll":     {},
	"log list":       {},
	"log policy":     {},
	"log prove":      {"0"},
	"log watch":      {"@doc"},

	"status":      {},
	"whoami":      {},
	"audit":       {},
	"proof":       {"POST", "https://ad.alpha.test/x\u009b"},
	"config":      {},
	"man":         {},
	"import a2a":  {"@doc"},
	"import mcp":  {"@doc"},
	"import oasf": {"@doc"},
	"import woa":  {"https://127.0.0.1:1"},

	"init":      {"@doc", "--trust-domain", "x\u009b"},
	"ca init":   {"x\u009b", "--dir", "@doc"},
	"ca issue":  {"x\u009b", "--dir", "@doc"},
	"ca renew":  {"--dir", "@doc"},
	"ca bundle": {"--dir", "@doc"},

	"peer accept":   {"roster-peer-1~x\u009b"},
	"peer evidence": {"beta.test"},
	"peer export":   {"beta.test"},
	"peer invite":   {"beta.test"},
	"peer list":     {},
	"peer release":  {"beta.test"},
	"peer remove":   {"beta.test"},
	"peer set":      {"beta.test", "--records", "60"},
	"peer show":     {"beta.test"},

	"raft admit":         {"spiffe://alpha.test/roster/node/4"},
	"raft leave":         {},
	"raft confirm-clock": {"--step", "1h"},
	"raft peers":         {},
	"raft remove":        {"spiffe://alpha.test/roster/node/4"},
	"raft transfer":      {},

	"keys list":     {},
	"keys revoke":   {"abc"},
	"history erase": {"abc"},
	"keys rotate":   {},

	"policy apply":   {"@doc"},
	"policy check":   {"@doc"},
	"policy explain": {"read"},
	"policy show":    {},

	"snapshot inspect": {"@doc"},
	"snapshot keygen":  {"@doc"},
	"snapshot restore": {"@doc"},
	"snapshot salvage": {"@doc"},
	"snapshot save":    {"@doc", "--plaintext"},

	"context list":   {},
	"context remove": {"x\u009b"},
	"context set":    {"x\u009b"},
	"context show":   {},
	"context use":    {"x\u009b"},
}

// unreachable are the commands that print nothing from elsewhere, and end only when they
// are interrupted. Their output passes the console as all does.
var unreachable = []string{"serve", "dev", "dev mint", "mcp", "help"}

// Text from outside reaches a terminal only in escaped form: from every command, in every
// format, from answers, errors and arguments (findings 13 and 22). A pipe gets the bytes as
// they came, since programs read those.
//
// Requirement: SEC-015, AD-072
func TestNoCommandPrintsTextThatATerminalActsOn(t *testing.T) {
	answers := []struct {
		name    string
		handler http.HandlerFunc
		formats []string
	}{
		{"answers", answerWith(http.StatusOK, ""), cli.Formats()},
		{"problems", answerWith(http.StatusConflict, hostileProblem), []string{"table"}},
		{"garbage", answerWith(http.StatusOK, "@\x9b31m"), []string{"table", "json"}}, // a byte that is not UTF-8
	}

	seen := map[string]bool{}
	for _, answer := range answers {
		w := newWorld(t, answer.handler)
		w.terminal = true
		document := w.file("doc\u009b.json", strings.ReplaceAll(hostileItem, "@", poisoned))

		eachCommand(func(c *cobra.Command) {
			path := strings.TrimPrefix(c.CommandPath(), "roster ")

			args, ok := terminalArguments[path]
			if c.HasSubCommands() || !c.Runnable() || strings.HasPrefix(path, "completion") ||
				slices.Contains(unreachable, path) {
				return
			}

			if !ok {
				t.Errorf("%s has no row in terminalArguments: add one, so that its output is tested", path)
				return
			}

			line := strings.Fields(path)
			for _, arg := range args {
				line = append(line, strings.ReplaceAll(arg, "@doc", document))
			}

			for _, format := range answer.formats {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				_, out, errs := w.runWith(ctx, append(line, "-o", format)...)
				cancel()
				seen[path] = seen[path] || strings.Contains(out+errs, "gnp.exe")

				if unsafe := actedOn(out + errs); unsafe != "" {
					t.Errorf("%s -o %s, %s: a terminal gets %s in\n%q", path, format, answer.name, unsafe, out+errs)
				}
			}
		})
	}

	if len(seen) < 40 {
		t.Errorf("only %d commands ran", len(seen))
	}

	for _, command := range []string{"get", "lookup", "watch", "discover", "invoke", "peer list", "members"} {
		if !seen[command] {
			t.Errorf("%s shows nothing of the answer, so it shows nothing here", command)
		}
	}

	shown := 0

	for _, is := range seen {
		if is {
			shown++
		}
	}

	t.Logf("%d commands, %d of which show text from outside", len(seen), shown)
}

// emphasis matches a heading or state with its escape sequences.
var emphasis = regexp.MustCompile("\x1b\\[(?:1|31|32|33)m([A-Za-z ()]+)\x1b\\[m")

// actedOn returns the first part of a terminal's input on which it would act, but for line
// breaks, the emphasis of headings and the colours of states; nothing if there is none.
func actedOn(text string) string {
	text = emphasis.ReplaceAllString(text, "$1")
	if !utf8.ValidString(text) {
		return "bytes that are not UTF-8"
	}

	i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
			unicode.Other_Default_Ignorable_Code_Point)
	})
	if i < 0 {
		return ""
	}

	return fmt.Sprintf("%+q", []rune(text[i:])[0])
}

// answerWith answers with a status and a body in which @ is the poison; an empty body is
// that of the path.
func answerWith(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		kind, text := "application/json", body
		switch {
		case status >= http.StatusBadRequest:
			kind = "application/problem+json"
		case r.URL.Path == "/ad/watch":
			kind = "text/event-stream"
		}

		if text == "" {
			text = hostileItem
			if answer, ok := hostileAnswers[r.URL.Path]; ok {
				text = answer
			}
		}

		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "@", poisoned))
	}
}
