package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A shell completes kinds, scopes, formats and contexts by itself, and names, origins and
// peers by the directory. A directory that is away completes nothing, without a word.
// notes/users.md: "completion knows no values".
func TestWordsAreCompleted(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/operator/peers" {
			says(`{"peers":[{"domain":"beta.test"},{"domain":"gamma.test"}]}`)(w, r)
			return
		}

		if r.URL.Path == "/v1/operator/raft" {
			says(`{"peers":[{"id":"spiffe://alpha.test/roster/node/a"},{"id":"spiffe://alpha.test/roster/node/b"}]}`)(w, r)
			return
		}

		says(`{"agents":[{"agent":"weather","protocols":["mcp"],"provenance":{"origin_authority":"beta.test"}},`+
			`{"agent":"wind","provenance":{"origin_authority":"alpha.test"}}]}`)(w, r)
	})

	rows := map[string]string{
		"get w":                                 "weather wind",
		"get we":                                "weather",
		"refresh w":                             "weather wind",
		"transfer wi":                           "wind",
		"lookup --origin b":                     "beta.test",
		"lookup --agent w":                      "weather wind",
		"peer export g":                         "gamma.test",
		"peer export beta.test g":               "",
		"lookup --scope d":                      "domain mesh",
		"register weather FILE --kind a":        "a2a ad",
		"discover print --min-verification wit": "witnessed",
		"lookup -o json":                        "json jsonl",
		"lookup --protocol m":                   "mcp",
		"register weather FILE --visibility m":  "mesh",
		"raft transfer a":                       "a",
		"raft remove b":                         "b",
		"bundle b":                              "beta.test",
		"context use al":                        "alpha",
	}
	w.run("context", "set", "alpha", "--address", "https://127.0.0.1:1")

	for line, want := range rows {
		code, out, _ := w.run(append([]string{"__completeNoDesc"}, words(line)...)...)
		if code != 0 {
			t.Errorf("%s: exit code %d", line, code)
		}

		offered := strings.Fields(out[:strings.LastIndexByte(strings.TrimSpace(out), ':')])
		for _, word := range strings.Fields(want) {
			if !strings.Contains(" "+strings.Join(offered, " ")+" ", " "+word+" ") {
				t.Errorf("%s: completed by %q, want %q", line, offered, want)
			}
		}

		if want == "" && len(offered) > 0 {
			t.Errorf("%s: completed by %q", line, offered)
		}
	}

	release := make(chan struct{})
	silent := newWorld(t, func(http.ResponseWriter, *http.Request) { <-release })

	begun := time.Now()
	code, out, errs := silent.run("__completeNoDesc", "get", "w")

	close(release)

	took := time.Since(begun)
	if code != 0 || out != ":4\n" || strings.Contains(errs, "roster:") || took > 20*time.Second {
		t.Errorf("exit code %d, %q, %q after %s", code, out, errs, took)
	}

	silent.env["ROSTER_ADDRESS"] = "https://127.0.0.1:1"
	if code, out, errs := silent.run("__completeNoDesc", "get", "w"); code != 0 || out != ":4\n" ||
		strings.Contains(errs, "roster:") {
		t.Errorf("without a directory: exit code %d, %q, %q", code, out, errs)
	}
}

// A shell evaluates the words that complete a line, and others choose agents' names: words
// that are more than a plain word to a shell are not offered.
func TestHostileNamesAreNotOffered(t *testing.T) {
	const hostile = "`touch x` $(id) wa;id wa|id wa&id wa\"b wa'b wa\\\\b wa>b wa*b wa~b wa{b} wa!b wa#b wa=b -w --address=e"

	var agents []string
	for _, name := range append(strings.Fields(hostile), "wa ter", "wa\u0085ter", "wa\u202eter", "wärme",
		"w_a-t.e@r/2:1+x") {
		text, err := json.Marshal(map[string]any{"agent": name})
		must(t, err)

		agents = append(agents, string(text))
	}

	w := newWorld(t, says(`{"agents":[`+strings.Join(agents, ",")+`]}`))
	for prefix, want := range map[string]string{"w": "w_a-t.e@r/2:1+x\nwärme\n:4\n", "": "w_a-t.e@r/2:1+x\nwärme\n:4\n",
		"`": ":4\n", "$": ":4\n"} {
		if code, out, _ := w.run("__completeNoDesc", "get", prefix); code != 0 || out != want {
			t.Errorf("%q: exit code %d, %q, want %q", prefix, code, out, want)
		}
	}
}

// People find commands by the names that they know.
// notes/users.md: "no aliases (ls, list, search, rm, status, whoami)".
func TestCommandsHaveTheirUsualNames(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}

		says(`{"agents":[],"candidates":[],"peers":[],"keys":[]}`)(w, r)
	})
	for _, line := range []string{"ls", "list", "search rain", "rm weather", "peer ls", "keys ls", "context ls",
		"raft list", "--version", "help connection", "connection", "lookup --version=false"} {
		code, out, errs := w.run(words(line)...)
		if wrong := strings.HasPrefix(line, "lookup"); (code == 2) != wrong {
			t.Errorf("%s: exit code %d, %s%s", line, code, out, errs)
		}
	}
}
