package agents

import (
	"context"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/names"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The values of --on-exit.
const (
	onExitKeep   = "keep"
	onExitRemove = "remove"
)

func registerCommand(session *connect.Session) *cobra.Command {
	var (
		options  apiclient.RegisterOptions
		lifetime cli.Lifetime
		keep     bool
		staple   string
		tools    bool
		asked    connect.FetchOptions
	)
	onExit := onExitKeep

	cmd := &cobra.Command{
		Use:   "register NAME FILE",
		Short: "Register an agent or replace its registration",
		Long: `Register an agent under NAME with the JSON document in FILE (- for standard input). If you
own a registration of that name, it is replaced. The kinds of documents, which are recognised
by their members unless you give --kind:

  ad       agent description of the Agent Directory draft, {"base": "https://...", ...}
  profile  profile of the Efficient Agent Discovery draft
  aidip    metadata of the AI Agent Discovery and Invocation draft
  woa      Web of Agents document with one agent
  a2a      A2A agent card
  mcp      MCP server.json
  oasf     OASF record

If the document is invalid, the first three faults are printed, and with -o json all of them.
After the registration the command notes endpoints that are not https or whose host doesn't
resolve on this machine; the directory resolves none.

A registration expires at the end of its lifetime unless it is refreshed. With --keep the
command keeps running and refreshes it after 0.4 to 0.6 of the granted lifetime. It retries
while the directory is unreachable, and registers again if the registration has expired. It
ends on SIGINT or SIGTERM, or with exit code 5 if another identity has taken the name.

With --staple, --keep also writes a small proof file that the agent shows to others, after each
refresh and every 10 minutes: "roster verify FILE --staple" accepts it for 30 minutes. It needs
--visibility mesh.

With --tools the MCP server of a server.json is asked once, from this machine and without
credentials, for its tools. Their names and descriptions are added to the document, at
/_meta/io.modelcontextprotocol.registry~1publisher-provided/tools, so that the server is found
by its tools.`,
		Example: "  roster register weather-oslo agent.json --lt 3600\n" +
			"  roster register weather-oslo card.json --keep --on-exit remove",
		Args: cli.Args("NAME", "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if onExit != onExitKeep && onExit != onExitRemove {
				return cli.Usage("--on-exit must be keep or remove, got %q", onExit)
			}

			if staple != "" && !keep {
				return cli.Usage("--staple needs --keep; roster get NAME --staple prints one staple")
			}

			if err := checkName(session, args[0]); err != nil {
				return err
			}

			document, err := readDocument(session, args[1])
			if err != nil {
				return err
			}

			if options.Owner != "" {
				if _, err := directory.ParseIdentity(options.Owner); err != nil {
					return cli.Usage("--owner must be a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT, got %q",
						options.Owner)
				}
			}

			options.Lifetime = lifetime.Duration()
			r := &registrant{
				session: session,
				keeper:  apiclient.Keeper{Agent: args[0], Document: document, Options: options},
				remove:  onExit == onExitRemove,
				file:    args[1],
				staple:  staple,
			}

			// The kind is recognised before addTools, which is for one kind only.
			r.recogniseKind()

			switch {
			case tools:
				if err := r.addTools(c.Context(), &asked); err != nil {
					return err
				}
			case asked.Loopback || asked.Bundle != "":
				return cli.Usage("--source-bundle and --insecure-loopback are for --tools")
			}

			return r.run(c.Context(), keep)
		},
	}
	flags := cmd.Flags()
	cli.LifetimeFlag(cmd, &lifetime)
	cli.ChoiceFlag(cmd, &options.Kind, "kind",
		"`KIND` of the document: "+strings.Join(directory.KindNames(), ", ")+" (default: recognised, or ad)",
		directory.KindNames()...)
	cli.VisibilityFlag(cmd, &options.Visibility, "`VISIBILITY` outside the domain: "+
		"domain (none), mesh, or peers:DOMAIN,... (default: unchanged; for a new registration, by policy)")
	flags.StringVar(&options.Owner, "owner", "",
		"`IDENTITY` to register for (commissioning tools only; default: yourself)")
	flags.BoolVar(&tools, "tools", false, "ask the MCP server for its tools, and add them to the document")
	asked.AddFlags(cmd)
	flags.BoolVar(&keep, "keep", false, "keep running and refresh the registration")
	flags.StringVar(&staple, "staple", "", "`FILE` in which --keep keeps a fresh proof for the agent to carry")
	flags.StringVar(&onExit, "on-exit", onExit,
		"`ACTION` when --keep ends: keep the registration until it expires, or remove it")

	return cmd
}

