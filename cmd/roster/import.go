package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway/crawl"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/trust"
)

// importers is how many documents are registered at the same time.
const importers = 8

func (a *app) importCommand() *cobra.Command {
	return group("import", "Register agents from other catalogues and origins",
		a.importWoA(),
		a.importKind(directory.KindA2A, "Register A2A agent cards",
			"A card's agent name is the host and path of its url. Of an origin's URL, the card is\nthe one at its "+probe.CardPath+". Files and URLs may hold one card, an array\nof them, or a list as a registry answers it: {\"agents\": [...]}, whose items are cards or\nhave one as their \"agent_card\"."),
		a.importKind(directory.KindMCP, "Register MCP servers",
			"A server's agent name is its name. Files may hold one server.json, an array of\nthem, or a list as an MCP registry answers it. At\na URL, such as https://registry.example/v0/servers, the list is read to its end, and\nof each server the latest version is taken."),
		a.importKind(directory.KindOASF, "Register OASF records",
			"A record's agent name is its name. Files and URLs may hold one record, or an array\nof them. (An AGNTCY directory is asked by gRPC, which this is not: its dirctl pulls\nrecords into files.)"),
	)
}

func (a *app) importKind(kind directory.Kind, short, names string) *cobra.Command {
	im := &importing{fetching: fetching{app: a}, kind: kind}
	var lt lifetime
	c := &cobra.Command{
		Use:   string(kind) + " FILE|DIR|URL",
		Short: short,
		Long: short + ` from a file, from every *.json of a directory, or from an https URL.

` + names + `
Where two documents have the same name, the first is taken and the others are
refused: one must not replace another in silence. What you registered under a name
before is replaced.

Each document is taken or refused, with the reason, whatever became of the others.
With --dry-run nothing is registered, and each is compared with what is registered
under its name. A document says in its member "imported_from" where it came from:
the file, or what --source says, and the SHA-256 of what was there.
The exit code is 0 when all were taken and 1 when some were refused. When the
directory is away or doesn't know you, the import ends there.

With --keep the import stays and refreshes what was taken, in lists.`,
		Args: needs("FILE|DIR|URL"),
		RunE: func(c *cobra.Command, args []string) error {
			im.options.Kind, im.options.Lifetime = string(kind), lt.duration()
			return im.run(c.Context(), args[0])
		},
	}
	im.flags(c, &lt)
	c.Flags().StringVar(&im.origin, "source", "", "where the files are from, such as the URL of a registry (default: the file's name)")
	if kind == directory.KindA2A {
		c.Flags().StringArrayVar(&im.keyFiles, "card-key", nil, "a file with public keys (JWKS, JWK or PEM) that signed cards are judged by; may be repeated")
	}
	c.Flags().BoolVar(&im.stay, "keep", false, "stay and refresh what was taken, until SIGINT or SIGTERM")
	return c
}

func (a *app) importWoA() *cobra.Command {
	im := &importing{fetching: fetching{app: a}, kind: directory.KindWoA}
	var lt lifetime
	c := &cobra.Command{
		Use:   "woa ORIGIN|URL",
		Short: "Register the agents of a Web of Agents document",
		Long: `Register the agents that an origin lists in its Web of Agents document: the one at
` + crawl.Path + `, or at a URL.

The document is fetched from here, by https and from public addresses alone, all
its pages. Each agent is registered by itself, as ID@HOST after the origin, with a
document that lists it alone. One that holds credentials, or is otherwise wrong, is
refused, with the reason, whatever became of the others.

An import gives each a lease of about three times as long as the origin lets its
document be cached (--lt says otherwise), and the next import renews it. What is no
longer listed by then is not renewed and ends with its lease: one import that reads
half a document takes nothing away. With --keep the import stays and follows: it
fetches it again as often as the origin lets it be cached, refreshes what is listed
yet, registers what is new or has changed, and removes what it registered and is
listed no more. A node does the same on a schedule: see crawl in its
configuration.`,
		Args: needs("ORIGIN|URL"),
		RunE: func(c *cobra.Command, args []string) error {
			im.options.Kind, im.options.Lifetime = string(im.kind), lt.duration()
			return im.run(c.Context(), args[0])
		},
	}
	im.flags(c, &lt)
	c.Flags().BoolVar(&im.stay, "keep", false, "stay and follow what the origin lists, until SIGINT or SIGTERM")
	return c
}

