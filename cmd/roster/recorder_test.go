package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// recorder starts agents on loopback without TLS, for which RECORDER is the URL, and writes each
// request to a file, a line each with method, path, Accept and body: recorder FILE. They speak A2A
// 1.0 at any path, strictly by its media type at /rest, and 0.3 if the method says so. At a path
// that ends with /mcp is an MCP server whose list of tools always has the same next page.
func recorder(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 1, "recorder FILE")

	file, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)

	var mu sync.Mutex // guards file

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)

		mu.Lock()
		fmt.Fprintln(file, r.Method, r.URL.Path, r.Header.Get("Accept"), strings.ReplaceAll(string(body), "\n", ""))
		mu.Unlock()

		accept := r.Header.Get("Accept")
		if strings.HasPrefix(r.URL.Path, "/rest") && !strings.Contains(accept, "application/a2a+json") {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}

		answerRecorded(w, r, body)
	}))
	ts.Defer(func() {
		server.Close()

		_ = file.Close()
	})
	ts.Setenv("RECORDER", server.URL)
}

// answerRecorded answers one request to a recorder.
func answerRecorded(w http.ResponseWriter, r *http.Request, body []byte) {
	const message = `{"message":{"role":"ROLE_AGENT","messageId":"1","parts":[{"text":"heard"}]}}`

	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}

	_ = json.Unmarshal(body, &call) // a body that is no call has no method

	result := message
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case call.Method == "":
		w.Header().Set("Content-Type", "application/a2a+json")
		fmt.Fprint(w, message)

		return
	case call.ID == nil: // a notification
		w.WriteHeader(http.StatusAccepted)
		return
	case call.Method == "message/send":
		result = `{"kind":"message","role":"agent","messageId":"1","parts":[{"kind":"text","text":"heard"}]}`
	case call.Method == "initialize":
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"r","version":"1"}}`
	case call.Method == "tools/list":
		result = `{"tools":[{"name":"again","inputSchema":{"type":"object"}}],"nextCursor":"same"}`
	case strings.HasPrefix(call.Method, "tools/"):
		result = `{"content":[{"type":"text","text":"heard"}]}`
	}

	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
}
