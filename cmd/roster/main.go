// Command roster runs a node of a federated directory of AI agents, and talks to one.
// README.md has the first two commands, roster help has the rest.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func main() {
	// The first signal ends ctx and restores the default handling, so that a second signal
	// kills the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	ctx = cli.WithHangup(ctx)

	console := cli.NewConsole(cli.StandardStreams(ctx), programName())
	console.NoColor = noColor(os.Getenv)

	p := &program{session: &connect.Session{
		Console:   console,
		Directory: connect.NewDirectory(os.Getenv, os.UserConfigDir),
	}}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// programName returns the program's name for suggested commands: through go run, or as it
// was called.
func programName() string {
	self, err := os.Executable()
	if err == nil && strings.Contains(self, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/roster"
	}

	return cli.ShellQuote(os.Args[0])
}

// noColor reports whether the environment switches terminal colours off (no-color.org).
func noColor(getenv func(string) string) bool {
	return getenv("NO_COLOR") != "" || getenv("TERM") == "dumb"
}
