package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/cmd/roster/webhook"
	"github.com/roster-mesh/roster/directory/index"
)

func watchCommand(session *connect.Session) *cobra.Command {
	var (
		filter   apiclient.LookupOptions
		hook     webhook.Flags
		position string
	)

	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print matching agents and follow changes",
		Long: `Print the agents that match the filters of a lookup, then every change until the command
is interrupted. A refresh is not a change.

If the connection breaks, the command reconnects and resumes. If the directory can't resume
(another node answers, or the interruption was too long), it sends the event reset and all
matching agents again. The WHY of a removed agent is removed, expired or hidden; a hidden
agent still exists but no longer matches the filters, or you may no longer see it.

-o json and -o jsonl print one object per line: event, id, and data as the server sent it.

With --webhook each change is also sent to a receiver of yours, signed by Standard Webhooks, one
after the other, until the receiver takes it. --position names the file in which the command
keeps what the receiver knows: a command that is started again goes on there, and delivers what
changed meanwhile. At the first start there is nothing to deliver: what matches is kept as known.
A message that may have been sent before has the same webhook-id. The command ends with exit code
4 if the receiver answers 410.`,
		Example: "  roster watch --cap 'summ*'\n  roster watch --origin beta.test -o jsonl\n" +
			"  roster watch --webhook https://hooks.alpha.test/roster --secret hook.secret --position hook.position",
		Args: noQuery,
		RunE: func(c *cobra.Command, _ []string) error {
			sender, err := hook.Open(session.Console)
			if err != nil {
				return err
			}

			if (sender == nil) != (position == "") {
				return cli.Usage("--webhook and --position need each other")
			}

			client, err := session.Client()
			if err != nil {
				return err
			}

			w := &watcher{
				console:   session.Console,
				client:    client,
				filter:    filter,
				closeIdle: session.CloseIdle,
				table:     cli.GrowingTable{Console: session.Console, Head: watchColumns()},
			}

			if sender != nil {
				if w.delivery, err = openDelivery(sender, position, filters(c)); err != nil {
					return err
				}

				defer w.delivery.close()

				// The stream goes on behind the last event whose change is in the journal.
				w.lastID = w.delivery.lastID

				// The message that was pending comes before new events, so that the receiver gets changes in order.
				if err := w.delivery.flush(c.Context()); err != nil {
					return err
				}
			}

			return w.run(c.Context())
		},
	}
	addFilterFlags(cmd, &filter)
	hook.Add(cmd)
	cmd.Flags().StringVar(&position, "position", "", "`FILE` that keeps what the receiver of --webhook knows")

	return cmd
}

// filters returns the filters of a watch, as on the command line.
func filters(c *cobra.Command) string {
	// Flags of the connection and the output don't select changes, so a position outlives their change.
	own := &cobra.Command{}
	addFilterFlags(own, &apiclient.LookupOptions{})

	words := []string{c.Name()}

	c.Flags().Visit(func(flag *pflag.Flag) {
		if own.Flags().Lookup(flag.Name) != nil {
			words = append(words, "--"+flag.Name+"="+flag.Value.String())
		}
	})

	return strings.Join(words, " ")
}

// watchColumns are those of a lookup between the event and its reason.
func watchColumns() []string {
	columns := append([]string{"EVENT"}, agentColumns...)
	return append(columns, "WHY")
}

// A watcher follows one watch over as many connections as it takes.
type watcher struct {
	console   *cli.Console
	client    *apiclient.Client
	filter    apiclient.LookupOptions
	closeIdle func() // so that the next connection is a new one
	table     cli.GrowingTable
	delivery  *delivery // nil without --webhook

	lastID       string
	agents       int   // matching agents since the last reset
	connected    bool  // the directory has accepted the watch once
	disconnected bool  // the connection broke, and the user was notified
	noted        error // why, as the user was notified last
}