// readDocument reads a document from a file, or from standard input if the file is -. Whether it is
// valid for its kind is for the directory to say; here it must be one JSON object.
func readDocument(session *connect.Session, file string) ([]byte, error) {
	document, err := session.ReadFile(file, cli.MaxFile+1)
	if err != nil {
		return nil, err
	}

	if _, err := strictjson.ParseObject(document); err != nil {
		name := file
		if name == "-" {
			name = "standard input"
		}

		return nil, cli.Failed(cli.ExitFailed, "%s can't be registered: %s", name,
			strings.Replace(err.Error(), "the body", "it", 1))
	}

	if document = cli.FitDocument(document); len(document) > directory.MaxDocument {
		return nil, cli.Failed(cli.ExitFailed, "%s has %d bytes without white space; at most %d are allowed", file,
			len(document), directory.MaxDocument)
	}

	return document, nil
}

// A registrant registers one agent and, with --keep, keeps it registered.
type registrant struct {
	session *connect.Session
	keeper  apiclient.Keeper
	remove  bool   // when --keep ends
	file    string // with the document; - for standard input
	staple  string // file for the proof that travels with the agent; may be empty
}

func (r *registrant) run(ctx context.Context, keep bool) (err error) {
	if r.keeper.Client, err = r.session.Client(); err != nil {
		return err
	}

	registered, err := r.keeper.Register(ctx)
	if err != nil {
		return r.suggestGet(r.explainInvalid(err))
	}

	r.noteIgnored(&registered.Reply)

	claims := r.claims()
	r.noteSpelling(claims.protocols)

	if err := r.report(registered); err != nil {
		return err
	}

	r.noteVisibility(registered.Visibility)

	// The endpoints come last, because their resolver may take its time.
	r.noteEndpoints(ctx, claims.endpoints)

	if !keep {
		return nil
	}

	return r.keep(ctx)
}

// suggestGet adds the command that shows who owns the name to a conflict.
func (r *registrant) suggestGet(err error) error {
	return cli.Suggest(err, cli.ExitConflict, r.session.CommandLine("get", r.keeper.Agent, "--provenance"))
}

// report prints the result from the response's header, because its body is empty.
func (r *registrant) report(registered *apiclient.Registered) error {
	result := "replaced"
	if registered.Created {
		result = "registered"
	}

	granted := cli.WholeSeconds(r.keeper.Granted())
	if asked := cli.WholeSeconds(r.keeper.Options.Lifetime); asked > granted {
		r.session.Note("Lifetime granted: %d s instead of %d s.", granted, asked)
	}

	if !registered.Created && r.keeper.Options.Lifetime == 0 {
		r.session.Note("Note: its lifetime is the default now, whatever it was; --lt sets another, such as that of a "+
			"register --keep that runs for %s.", r.keeper.Agent)
	}

	written := cli.WrittenOf(registered.Href, result, registered.Header)
	written.Agent, written.RID, written.Lifetime = r.keeper.Agent, registered.RID, granted
	written.Visibility = registered.Visibility

	table := cli.Table{Head: []string{"AGENT", "RID", "RESULT", "LIFETIME", "VISIBILITY", "+INDEX"}}
	table.Add(written.Agent, written.RID, result, strconv.FormatUint(granted, 10), written.Visibility, written.Index)

	return r.session.PrintValue(written, "", table)
}

// noteVisibility notes that peers don't see the registration, unless that was asked for.
func (r *registrant) noteVisibility(visibility string) {
	if visibility == visibleInDomain && r.keeper.Options.Visibility == "" {
		r.session.Note("Note: no other domain sees %s; --visibility mesh shows it to the peers to which the domain "+
			"exports", r.keeper.Agent)
	}
}

// visibleInDomain is the visibility of the own domain alone.
var visibleInDomain = directory.Visibility{}.String()

// checkName refuses a name that no directory accepts, and notes a space inside of one: it is
// hard to see and to type.
func checkName(session *connect.Session, name string) error {
	if _, err := directory.ParseName(name); err != nil {
		return err
	}

	if err := names.Check(name); err != nil {
		return err
	}

	if strings.ContainsFunc(name, unicode.IsSpace) {
		session.Note("The name %q has a space inside.", name)
	}

	return nil
}
