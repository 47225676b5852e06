package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// lifetimeFlag adds --lt, which is checked before anything is sent.
func lifetimeFlag(c *cobra.Command, lt *lifetime) {
	c.Flags().Var(lt, "lt", "lifetime, at least 60; the directory may grant less")
}

// A lifetime is a number of seconds as a flag; zero where it is not given.
type lifetime uint32

func (l *lifetime) String() string {
	if *l == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*l), 10)
}

func (l lifetime) duration() time.Duration { return time.Duration(l) * time.Second }

// Type names the flag's value in the help.
func (l *lifetime) Type() string { return "SECONDS" }

// Set is called with what stands behind --lt.
func (l *lifetime) Set(s string) error {
	n, err := directory.ParseLifetime(s, 0)
	if err == nil && n == 0 {
		err = errors.New("it is empty")
	}
	*l = lifetime(n)
	return err
}

func (a *app) registerCommand() *cobra.Command {
	var o apiclient.RegisterOptions
	var lt lifetime
	var keep bool
	onExit := "keep"
	c := &cobra.Command{
		Use:   "register NAME FILE",
		Short: "Register an agent, or replace its registration",
		Long: `Register an agent under a name with the document in FILE (- is standard input),
or replace the registration that you have under that name.

A registration ends when its lifetime has passed without a refresh. With --keep
the program stays, refreshes it at 0.4 to 0.6 of the granted lifetime, bears with
a directory that is away, and registers again what has expired; it ends on SIGINT
or SIGTERM, or with exit code 5 when another identity has taken the name.`,
		Example: "  roster register weather-oslo agent.json --lt 3600\n  roster register weather-oslo card.json --kind a2a --keep --on-exit remove",
		Args:    needs("NAME", "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if onExit != "keep" && onExit != "remove" {
				return usage("--on-exit is %q; it is keep or remove", onExit)
			}
			o.Lifetime = lt.duration()
			r := &registrant{app: a, keeper: apiclient.Keeper{Agent: args[0], Options: o}, remove: onExit == "remove"}
			if err := r.read(args[1]); err != nil {
				return err
			}
			return r.run(c.Context(), keep)
		},
	}
	f := c.Flags()
	lifetimeFlag(c, &lt)
	f.StringVar(&o.Kind, "kind", "", "what the document is, ad by default: "+strings.Join(directory.KindNames(), ", "))
	f.StringVar(&o.Visibility, "visibility", "", "who beyond the domain may have it: domain, mesh, or peers:DOMAIN,… (default: as it is; of a new one, by policy)")
	f.StringVar(&o.Owner, "owner", "", "on whose behalf to register, of a commissioning tool: the identity that is to own it (default: yours)")
	f.BoolVar(&keep, "keep", false, "stay and refresh it")
	f.StringVar(&onExit, "on-exit", onExit, "what --keep does at its end: keep the registration until it expires, or remove it")
	return c
}

// A registrant registers one agent, and keeps it registered if asked to.
type registrant struct {
	*app
	keeper apiclient.Keeper
	remove bool // at the end
}

// read reads the document. What is wrong with it as JSON or as a name is for the
// directory to say; notes are ours.
func (r *registrant) read(file string) error {
	if _, err := directory.ParseName(r.keeper.Agent); err != nil {
		return err
	}
	var err error
	r.keeper.Document, err = r.readFile(file, directory.MaxDocument+1)
	return err
}

func (r *registrant) run(ctx context.Context, keep bool) (err error) {
	if r.keeper.Client, err = r.client(); err != nil {
		return err
	}
	out, err := r.keeper.Register(ctx)
	if err != nil {
		return suggest(err, exitConflict, r.command("get", r.keeper.Agent, "--provenance"))
	}
	r.noteSpelling()
	if err := r.report(out); err != nil || !keep {
		return err
	}
	return r.keep(ctx)
}

