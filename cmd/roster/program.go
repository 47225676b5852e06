package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/agents"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/cmd/roster/domain"
	"github.com/roster-mesh/roster/cmd/roster/ledger"
	"github.com/roster-mesh/roster/cmd/roster/local"
	"github.com/roster-mesh/roster/cmd/roster/release"
	"github.com/roster-mesh/roster/directory/spelling"
)

const rootHelp = `Roster is a federated directory of AI agents with signed records.

A domain is a SPIFFE trust domain with one directory, which the domain's nodes replicate with
Raft. Domains that peer exchange registrations; together they are the mesh.

To try it, start a mesh on this machine: roster dev

Data goes to standard output, notes and errors go to standard error. The default output is a
table; -o json prints the server's response, unchanged.

Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 permission denied, 5 conflict,
6 unavailable, 10 signature or format, 11 equivocation, 12 key or identity, 13 inclusion or
witness, 14 expired or stale, 15 rollback, 130 interrupted.`

// A program is one run of the command line.
type program struct {
	session *connect.Session
	args    []string
	parsed  bool               // the command line is valid
	cancel  context.CancelFunc // of the command's timeout; nil without one
}

// run runs one command line and returns its exit code.
func (p *program) run(ctx context.Context, args []string) int {
	p.args = args
	root := p.root()
	root.SetArgs(args)

	called, err := root.ExecuteContextC(ctx)
	p.session.Close()

	// The context is cancelled last, because the explanation of a timeout looks at it.
	if p.cancel != nil {
		defer p.cancel()
	}

	// Cobra prints help without looking at errors, and takes those of --version for a wrong command line.
	if failed := p.session.OutputFailure(); failed != nil {
		return p.fail(called, failed)
	}

	if err == nil {
		return cli.ExitOK
	}

	err = p.session.ExplainTimeout(called.Context(), err)

	if !p.parsed {
		err = suggestFlag(called, parseFailure(err))
	}

	return p.fail(called, err)
}

// bound bounds the time of a command.
func (p *program) bound(c *cobra.Command) error {
	if err := p.session.SetOutput(); err != nil {
		return err
	}

	ctx, cancel, err := p.session.Bound(c.Context(), c)
	p.cancel = cancel
	c.SetContext(ctx)

	return err
}

// Commands that talk to no directory, and those that stay or transfer as much as they find.
var (
	localCommands = []string{"find", "serve", "config", "init", "ca", "dev", "snapshot inspect",
		"snapshot keygen", "snapshot salvage", "policy check", "policy explain", "context list", "context use",
		"context remove", "man", "version", "verify-release"}
	unboundedCommands = []string{"watch", "log watch", "import", "mcp", "invoke", "doctor", "snapshot", "peer accept"}
)

// aliases are other names by which people know a command.
var aliases = map[string][]string{
	"lookup": {"ls", "list"}, "discover": {"search"}, "deregister": {"rm", "remove", "unregister", "delete"},
	"get":       {"show", "describe"},
	"peer list": {"ls"}, "peer remove": {"rm"}, "context list": {"ls"}, "context remove": {"rm"}, "keys list": {"ls"},
	"raft peers": {"list", "ls"}, "raft remove": {"rm"},
}

// suggested are words of other programs for which a command is suggested.
var suggested = map[string][]string{
	"audit":    {"logs", "events"},
	"context":  {"login"},
	"doctor":   {"health", "healthcheck", "ready", "check"},
	"members":  {"member", "nodes"},
	"peer":     {"join", "federate"},
	"policy":   {"acl"},
	"raft":     {"cluster", "operator"},
	"register": {"add", "apply", "create", "put"},
	"serve":    {"run", "server", "start"},
	"snapshot": {"backup", "restore"},
	"status":   {"info"},
}

func nameAliases(root *cobra.Command) {
	for path, names := range aliases {
		mustFind(root, path).Aliases = names
	}

	for path, words := range suggested {
		mustFind(root, path).SuggestFor = words
	}
}

// markCommands marks the commands that have no flags of the connection, or no timeout.
func markCommands(root *cobra.Command) {
	for _, path := range localCommands {
		cli.MarkLocal(mustFind(root, path))
	}

	for _, path := range unboundedCommands {
		cli.MarkUnbounded(mustFind(root, path))
	}
}

