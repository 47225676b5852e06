package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/node/dev"
)

// scriptWait bounds each wait of a script.
const scriptWait = 60 * time.Second

// commands are the additional commands of the scripts in testdata.
var commands = map[string]func(*testscript.TestScript, bool, []string){
	"exits":      exits,
	"await":      await,
	"eventually": eventually,
	"pasted":     pasted,
	"load":       load,
	"nodes":      nodes,
	"agent":      agent,
	"systemd":    systemd,
	"speakers":   speakers,
	"recorder":   recorder,
}

// systemd collects in a file what programs that are started from then on say to their service
// manager (sd_notify), a line each: systemd FILE.
func systemd(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 1, "systemd FILE")

	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: ts.MkAbs("notify"), Net: "unixgram"})
	ts.Check(err)

	file, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)

	done := make(chan struct{})
	go func() {
		defer close(done)

		message := make([]byte, 4096)
		for {
			n, err := socket.Read(message)
			if err != nil {
				return
			}

			fmt.Fprintf(file, "%s\n", message[:n])
		}
	}()
	ts.Defer(func() {
		_ = socket.Close()

		<-done

		_ = file.Close()
	})
	ts.Setenv("NOTIFY_SOCKET", ts.MkAbs("notify"))
	ts.Setenv("WATCHDOG_USEC", "1000000")
}

// speakers starts two agents on loopback without TLS, for which SPEAKERS is the URL: one of
// A2A at /a2a, which answers with the parts that it got, and one of MCP at /mcp with the tool
// say.
func speakers(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 0, "speakers")

	type words struct {
		Words string `json:"words"`
	}

	tools := mcp.NewServer(&mcp.Implementation{Name: "speaker", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "say", Description: "Says."},
		func(_ context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, words, error) {
			return nil, words{"said: " + in.Words}, nil
		})

	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil))
	mux.HandleFunc("/a2a", func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Params struct {
				Message struct {
					Parts json.RawMessage `json:"parts"`
				} `json:"message"`
			} `json:"params"`
		}

		_ = json.NewDecoder(r.Body).Decode(&call) // no parts are an answer that the script notices

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"1","result":{"kind":"message","parts":%s}}`, call.Params.Message.Parts)
	})

	s := httptest.NewServer(mux)
	ts.Defer(s.Close)
	ts.Setenv("SPEAKERS", s.URL)
}

// agent starts an agent on loopback that shows the card in a file as its own, with its
// own address in the place of AGENT there and in the file: agent FILE [CERT KEY]. Its address's
// host and port are the agent's name; agent.pem certifies it, unless it shows an SVID.
func agent(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 1 || len(args) == 3, "agent FILE [CERT KEY]")

	var card string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != probe.CardPath {
			http.NotFound(w, r)
			return
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, card)
	}))
	ts.Defer(s.Close)

	if len(args) == 3 {
		svid, err := tls.LoadX509KeyPair(ts.MkAbs(args[1]), ts.MkAbs(args[2]))
		ts.Check(err)

		s.TLS = &tls.Config{Certificates: []tls.Certificate{svid}}
	}

	s.StartTLS()

	card = strings.ReplaceAll(ts.ReadFile(args[0]), "AGENT", s.URL)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(card), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("agent.pem"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	ts.Setenv("AGENT", strings.TrimPrefix(s.URL, "https://"))
}

// exits runs a command that must end with an exit code: exits CODE COMMAND…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) >= 2, "exits CODE COMMAND ARG...")

	err := ts.Exec(args[1], args[2:]...)
	if got := exitCodeOf(err); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// await waits until a file holds a text: await FILE REGEXP
func await(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 2, "await FILE REGEXP")
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	until(ts, func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && pattern.Match(b)
	})
}

// eventually repeats a command until it succeeds: eventually COMMAND…
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) >= 1, "eventually COMMAND ARG...")
	until(ts, func() bool { return ts.Exec(args[0], args[1:]...) == nil })
}

func until(ts *testscript.TestScript, done func() bool) {
	bound := time.After(scriptWait)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for !done() {
		select {
		case <-bound:
			ts.Fatalf("not within %s", scriptWait)
		case <-tick.C:
		}
	}
}

// pasted runs the command lines that roster dev printed, as a newcomer would.
func pasted(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 1, "pasted FILE")

	var lines []string
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if first, _, _ := strings.Cut(strings.TrimPrefix(line, "  "), " "); slices.Contains(
			[]string{"curl", "roster", "."}, first) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}

	if len(lines) != 10 { // six of this program's, three of curl, and a verification
		ts.Fatalf("%d lines to paste, want 10: %q", len(lines), lines)
	}

	ts.Check(ts.Exec("sh", "-ec", strings.Join(lines, "\n")))
}

// load sets the environment as a file of exports does.
func load(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 1, "load FILE")

	for line := range strings.Lines(ts.ReadFile(args[0])) {
		name, value, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "export ")), "=")
		if ok {
			ts.Setenv(name, strings.Trim(value, "'"))
		}
	}
}

// nodes puts the first node of each domain into the environment: ALPHA_API,
// ALPHA_PID, ALPHA_CONFIG and so on.
func nodes(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, len(args) == 1, "nodes FILE")

	var mesh dev.Mesh
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &mesh))

	for _, d := range mesh.Domains {
		name, _, _ := strings.Cut(strings.ToUpper(d.TrustDomain), ".")
		ts.Setenv(name+"_API", d.Nodes[0].API)
		ts.Setenv(name+"_ADMIN", d.Nodes[0].Admin)
		ts.Setenv(name+"_PID", fmt.Sprint(d.Nodes[0].PID))
		ts.Setenv(name+"_CONFIG", d.Nodes[0].Config)
	}
}

func want(ts *testscript.TestScript, neg, ok bool, usage string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// exitCodeOf returns an exit code as a script writes it.
func exitCodeOf(err error) string {
	if err == nil {
		return "0"
	}

	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err.Error()
	}

	return fmt.Sprint(exit.ExitCode())
}
