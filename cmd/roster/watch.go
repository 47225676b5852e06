package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory/index"
)

func (a *app) watchCommand() *cobra.Command {
	var o apiclient.LookupOptions
	c := &cobra.Command{
		Use:   "watch",
		Short: "Follow what a lookup finds: what comes, changes and goes",
		Long: `Follow what a lookup with the same filters finds: first what is there, then each
change until it is interrupted. A refresh is no change.

A connection that ends is made again and goes on where it was; where the directory
can't (another node answers, or it was away for too long), what is there is told
anew behind a reset. WHY is removed, expired, or hidden: still there, and no longer
asked for or not for you any more.

-o json and -o jsonl print an object a line: event, id, and data as it came.`,
		Example: "  roster watch --cap 'summ*'\n  roster watch --origin beta.test -o jsonl",
		Args:    needs(),
		RunE:    func(c *cobra.Command, _ []string) error { return a.watch(c.Context(), o) },
	}
	filterFlags(c, &o)
	return c
}

// A follower watches over as many connections as it takes.
type follower struct {
	*app
	client *apiclient.Client
	filter apiclient.LookupOptions
	lastID string
	agents int  // told since the last reset
	known  bool // the directory has answered once
	away   bool // it doesn't now, and the user knows
	widths []int
}

func (a *app) watch(ctx context.Context, o apiclient.LookupOptions) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	f := &follower{app: a, client: client, filter: o}
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		told, err := f.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !f.known, !apiclient.Temporary(err), errors.As(err, new(*outputError)):
			return err // most often the command line is wrong
		case told:
			wait = firstRetry
		}
		if !f.away {
			f.note("The stream has ended: %s; trying on.", failureOf(err).what)
			f.away = true
		}
		f.close() // another connection may reach another node, with a newer certificate
		if !pauseAbout(ctx, wait) {
			return ctx.Err()
		}
	}
}

// An outputError says that there is nobody to tell.
type outputError struct{ error }

// connect follows one stream to its end, which always has an error, and reports
// whether anything came.
func (f *follower) connect(ctx context.Context) (told bool, err error) {
	w, err := f.client.Watch(ctx, f.filter, f.lastID)
	if err != nil {
		return false, err
	}
	defer func() { _ = w.Close() }()
	if f.away {
		f.note("Connected again.")
	}
	f.known, f.away = true, false
	ended := "the directory has ended it"
	for {
		e, err := w.Next()
		f.lastID = w.ID()
		switch {
		case errors.Is(err, io.EOF):
			return told, errors.New(ended)
		case err != nil:
			return told, err
		case e.Kind == "end":
			ended += " (" + e.Why + ")"
			continue
		}
		told = true
		if err := f.tell(e); err != nil {
			return told, &outputError{err}
		}
	}
}

// tell prints one event.
func (f *follower) tell(e *apiclient.WatchEvent) error {
	switch f.output.String() {
	case "table", "wide":
		return f.row(e)
	}
	line, err := marshal(struct {
		Event string          `json:"event"`
		ID    string          `json:"id,omitempty"`
		Data  json.RawMessage `json:"data"`
	}{e.Kind, e.ID, json.RawMessage(e.Data)})
	if err == nil && f.output == "yaml" {
		line, err = appendYAML([]byte("---\n"), line)
	}
	if err == nil {
		_, err = f.stdout.Write(line)
	}
	return err
}

// row prints an event as a row for people. Those that are about the stream itself
// are notes.
func (f *follower) row(e *apiclient.WatchEvent) error {
	head := append(append([]string{"EVENT"}, listing(nil).head...), "WHY")
	cells := make([]string, len(head))
	switch cells[0] = e.Kind; e.Kind {
	case string(index.EventReset):
		f.agents = 0
		if e.Why == "new" {
			return f.line(table{head: head}, 0)
		}
		f.note("The directory can't go on where the stream was: what is there is told anew.")
		return nil
	case string(index.EventCurrent):
		f.note("That is all now (%d). Changes follow.", f.agents)
		return nil
	case string(index.EventAdded):
		f.agents++
		copy(cells[1:], listing([]apiclient.Item{*e.Item}).rows[0])
	case string(index.EventUpdated):
		copy(cells[1:], listing([]apiclient.Item{*e.Item}).rows[0])
	case string(index.EventRemoved):
		f.agents--
		copy(cells[1:], []string{e.Removed.Agent, e.Removed.Origin, e.Removed.RID})
		cells[len(cells)-1] = e.Removed.Why
	default:
		return nil // of a directory that knows more
	}
	return f.line(table{head: head, rows: [][]string{cells}}, 1)
}

// line prints one line of a table that grows: columns as wide as they ever were.
func (f *follower) line(t table, n int) error {
	cells := t.shown(f.output == "wide")[n]
	if !f.terminal {
		_, err := io.WriteString(f.stdout, strings.Join(cells, "\t")+"\n")
		return err
	}
	f.widths = slices.Grow(f.widths, len(cells))[:len(cells)]
	var row strings.Builder
	for i, cell := range cells {
		width := utf8.RuneCountInString(cell)
		f.widths[i] = max(f.widths[i], width)
		row.WriteString(cell + strings.Repeat(" ", f.widths[i]-width+columnGap))
	}
	text := strings.TrimRight(row.String(), " ")
	if n == 0 {
		text = f.bold(text)
	}
	_, err := io.WriteString(f.stdout, text+"\n")
	return err
}