// mustFind returns the command of that path, which exists.
func mustFind(root *cobra.Command, path string) *cobra.Command {
	found, rest, err := root.Find(strings.Fields(path))
	if err != nil || len(rest) > 0 {
		panic("there is no command " + path)
	}

	return found
}

// parseFailure returns the failure of a command line that is refused before its command
// runs.
func parseFailure(err error) error {
	if errors.As(err, new(*cli.Failure)) {
		return err
	}

	return cli.ParseFailure(err)
}

// foreignFlags are the flags of other programs, with that of this program that does the same.
var foreignFlags = map[string]string{
	"cacert": "bundle", "ca-file": "bundle", "certificate-authority": "bundle", "client-cert": "cert",
	"client-certificate": "cert", "client-key": "key", "endpoint": "address", "endpoints": "address",
	"format": "output", "http-addr": "address", "lifetime": "lt", "limit": "count", "name": "agent",
	"namespace": "origin", "page": "all", "page-size": "count", "selector": "tag", "server": "address",
	"token": "token-file", "top": "limit", "ttl": "lt",
}

// suggestFlag adds to the failure of an unknown flag the flag of the command that is probably meant.
func suggestFlag(called *cobra.Command, err error) error {
	var failure *cli.Failure
	if !errors.As(err, &failure) {
		return err
	}

	name, isUnknown := strings.CutPrefix(failure.Message, "unknown flag: --")
	if !isUnknown {
		return err
	}

	var names []string

	called.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })

	meant := foreignFlags[name]

	// A flag of another program is suggested only if this command has its equivalent.
	if !slices.Contains(names, meant) {
		meant = spelling.Nearest(name, names)
	}

	if meant != "" {
		failure.Message += "; is --" + meant + " meant?"
	}

	return failure
}

// root returns the tree of all commands.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "roster",
		Short:         "Federated directory of AI agents with signed records",
		Version:       readVersion().Version,
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			// Cobra checks groups of flags only behind this function.
			if err := c.ValidateFlagGroups(); err != nil {
				return err
			}

			// Cobra calls this once it has read the flags and the arguments.
			p.parsed = true

			if err := checkLists(c); err != nil {
				return err
			}

			return p.bound(c)
		},
	}
	root.SetIn(p.session.Stdin)
	root.SetOut(p.session.Stdout)
	root.SetErr(p.session.Stderr)

	root.PersistentFlags().VarP(&p.session.Format, "output", "o",
		"output `FORMAT`: "+strings.Join(cli.Formats(), ", ")+" [ROSTER_OUTPUT]")

	cli.Complete(root, "output", cli.Formats()...)
	root.PersistentFlags().BoolVar(&p.session.NoHeaders, "no-headers", false, "print tables without headings")
	root.PersistentFlags().BoolVarP(&p.session.Quiet, "quiet", "q", false, "print no notes, only data and errors")
	root.PersistentFlags().BoolVarP(&p.session.Verbose, "verbose", "v", false,
		"print each request to the directory on standard error")

	session := p.session
	addGroup(root, "agents", "Agents:", agents.Commands(session)...)
	addGroup(root, "mesh", "Mesh:", append(domain.MeshCommands(session), ledger.Command(session))...)
	addGroup(root, "domain", "Domain (for operators):", domain.OperatorCommands(session)...)
	addGroup(root, "node", "Nodes:", append(domain.NodeCommands(session), local.Commands(session)...)...)
	root.AddCommand(connect.ContextCommand(session), connect.WhoamiCommand(session), manCommand(session),
		versionCommand(session), release.Command(session), connectionTopic(session))

	// The marks come first, because AttachFlags leaves out the marked commands.
	markCommands(root)
	nameAliases(root)
	p.session.AttachFlags(root)
	completeFromDirectory(root, session)
	p.checkHelpTopics(root)
	checkCompletion(root)
	root.SetUsageFunc(p.usage)

	return root
}

// checkLists refuses a list with an empty entry, such as one that ends in a comma. An empty text is the empty
// list.
func checkLists(c *cobra.Command) (err error) {
	c.Flags().Visit(func(flag *pflag.Flag) {
		list, is := flag.Value.(pflag.SliceValue)
		if is && flag.Value.Type() == "stringSlice" && slices.Contains(list.GetSlice(), "") && err == nil {
			err = cli.Usage("an entry of --%s is empty in %q; separate several by one comma", flag.Name,
				strings.Join(list.GetSlice(), ","))
		}
	})

	return err
}