// flags are those that imports of all kinds share.
func (im *importing) flags(c *cobra.Command, lt *lifetime) {
	im.fetching.flags(c)
	c.Flags().BoolVar(&im.dry, "dry-run", false, "check everything, tell what would change, register nothing")
	c.Flags().StringVar(&im.options.Visibility, "visibility", "", "who beyond the domain may have them: domain, mesh, or peers:DOMAIN,… (default: by policy)")
	lifetimeFlag(c, lt)
}

// An importing is one run of an import.
type importing struct {
	fetching
	kind    directory.Kind
	options apiclient.RegisterOptions
	dry     bool
	origin  string // where the files are from; empty for their names

	keyFiles []string
	keys     *trust.CardKeys // nil where no key is named

	stay    bool          // and refresh what was taken
	crawled *crawl.Result // of an origin, what was fetched last

	mu      sync.Mutex    // guards granted while items are registered
	granted time.Duration // the shortest lifetime
}

// What became of a document.
const (
	registered = "registered"
	replaced   = "replaced"
	valid      = "valid" // in a dry run, as the next three
	isNew      = "new"
	changed    = "changed"
	unchanged  = "unchanged"
	refused    = "refused"
	untried    = "untried"
)

// An item is one document and what became of it.
type item struct {
	Source  string `json:"source"` // the file, and # with a number where it holds several
	Agent   string `json:"agent,omitempty"`
	Result  string `json:"result"`
	RID     string `json:"rid,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Pointer string `json:"pointer,omitempty"`
	// Signature says who signed an agent card, or why nobody known did.
	Signature string       `json:"signature,omitempty"`
	Diff      []difference `json:"diff,omitempty"`
	// Warnings are of what was passed over in it.
	Warnings []string `json:"warnings,omitempty"`

	document []byte
	meta     []byte // what a registry says beside the document; nil for nothing
}

func (i *item) refuse(err error) {
	i.Result, i.Reason = refused, firstLine(err.Error())
	var local *directory.Error
	var answered *apiclient.Error
	switch {
	case errors.As(err, &local):
		i.Reason, i.Pointer = local.Detail, local.Pointer
	case errors.As(err, &answered) && answered.Detail != "":
		i.Reason, i.Pointer = answered.Detail, answered.Pointer
	}
}

func (im *importing) run(ctx context.Context, source string) error {
	if err := im.readKeys(); err != nil {
		return err
	}
	items, err := im.gather(ctx, source)
	if err != nil {
		return err
	}
	im.check(items)
	if im.dry {
		im.compare(ctx, items)
		return im.report(items, nil)
	}
	client, err := im.client()
	if err != nil {
		return err
	}
	stopped := im.each(ctx, items, func(ctx context.Context, i *item) error { return im.registerOne(ctx, client, i) })
	err = im.report(items, stopped)
	switch {
	case !im.stay || stopped != nil:
	case im.kind == directory.KindWoA:
		im.follow(ctx, client, source, items)
	default:
		im.keep(ctx, client, items)
	}
	return err
}

// gather reads the documents from where they are.
func (im *importing) gather(ctx context.Context, source string) ([]*item, error) {
	switch {
	case im.kind == directory.KindWoA:
		items, c, err := im.crawl(ctx, source, nil)
		if err != nil {
			return nil, err
		}
		if im.crawled = c; im.options.Lifetime == 0 {
			im.options.Lifetime = time.Duration(c.Lease()) * time.Second
		}
		return items, nil
	case !strings.Contains(source, "://"):
		return im.readItems(source)
	}
	return im.fetch(ctx, source)
}

// check finds each document's name and refuses what no directory would take.
func (im *importing) check(items []*item) {
	first := map[string]string{} // name to source
	for _, i := range items {
		if i.Result == refused { // it could not even be read
			continue
		}
		i.Result = untried
		im.judgeSignature(i)
		if err := im.trace(i); err != nil {
			i.refuse(err)
			continue
		}
		doc, err := directory.ParseDocument(im.kind, i.document)
		if err != nil {
			i.refuse(err)
			continue
		}
		if i.Agent == "" {
			i.Agent, err = kinds.DefaultName(doc)
		}
		if err != nil {
			i.refuse(err)
			continue
		}
		if _, err = kinds.Project(i.Agent, doc); err != nil {
			i.refuse(err)
			continue
		}
		if other, taken := first[i.Agent]; taken {
			i.refuse(fmt.Errorf("%s has the same name: register this one under another with roster register NAME FILE --kind %s", other, im.kind))
			continue
		}
		first[i.Agent] = i.Source
	}
}

// each does something with each document that was not refused. It stops where the
// next would fare no better, and says why.
func (im *importing) each(ctx context.Context, items []*item, do func(context.Context, *item) error) error {
	p := im.progress(len(items))
	defer p.end()
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(importers)
	for _, i := range items {
		if i.Result != untried {
			p.step()
			continue
		}
		g.Go(func() error {
			if inner.Err() != nil {
				return nil // the first error is the one to tell
			}
			defer p.step()
			return do(inner, i)
		})
	}
	return errors.Join(g.Wait(), ctx.Err())
}

func (im *importing) registerOne(ctx context.Context, client *apiclient.Client, i *item) error {
	out, err := client.Register(ctx, i.Agent, i.document, im.options)
	var answered *apiclient.Error
	switch {
	case err == nil:
		im.grantedTo(out)
		i.Result, i.RID = replaced, out.RID
		if out.Created {
			i.Result = registered
		}
	case errors.As(err, &answered) && answered.Status >= 400 && answered.Status < 500 &&
		answered.Status != http.StatusUnauthorized && answered.Status != http.StatusTooManyRequests:
		i.refuse(err)
	default:
		return err
	}
	return nil
}

// report prints what became of each document, and fails unless all were taken.
func (im *importing) report(items []*item, stopped error) error {
	taken, t := 0, table{head: []string{"RESULT", "AGENT", "SOURCE", "RID", "DETAIL"}}
	for _, i := range items {
		if i.Result != refused && i.Result != untried {
			taken++
		}
		reason := i.Reason
		if i.Pointer != "" {
			reason += " (at " + i.Pointer + ")"
		}
		if i.Result != refused && i.Result != untried {
			reason = im.words(i)
		}
		t.rows = append(t.rows, []string{i.Result, i.Agent, i.Source, i.RID, reason})
	}
	// Where the table ends is where people look.
	refusals := func(row []string) int { return strings.Index(refused+" "+untried, row[0]) }
	slices.SortStableFunc(t.rows, func(a, b []string) int { return cmp.Compare(refusals(a), refusals(b)) })
	body, err := marshal(map[string]any{"items": items})
	if err != nil {
		return err
	}
	if err := im.print(answer{body, "items", t}); err != nil {
		return err
	}
	verb := "took"
	if im.dry {
		verb = "would take"
	}
	switch summary := fmt.Sprintf("%s %d of %d", verb, taken, len(items)); {
	case stopped != nil:
		f := failureOf(stopped)
		return &failure{code: f.code, what: summary + ", then stopped: " + f.what, why: f.why, next: f.next, err: stopped}
	case taken < len(items):
		return failed(exitFailed, "%s: %d refused", summary, len(items)-taken).because("The report names the reason for each; the others are not affected.")
	default:
		im.note("%s", summary)
	}
	return nil
}
