package main

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// exports are the forms that a registration of another kind can be given, and who
// writes them. AD is the directory's own view.
var exports = map[directory.Kind]func(*exporting) ([]byte, error){
	directory.KindA2A:  (*exporting).a2a,
	directory.KindMCP:  (*exporting).mcp,
	directory.KindOASF: (*exporting).oasf,
	directory.KindWoA:  (*exporting).woa,
}

func (a *app) exportCommand() *cobra.Command {
	var as, origin string
	c := &cobra.Command{
		Use:   "export NAME|RID",
		Short: "Write a registration in another catalogue's form",
		Long: `Write a registration as an A2A agent card, an MCP server.json, an OASF record or a
Web of Agents document, or as what its registrant wrote (the default).

Where it is registered as that very kind, the document comes out as it was written.
Else it is made of what the directory knows, and what the form has no place for is
named on standard error.`,
		Example: "  roster export hello.a2aregistry.org --as oasf",
		Args:    needs("NAME|RID"),
		RunE: func(c *cobra.Command, args []string) error {
			kind := directory.Kind(as)
			if _, known := exports[kind]; as != "" && !known && !slices.Contains(directory.KindNames(), as) {
				return usage("--as is %q; it is one of %s", as, strings.Join(directory.KindNames(), ", "))
			}
			return a.export(c.Context(), args[0], origin, kind)
		},
	}
	c.Flags().StringVar(&as, "as", "", "the form: "+strings.Join(directory.KindNames(), ", "))
	c.Flags().StringVar(&origin, "origin", "", "the domain that registered it")
	return c
}

func (a *app) export(ctx context.Context, id, origin string, as directory.Kind) error {
	_, c, err := a.contentsOf(ctx, id, origin)
	if err != nil {
		return err
	}
	if c.Redacted {
		a.note("Not all of it: members are withheld.")
	}
	if as == "" || as == c.Document.Kind() {
		return a.write(strictjson.AppendObject(nil, without(c.Document.Members(), importedFrom)))
	}
	write, ok := exports[as]
	if !ok {
		return failed(exitFailed, "it is registered as %s, and can't be written as %s", c.Document.Kind(), as).
			because("What is written as ad, aidip or profile is what that surface of the directory shows.")
	}
	p, err := kinds.Reproject(c.Agent, c.Document)
	if err != nil {
		return err
	}
	x := &exporting{agent: c.Agent, p: p, version: first(p.Version, strconv.FormatUint(c.Revision, 10))}
	body, err := write(x)
	if err != nil {
		return err
	}
	x.unread(c.Document)
	for _, what := range x.lost {
		a.note("Lost: %s", what)
	}
	return a.write(body)
}

// write prints a document as it is, or laid out for people.
func (a *app) write(body []byte) error {
	if a.output == "" {
		_, err := a.stdout.Write(append(body, '\n'))
		return err
	}
	return a.print(answer{body: body})
}

// An exporting is a registration on its way into another form.
type exporting struct {
	agent   string
	p       *directory.Projection
	version string   // its own, or else its revision here
	lost    []string // what the form has no place for
}

// lose remembers what the form has no place for, if there is any of it.
func (x *exporting) lose(any bool, what string) {
	if any && !slices.Contains(x.lost, what) {
		x.lost = append(x.lost, what)
	}
}

// unread says which members of the document the directory does not read, and so
// can't hand on: those without which it is projected the same.
func (x *exporting) unread(d directory.Document) {
	var names []string
	for _, m := range d.Members() {
		if m.Name == importedFrom {
			continue
		}
		less := directory.LoadDocument(d.Kind(), strictjson.AppendObject(nil, without(d.Members(), m.Name)))
		if p, err := kinds.Reproject(x.agent, less); err == nil && reflect.DeepEqual(p, x.p) {
			names = append(names, m.Name)
		}
	}
	x.lose(len(names) > 0, "members that the directory does not interpret: "+strings.Join(names, ", "))
}

// contentsOf gets a registration by its name or rid, and what its signed record
// holds.
func (a *app) contentsOf(ctx context.Context, id, origin string) (*apiclient.Resource, *signed.Contents, error) {
	client, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	path, err := locate(ctx, client, id, origin, apiclient.ReadOptions{})
	if err != nil {
		return nil, nil, err
	}
	r, err := client.Get(ctx, path)
	if err != nil {
		return nil, nil, a.ambiguous(a.suggestLookup(err, id), id)
	}
	c, err := contract.Contents(ctx, client, r.Href)
	return r, c, err
}
