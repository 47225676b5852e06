package ledger

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/trust"
)

// The types of entries that are few and change who speaks for a domain; the others are statements and
// batches of them.
const (
	typeStatement = 1
	typeBatch     = 2
)

func watchCommand(session connect.Session) *cobra.Command {
	w := &watcher{session: session}

	cmd := &cobra.Command{
		Use:   "watch FILE",
		Short: "Follow the log, and end when it breaks its word",
		Long: `Follow the log from the checkpoint in FILE, which is made if it does not exist and replaced by each
newer one: the command goes on there when it is started again. Each time it checks that the log
was only appended to, and every new entry against the checkpoint. It prints an event for each key
document, bundle, operator's command and begin of an epoch, and with --all for each entry; -o json
prints one object a line.

A directory that is away is asked again. The command ends when the log breaks its word, with the
exit codes of "roster log check". One process follows one log: run one for each domain.`,
		Example: "  roster log watch alpha.checkpoint --policy policy.txt\n" +
			"  roster log watch alpha.checkpoint --all -o json",
		Args: cli.Args("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if w.every < time.Second {
				return cli.Usage("--every must be at least 1s, got %s", w.every)
			}

			w.file = args[0]
			w.table = cli.GrowingTable{Console: session.Console, Head: []string{"TIME", "EVENT", "INDEX", "LOG"}}

			return w.run(c)
		},
	}
	cmd.Flags().DurationVar(&w.every, "every", 10*time.Second, "`DURATION` between two looks")
	cmd.Flags().BoolVar(&w.all, "all", false, "print statements and batches too")
	w.source.addFlags(cmd, true)

	return cmd
}

// A watcher follows one log.
type watcher struct {
	session connect.Session
	source  source
	file    string
	every   time.Duration
	all     bool

	policy *checkpoint.Policy
	table  cli.GrowingTable
	noted  error     // why the directory can't be asked, as the user was notified last
	behind time.Time // since when the log is smaller than it was; zero if it isn't
}

// run looks at the log until the command is interrupted or the log breaks its word.
func (w *watcher) run(c *cobra.Command) (err error) {
	if w.policy, err = w.source.policy(w.session); err != nil {
		return err
	}

	if w.session.Format.IsTable() {
		if err := w.table.PrintHead(); err != nil {
			return err
		}
	}

	for looked := false; ; {
		err := w.look(c.Context())

		switch {
		case c.Context().Err() != nil:
			return c.Context().Err()
		case err == nil:
			looked = true

			if w.noted != nil {
				w.session.Note("The directory answers again.")
			}

			w.noted = nil
		case !looked || !apiclient.Temporary(err): // a first failure most often means that the command line is wrong
			return err
		case !apiclient.SameCause(w.noted, err):
			w.noted = err
			w.session.Note("Cannot read the log: %s; trying again.", cli.FailureOf(err).Message)
		}

		if !apiclient.Pause(c.Context(), w.every) {
			return c.Context().Err()
		}
	}
}

// look compares the log with the checkpoint that is kept, and keeps the newer one.
func (w *watcher) look(ctx context.Context) error {
	log, err := openLog(ctx, w.session, w.source.epoch)
	if err != nil {
		return err
	}

	note, _, err := log.checkpoint(w.policy)
	if err != nil {
		return err
	}

	old, err := w.kept()
	if err != nil {
		return err
	}

	from := note.Size // the first time there is nothing to compare with

	switch {
	case old == nil:
		err = w.event("begun", note.Size, note.Origin)
	case old.Origin != note.Origin: // a restore, whose first entry says so
		from = 0
		err = w.event("new log", 0, note.Origin)
	case note.Size < old.Size && w.lags():
		return nil
	case old.Size == note.Size && old.Root == note.Root:
		w.behind = time.Time{}
		return nil
	default:
		w.behind = time.Time{}
		from = old.Size
		err = compare(w.session, log, old, note)
	}

	if err != nil {
		return err
	}

	if err := w.entries(log, note, from); err != nil {
		return err
	}

	if err := trust.WriteFile(w.file, []byte(note.String()), 0o644); err != nil {
		return cli.Failed(cli.ExitFailed, "cannot keep the checkpoint: %w", err)
	}

	return nil
}

// lagsFor is how long a node of the domain may show less than another one has shown.
const lagsFor = time.Minute

// lags reports whether a smaller log may be that of a node that is behind.
func (w *watcher) lags() bool {
	if w.behind.IsZero() {
		w.behind = time.Now()
	}

	return time.Since(w.behind) < lagsFor
}

// kept returns the checkpoint in the file; nil before the first.
func (w *watcher) kept() (*checkpoint.Note, error) {
	text, err := os.ReadFile(w.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none yet
	}

	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot read the checkpoint: %w", err)
	}

	old, err := checkpoint.Parse(string(text))
	if err != nil {
		return nil, cli.Failed(cli.ExitFormat, "cannot use the checkpoint %s: %w", w.file, err)
	}

	return old, nil
}

// entries checks the entries from an index on, and prints events of them.
func (w *watcher) entries(log *reader, note *checkpoint.Note, from uint64) error {
	var failed error

	err := log.entries(note.Checkpoint, from, note.Size, func(e entry) {
		if failed == nil && (w.all || e.Type != typeStatement && e.Type != typeBatch) {
			failed = w.event(e.Kind, e.Index, note.Origin)
		}
	})

	return errors.Join(err, failed)
}

// event prints an event.
func (w *watcher) event(what string, index uint64, origin string) error {
	now := w.session.Time(time.Now())

	if w.session.Format.IsTable() {
		return w.table.PrintRow([]string{now, what, strconv.FormatUint(index, 10), origin})
	}

	return w.session.PrintValue(struct {
		At    string `json:"at"`
		Event string `json:"event"`
		Index uint64 `json:"index"`
		Log   string `json:"log"`
	}{now, what, index, origin}, "", cli.Table{})
}