// report prints what the answer's header says, since its body is empty.
func (r *registrant) report(out *apiclient.Registered) error {
	done := "replaced"
	if out.Created {
		done = "registered"
	}
	granted := inSeconds(r.keeper.Granted())
	if asked := inSeconds(r.keeper.Options.Lifetime); asked > granted {
		r.note("The directory grants %d s, not %d.", granted, asked)
	}
	b := strictjson.AppendText([]byte{'{'}, "agent", r.keeper.Agent)
	b = strictjson.AppendText(b, "rid", out.RID)
	b = strictjson.AppendText(b, "href", out.Href)
	b = strictjson.AppendText(b, "result", done)
	b = strictjson.AppendUint(b, "lt", granted)
	if at := out.Index(); at != "" {
		b = strictjson.AppendText(b, "index", at) // for --min
	}
	b = append(b, "}\n"...)
	return r.print(answer{body: b, table: table{
		head: []string{"AGENT", "RID", "RESULT", "LIFETIME", "+INDEX"},
		rows: [][]string{{r.keeper.Agent, out.RID, done, strconv.FormatUint(granted, 10), out.Index()}},
	}})
}

// usual is how protocols are spelt: a lower-case short name, and a version where
// one is meant (jimenez 4.1).
var usual = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{0,31}(/[A-Za-z0-9+._-]+)?$`)

// noteSpelling says which protocols are spelt as nobody will look for them. They
// were taken as they are: it is no error (AD-048).
func (r *registrant) noteSpelling() {
	kind, err := directory.ParseKind(r.keeper.Options.Kind)
	if err != nil {
		return
	}
	doc, err := directory.ParseDocument(kind, r.keeper.Document)
	if err != nil {
		return
	}
	p, err := kinds.Project(r.keeper.Agent, doc)
	if err != nil {
		return
	}
	for _, protocol := range p.Protocols {
		if !usual.MatchString(protocol) {
			r.note("Note: the protocol %q is registered exactly so; usual are lower-case short names such as a2a or mcp/1.0, which is what people look for.", protocol)
		}
	}
}

func (a *app) refreshCommand() *cobra.Command {
	var lt lifetime
	c := &cobra.Command{
		Use:   "refresh NAME|RID",
		Short: "Renew a registration for another lifetime",
		Args:  needs("NAME|RID"),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, args []string) error {
			out, err := client.Refresh(ctx, resource(args[0], ""), lt.duration())
			if err != nil {
				return a.helpWith(err, "refresh", args[0])
			}
			if out.Granted != 0 {
				a.note("The directory grants %d s, not %d.", inSeconds(out.Granted), lt)
			}
			a.note("%s is refreshed.", args[0])
			return a.printBody(out.Body)
		}),
	}
	lifetimeFlag(c, &lt)
	return c
}

func (a *app) deregisterCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "deregister NAME|RID",
		Short: "Remove a registration",
		Args:  needs("NAME|RID"),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, args []string) error {
			reply, err := client.Deregister(ctx, resource(args[0], ""))
			if err != nil {
				return a.helpWith(err, "deregister", args[0])
			}
			a.note("%s is removed.", args[0])
			return a.printBody(reply.Body)
		}),
	}
}

// printBody prints the body of an answer that most often has none.
func (a *app) printBody(body []byte) error {
	if len(body) == 0 || a.output == "" || a.output == "table" || a.output == "wide" {
		return nil
	}
	return a.print(answer{body: body})
}

// helpWith adds what helps where a registration can't be changed.
func (a *app) helpWith(err error, verb, id string) error {
	var e *apiclient.Error
	if errors.As(err, &e) && e.Code == string(directory.ForeignRegistration) {
		if at, parse := url.Parse(e.OriginHref); parse == nil && at.Host != "" {
			return failureOf(err).try(a.program + " --address https://" + shellQuote(at.Host) + " " + verb + " " + shellQuote(id))
		}
	}
	err = a.suggestLookup(err, id)
	return suggest(err, exitRefused, a.command("get", id, "--provenance"))
}

// resource is the path of a registration: by rid or name, at one origin where
// that is given with a rid, or as a path that an answer had.
func resource(id, origin string) string {
	switch {
	case strings.HasPrefix(id, "/ad/r/"):
		return id
	case origin != "":
		return "/ad/r/" + url.PathEscape(origin) + "/" + url.PathEscape(id)
	}
	return "/ad/r/" + url.PathEscape(id)
}

// prefixOf is the lookup that finds what somebody may have meant by a name.
func prefixOf(id string) string {
	runes := []rune(id)
	return fmt.Sprintf("%s*", string(runes[:min(len(runes), 3)]))
}