// checkCompletion makes an unknown shell a wrong command line; cobra prints the usage and succeeds.
func checkCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()

	completion := mustFind(root, "completion")
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = cli.NeedSubcommand
}

// checkHelpTopics makes an unknown topic of help a wrong command line; cobra prints the
// usage and succeeds.
func (p *program) checkHelpTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()

	help, _, err := root.Find([]string{"help"})
	if err != nil {
		// The command was added above.
		panic(err)
	}

	help.Args = func(_ *cobra.Command, args []string) error {
		topic, rest, err := root.Find(args)

		// Find takes an unknown word behind a group for an argument.
		if err == nil && topic.HasSubCommands() && len(rest) > 0 {
			err = cli.Usage("unknown subcommand %q of %s", rest[0], topic.Name())
		}

		if err == nil {
			return nil
		}

		failure := cli.FailureOf(parseFailure(err))

		return failure.WithNext(p.session.Program + " --help")
	}
}

// addGroup adds commands under a title of their own in the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})

	for _, c := range commands {
		c.GroupID = id
	}

	root.AddCommand(commands...)
}

// fail prints a failure of the called command and returns the exit code.
func (p *program) fail(called *cobra.Command, err error) int {
	failure := cli.FailureOf(err)

	next := failure.Next
	if next == "" {
		next = p.suggestion(failure, called)
	}

	if p.failAsData(failure, next) {
		return failure.Code
	}

	p.session.Say("roster: %s", failure.Message)

	if len(failure.Faults) > 0 {
		p.noteFaults(failure.Faults)
		return failure.Code
	}

	if failure.Hint != "" {
		p.session.Say("%s", failure.Hint)
	}

	if next != "" {
		p.session.Say("Try: %s", next)
	}

	return failure.Code
}

// A failedCommand is a failure as -o json prints it.
type failedCommand struct {
	Error   string   `json:"error"`
	Code    int      `json:"exit_code"`
	Problem string   `json:"problem,omitempty"` // the code of the directory's answer
	Hint    string   `json:"hint,omitempty"`
	Next    string   `json:"next,omitempty"` // a command
	Faults  []string `json:"faults,omitempty"`
}

// failAsData prints a failure on standard error in the format of -o, and reports whether it did. For a table it does
// not.
func (p *program) failAsData(failure *cli.Failure, next string) bool {
	if p.session.Format.IsTable() {
		return false
	}

	failed := failedCommand{
		Error: failure.Message, Code: failure.Code, Hint: failure.Hint, Next: next, Faults: failure.Faults,
	}
	if response := (*apiclient.Error)(nil); errors.As(failure, &response) {
		failed.Problem = response.Code
	}

	text, err := cli.Marshal(failed)
	if err == nil && p.session.Format == cli.FormatYAML {
		text, err = cli.AppendYAML(nil, text)
	}

	if err == nil {
		_, err = p.session.Stderr.Write(text)
	}

	// A failure that can't be printed as data is printed for people.
	return err == nil
}

// noteFaults prints further faults of a document, in two lines at most.
func (p *program) noteFaults(faults []string) {
	const lines = 2

	for i, fault := range faults[:min(len(faults), lines)] {
		if left := len(faults) - lines; i == lines-1 && left > 0 {
			fault += fmt.Sprintf("; and %d more (-o json prints all)", left)
		}

		p.session.Say("  %s", fault)
	}
}

// suggestion returns the command that helps with a failure without a command of its own: the help for a command line
// that can't be read, and a lookup for an agent that was not found.
func (p *program) suggestion(failure *cli.Failure, called *cobra.Command) string {
	switch {
	case failure.Code == cli.ExitUsage && failure.NeedsHelp:
		verb := strings.Fields(called.CommandPath())[1:]
		return strings.Join(append(append([]string{p.session.Program}, verb...), "--help"), " ")

	case failure.Code == cli.ExitNotFound && called.Name() != "lookup":
		return p.session.CommandLine("lookup")
	}

	return ""
}
