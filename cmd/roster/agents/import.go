package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/names"
	"github.com/roster-mesh/roster/trust/card"
)

// An importer is one run of an import.
type importer struct {
	session *connect.Session
	fetch   connect.FetchOptions
	kind    directory.Kind
	options apiclient.RegisterOptions
	dryRun  bool
	tools   bool   // ask MCP servers for their tools
	origin  string // source to record; empty for the files' names

	keyFiles []string
	keys     *card.Keys // nil without --card-key

	leftOut int // documents of a list that are not current
}

// addFlags adds the flags of all kinds.
func (im *importer) addFlags(cmd *cobra.Command, lifetime *cli.Lifetime) {
	im.fetch.AddFlags(cmd)
	cmd.Flags().BoolVar(&im.dryRun, "dry-run", false, "validate and compare, register nothing")
	cli.VisibilityFlag(cmd, &im.options.Visibility, "`VISIBILITY` outside the domain: "+
		"domain (none), mesh, or peers:DOMAIN,... (default: unchanged; for new ones, by policy)")
	cli.LifetimeFlag(cmd, lifetime)
}

func (im *importer) run(ctx context.Context, source string) error {
	if directory.HasUserinfo(im.origin) {
		return cli.Usage("--source must have no user name or password, because it is recorded and published")
	}

	if err := im.readKeys(); err != nil {
		return err
	}

	items, err := im.gather(ctx, source)
	if err != nil {
		return err
	}

	im.check(items)

	// The tools come before a dry run compares, so that it shows the differences that the import would make.
	if im.tools {
		if err := im.addTools(ctx, items); err != nil {
			return err
		}
	}

	if im.dryRun {
		return im.report(items, im.compare(ctx, items))
	}

	client, err := im.session.Client()
	if err != nil {
		return err
	}

	stopped := im.each(ctx, items, func(ctx context.Context, i *item) error {
		return register(ctx, client, i, im.options)
	})

	return im.report(items, stopped)
}

// register registers an item. A refusal is the item's result; an error is one that the next
// item would have too.
func register(ctx context.Context, client *apiclient.Client, i *item, options apiclient.RegisterOptions) error {
	done, err := client.Register(ctx, i.Agent, i.document, options)

	var response *apiclient.Error
	switch {
	case err == nil:
		i.warnIgnored(done.Ignored())
		i.RID = done.RID

		i.Result = replaced
		if done.Created {
			i.Result = registered
		}

		return nil

	case errors.As(err, &response) && isRefusalOfDocument(response.Status):
		i.refuse(err)
		return nil
	}

	return err
}

// isRefusalOfDocument reports whether a status is about this document, not about the
// directory or the caller.
func isRefusalOfDocument(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusUnauthorized && status != http.StatusTooManyRequests
}

// gather reads the documents from their source.
func (im *importer) gather(ctx context.Context, source string) ([]*item, error) {
	switch {
	case im.kind == directory.KindWoA:
		return im.crawl(ctx, source)
	case !strings.Contains(source, "://"):
		return im.readItems(source)
	}

	return im.fetchItems(ctx, source)
}

// check finds each document's name and refuses documents that every directory would refuse.
func (im *importer) check(items []*item) {
	sources := map[string]string{} // of the first document, by name
	for _, i := range items {
		// An unreadable document keeps its reader's reason.
		if i.Result == refused {
			continue
		}

		i.Result = untried

		// The signature comes first: checkItem adds a member that it doesn't cover.
		im.verifySignature(i)

		if err := im.checkItem(i); err != nil {
			i.refuse(err)
			continue
		}

		if first, taken := sources[i.Agent]; taken {
			i.refuse(fmt.Errorf("%s has the same name; register this one under another name: "+
				"roster register NAME FILE --kind %s", first, im.kind))

			continue
		}

		sources[i.Agent] = i.Source
	}
}

// checkItem completes one document and its name, and validates both.
func (im *importer) checkItem(i *item) error {
	if err := im.recordSource(i); err != nil {
		return err
	}

	// The digest of the source is recorded by here, so that white space may be removed.
	i.document = cli.FitDocument(i.document)

	document, err := directory.ParseDocument(im.kind, i.document)
	if err != nil {
		return err
	}

	if i.Agent == "" {
		if i.Agent, err = kinds.DefaultName(document); err != nil {
			return err
		}
	}

	if err := names.Check(i.Agent); err != nil {
		return err
	}

	// The projection has no use here, but its faults are those of the registration.
	_, err = kinds.Project(i.Agent, document)

	return err
}

// addTools asks the servers of all valid items for their tools, and adds them to the documents. A
// server that doesn't answer is a warning.
func (im *importer) addTools(ctx context.Context, items []*item) error {
	guard, err := im.fetch.Guard(im.session.Console)
	if err != nil {
		return err
	}
	defer guard.Close()

	return im.each(ctx, items, func(ctx context.Context, i *item) error {
		tools, err := connect.AddTools(ctx, guard, i.document)

		switch {
		// An interruption is no failure of the server, and ends the command.
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			i.Warnings = append(i.Warnings, cli.FirstLine(err.Error()))
			return nil
		case tools.Note != "":
			i.Warnings = append(i.Warnings, tools.Note)
		}

		i.document = tools.Document

		return nil
	})
}

// each calls do for each item that was not refused, several at the same time. It stops at
// the first error, which the next item would have too, and returns it.
func (im *importer) each(ctx context.Context, items []*item, do func(context.Context, *item) error) error {
	progress := im.session.StartProgress(len(items))
	defer progress.End()

	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(connect.MaxParallel)

	for _, i := range items {
		if i.Result != untried {
			progress.Step()
			continue
		}

		group.Go(func() error {
			if inner.Err() != nil {
				// The group returns the first error, and the item stays untried.
				return nil
			}

			defer progress.Step()

			return do(inner, i)
		})
	}

	// The end of ctx is joined, because items that are skipped after it report no error.
	return errors.Join(group.Wait(), ctx.Err())
}

// report prints the result of each document, and fails unless all were accepted.
func (im *importer) report(items []*item, stopped error) error {
	accepted := 0

	t := cli.Table{Head: []string{"RESULT", "AGENT", "SOURCE", "RID", "DETAIL"}}
	for _, i := range items {
		if i.isAccepted() {
			accepted++
		}

		t.Add(i.Result, i.Agent, i.Source, i.RID, i.detail())
	}

	// Refused documents come last, because people look at the end of a table first.
	rank := func(row []string) int { return slices.Index([]string{refused, untried}, row[0]) }
	slices.SortStableFunc(t.Rows, func(a, b []string) int { return cmp.Compare(rank(a), rank(b)) })

	if im.leftOut > 0 {
		im.session.Note("left out %d of %d: older versions, and deleted ones", im.leftOut, im.leftOut+len(items))
	}

	body := map[string]any{"items": items, "left_out": im.leftOut}
	if err := im.session.PrintValue(body, "items", t); err != nil {
		return err
	}

	summary := fmt.Sprintf("imported %d of %d", accepted, len(items))
	if im.dryRun {
		summary = fmt.Sprintf("%d of %d can be imported", accepted, len(items))
	}

	switch {
	case stopped != nil:
		return cli.FailureOf(stopped).Summarize(summary + ", then stopped")
	case accepted < len(items):
		return cli.Failed(cli.ExitFailed, "%s: %d refused", summary, len(items)-accepted).
			WithHint("The table shows the reason for each refused document.")
	}

	im.session.Note("%s", summary)

	return nil
}