// run follows the watch until ctx ends or an error that a retry can't cure.
func (w *watcher) run(ctx context.Context) error {
	for wait := apiclient.FirstRetry; ; wait = min(2*wait, apiclient.LastRetry) {
		received, err := w.follow(ctx)
		switch {
		// The end of --timeout is the regular end of a watch that was accepted.
		case w.connected && errors.Is(ctx.Err(), context.DeadlineExceeded):
			w.console.Note("Stopped watching, because the time of --timeout is over.")
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !w.connected, !apiclient.Temporary(err), errors.As(err, new(*outputError)):
			// A first failure most often means that the command line is wrong.
			return err
		case received:
			wait = apiclient.FirstRetry
		}

		// The cause of a broken connection, such as an expired certificate, shows at the next one.
		switch {
		case !w.disconnected:
			w.console.Note("Connection lost: %s; retrying.", cli.FailureOf(err).Message)
		case !apiclient.SameCause(w.noted, err):
			w.console.Note("Cannot reconnect: %s; retrying.", cli.FailureOf(err).Message)
		}

		w.disconnected = true
		w.noted = err

		// Another connection may reach another node, with a newer certificate.
		w.closeIdle()

		if !apiclient.Pause(ctx, apiclient.Jitter(wait)) {
			return ctx.Err()
		}
	}
}

// An outputError is an error of standard output, or of the receiver of --webhook.
type outputError struct{ error }

func (e *outputError) Unwrap() error { return e.error }

// follow prints the events of one connection until that ends, always with an error. It
// reports whether it received any.
func (w *watcher) follow(ctx context.Context) (received bool, err error) {
	stream, err := w.client.Watch(ctx, w.filter, w.lastID)
	if err != nil {
		return false, err
	}

	defer func() { _ = stream.Close() }()

	if w.delivery != nil {
		if err := w.delivery.answered(stream.Header); err != nil {
			return false, &outputError{err}
		}
	}

	if w.disconnected {
		w.console.Note("Reconnected.")
	}

	w.connected = true
	w.disconnected = false

	end := errors.New("the directory ended the stream")
	for {
		event, err := stream.Next()

		// Heartbeats advance the position, too, so it is read even if the stream has ended.
		w.lastID = stream.ID()

		switch {
		case errors.Is(err, io.EOF):
			return received, end
		case err != nil:
			return received, err
		case event.Kind == "end":
			// The stream ends after this event, and then for this reason.
			end = fmt.Errorf("the directory ended the stream (%s)", event.Why)
			continue
		}

		received = true
		if err := w.print(event); err != nil {
			return received, &outputError{err}
		}

		if w.delivery != nil {
			if err := w.delivery.take(ctx, event); err != nil {
				return received, &outputError{err}
			}
		}
	}
}

// print prints one event in the format of -o.
func (w *watcher) print(event *apiclient.WatchEvent) error {
	if w.console.Format.IsTable() {
		return w.printRow(event)
	}

	line, err := cli.Marshal(struct {
		Event string          `json:"event"`
		ID    string          `json:"id,omitempty"`
		Data  json.RawMessage `json:"data"`
	}{event.Kind, event.ID, json.RawMessage(event.Data)})
	if err == nil && w.console.Format == cli.FormatYAML {
		line, err = cli.AppendYAML([]byte("---\n"), line)
	}

	if err != nil {
		return err
	}

	_, err = w.console.Stdout.Write(line)

	return err
}

// printRow prints an event about an agent as a row, and an event about the stream as a
// note.
func (w *watcher) printRow(event *apiclient.WatchEvent) error {
	cells := make([]string, len(w.table.Head))

	cells[0] = event.Kind
	switch event.Kind {
	case string(index.EventReset):
		w.agents = 0

		switch event.Why {
		case "new":
			return w.table.PrintHead()
		case "policy":
			w.console.Note("The domain's policy or its exports have changed; the directory sends again " +
				"all agents that you may see.")

			return nil
		}

		w.console.Note("The directory can't resume the stream; it sends all matching agents again.")

		return nil

	case string(index.EventCurrent):
		w.console.Note("%d now; watching for changes", w.agents)
		return nil

	case string(index.EventAdded):
		w.agents++
		copy(cells[1:], agentRow(event.Item, cli.FormatTime))

	case string(index.EventUpdated):
		copy(cells[1:], agentRow(event.Item, cli.FormatTime))

	case string(index.EventRemoved):
		w.agents--
		copy(cells[1:], []string{event.Removed.Agent, event.Removed.Origin, event.Removed.RID})
		cells[len(cells)-1] = event.Removed.Why

	default:
		return nil // an event of a newer release
	}

	return w.table.PrintRow(cells)
}
