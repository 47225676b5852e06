// Command roster runs a node of a federated directory of AI agents, and talks to
// one. README.md has the first two commands, roster help the rest.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// The first signal asks for an end; then the default handling is back, and
	// the second one is the end.
	endings := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup; else a terminal that is closed ends it in good order too
		endings = append(endings, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings...)
	context.AfterFunc(ctx, stop)
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		program: programName(), terminal: isTerminal(os.Stdout),
		connection: connection{getenv: os.Getenv, configDir: os.UserConfigDir},
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// An app is one call of the program: what surrounds it and its global flags.
type app struct {
	stdin    io.Reader
	stdout   io.Writer // data
	stderr   io.Writer // notes and errors
	program  string    // how people call it, for the commands that it suggests
	terminal bool      // stdout is one

	connection
	output  format
	args    []string
	started bool // the command line was understood
}

// run runs one command line and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.args = args
	root := a.root()
	root.SetArgs(args)
	called, err := root.ExecuteContextC(ctx)
	a.close()
	a.end()
	switch {
	case err == nil:
		return exitOK
	case !a.started:
		err = misunderstood(err)
	}
	return a.fail(verbOf(called), err)
}

// root is the tree of all commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "roster",
		Short:         "A federated directory of AI agents with signed records",
		Long:          rootHelp,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRun: func(*cobra.Command, []string) { a.started = true },
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	a.flags(root)
	root.PersistentFlags().VarP(&a.output, "output", "o", "table, wide, json, jsonl or yaml")
	for name, values := range map[string]cobra.CompletionFunc{
		"output": cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp), "context": a.completeContext,
	} {
		if err := root.RegisterFlagCompletionFunc(name, values); err != nil {
			panic(err) // both are flags of root
		}
	}
	root.AddCommand(
		a.devCommand(), a.serveCommand(), a.configCommand(),
		a.registerCommand(), a.refreshCommand(), a.deregisterCommand(), a.transferCommand(), a.importCommand(), a.exportCommand(),
		a.getCommand(), a.lookupCommand(), a.discoverCommand(), a.explainCommand(), a.invokeCommand(), a.watchCommand(), a.findCommand(), a.verifyCommand(), a.mcpCommand(),
		a.membersCommand(), a.raftCommand(), a.snapshotCommand(), a.peerCommand(), a.keysCommand(), a.policyCommand(), a.revokeCommand(), a.flaggedCommand(), a.contextCommand(), a.doctorCommand(), a.manCommand(), a.versionCommand(),
	)
	return root
}

const rootHelp = `A federated directory of AI agents with signed records.

Start a whole mesh on this machine with "roster dev". The commands that talk to
a directory take its address and who you are from flags, or from the environment
(ROSTER_ADDRESS, ROSTER_BUNDLE, ROSTER_CERT, ROSTER_KEY), or from a context that
"roster context set" has made: a flag wins over the environment, that over a context.

Data goes to standard output, notes and errors to standard error. Tables are for
people; for programs there is -o json, which is the directory's answer as it came.

Exit codes: 0 fine, 1 failed, 2 usage, 3 not found, 4 refused, 5 conflict,
6 unavailable, 10 signature or format, 11 equivocation, 12 key or identity,
13 inclusion or witness, 14 expired or stale, 15 rollback, 130 interrupted.`

// programName is how people call this program: through go run, or as it was
// called just now.
func programName() string {
	if self, err := os.Executable(); err == nil && strings.Contains(self, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/roster"
	}
	return shellQuote(os.Args[0])
}

// verbOf returns the words that name a command, without the program's.
func verbOf(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
