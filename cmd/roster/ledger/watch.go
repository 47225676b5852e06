package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/cmd/roster/webhook"
	"github.com/roster-mesh/roster/directory/checkpoint"
)

func watchCommand(session *connect.Session) *cobra.Command {
	var (
		from source
		hook webhook.Flags
		m    = &monitor{session: session}
	)

	cmd := &cobra.Command{
		Use:   "watch DIR [CONTEXT]...",
		Short: "Follow logs of domains, and alarm when something changes or a log is inconsistent",
		Long: `Follow the logs of several domains, one for each saved context that is named, or the log of the
directory that the flags name. Each time the command checks that a log was only appended to, and
every new entry against the checkpoint. Servers are verified by the context's bundle, and
checkpoints by --policy, a tlog-policy that may list several logs, or by the log's own policy.

It prints an event for each key document, bundle, operator's command and begin of an epoch; for
a change of the log's policy or of the domain's trust bundle; with --agent for each registration of
a matching name that the directory shows, in any domain, or once that more than 10,000 match; when
a log can't be read or does not satisfy the policy for the time of --silence, and when it is well
again; with --all for each entry.
-o json prints one object a line. --webhook sends each event to a receiver too (Standard Webhooks).

DIR keeps the newest checkpoint and the last position of each log, and a command that is started
again continues there. An event has an id made of its contents. An event that is reported again,
because the command was killed before it saved its state, has the same id, also as webhook-id.

An inconsistent log is reported and no longer followed; DIR/NAME.broken has the two
checkpoints. The command ends when no log is left, or when it is interrupted, with the exit code
of the first such log, as of "roster log check". A log stays broken until you remove the file.`,
		Example: "  roster log watch state --policy policy.txt\n" +
			"  roster log watch state alpha beta --agent 'payments*' -o json\n" +
			"  roster log watch state alpha beta --webhook https://hooks.example/roster --secret hook.secret",
		Args: func(c *cobra.Command, args []string) error {
			return cli.Args("DIR")(c, args[:min(len(args), 1)])
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			switch {
			case m.every < time.Second:
				return cli.Usage("--every must be at least 1s, got %s", m.every)
			case m.silence < m.every:
				return cli.Usage("--silence must be at least as long as --every, %s, got %s", m.every, m.silence)
			}

			if m.sender, err = hook.Open(session.Console); err != nil {
				return err
			}

			if m.policy, err = from.policy(session); err != nil {
				return err
			}

			if err := os.MkdirAll(args[0], 0o750); err != nil {
				return cli.Failed(cli.ExitFailed, "cannot keep checkpoints: %w", err)
			}

			sessions, err := sessionsOf(session, args[1:])
			if err != nil {
				return err
			}

			var all []*follower

			for i, one := range sessions {
				name := theLog

				// The sessions of contexts belong to this command, and the other one to the program.
				if len(args) > 1 {
					name = args[1+i]
					defer one.Close()
				}

				f := &follower{monitor: m, session: one, name: name, epoch: from.epoch,
					file: filepath.Join(args[0], name)}

				// All states are read before any log is followed, so that a damaged file ends the command at once.
				if err := f.load(); err != nil {
					return err
				}

				all = append(all, f)
			}

			return m.run(c.Context(), all)
		},
	}
	cmd.Flags().DurationVar(&m.every, "every", 10*time.Second, "`DURATION` between two looks")
	cmd.Flags().DurationVar(&m.silence, "silence", 5*time.Minute,
		"`DURATION` after which a log that can't be read, or is not as the policy asks, is reported")
	cmd.Flags().StringVar(&m.agent, "agent", "", "report registrations of this `NAME`, or PREFIX*, in any domain")
	cmd.Flags().BoolVar(&m.all, "all", false, "print statements and batches too")
	from.addFlags(cmd, true)
	hook.Add(cmd)

	return cmd
}

// theLog is the name of the log of the connection's own directory.
const theLog = "log"

// sessionsOf returns a session for each context, or session itself without contexts.
func sessionsOf(session *connect.Session, contexts []string) (sessions []*connect.Session, err error) {
	if len(contexts) == 0 {
		return []*connect.Session{session}, nil
	}

	for i, name := range contexts {
		if slices.Contains(contexts[:i], name) || name == theLog || name != filepath.Base(name) {
			return nil, cli.Usage("the context %q can't be watched: its name is given twice, is no file name, or is "+
				"%s, the log without a context", name, theLog)
		}

		one, err := session.InContext(name)
		if err != nil {
			return nil, err
		}

		sessions = append(sessions, one)
	}

	return sessions, nil
}

// A monitor follows several logs, and reports their events.
type monitor struct {
	session *connect.Session
	sender  *webhook.Sender    // nil without --webhook
	policy  *checkpoint.Policy // nil for each log's own
	every   time.Duration
	silence time.Duration
	agent   string
	all     bool

	printing sync.Mutex // guards the fields below
	table    cli.GrowingTable
}

// run follows the logs until ctx ends, all logs are broken, or the output or the receiver fails.
func (m *monitor) run(ctx context.Context, all []*follower) error {
	m.table = cli.GrowingTable{Console: m.session.Console, Head: []string{"TIME", "EVENT", "LOG", "INDEX", "DETAIL"}}
	if m.session.Format.IsTable() {
		if err := m.table.PrintHead(); err != nil {
			return err
		}
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	errs := make([]error, len(all))

	var following sync.WaitGroup
	for i, f := range all {
		following.Go(func() {
			var broken *brokenError

			// A broken log ends its own follower only, and any other failure ends all.
			if errs[i] = f.run(ctx); errs[i] != nil && !errors.As(errs[i], &broken) && ctx.Err() == nil {
				stop(errs[i])
			}
		})
	}

	following.Wait()

	return verdictOf(ctx, all, errs)
}

// verdictOf returns the error of the command: that of the first broken log, the cause of the end, or, at the end of
// --timeout, that of a log that could not be read.
func verdictOf(ctx context.Context, all []*follower, errs []error) error {
	for _, err := range errs {
		if broken, ok := errors.AsType[*brokenError](err); ok {
			return broken.error
		}
	}

	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}

	for _, f := range all {
		if f.trouble != nil {
			return cli.Failed(cli.ExitUnavailable, "the log %s was not read at the end: %w", f.name, f.trouble)
		}
	}

	return nil
}

// An event is one report of a monitor. Its ID follows from its contents.
type event struct {
	ID    string  `json:"id"`
	At    string  `json:"at"`
	Event string  `json:"event"`
	Name  string  `json:"name"` // of the context
	Log   string  `json:"log,omitempty"`
	Index *uint64 `json:"index,omitempty"`

	// Of a registration whose name matches.
	Agent  string `json:"agent,omitempty"`
	Origin string `json:"origin,omitempty"`
	RID    string `json:"rid,omitempty"`
	// BroughtBy is the node that brought it, by its record; empty if the record can't be read.
	BroughtBy string `json:"brought_by,omitempty"`

	Detail string `json:"detail,omitempty"`
}

// report prints an event, and has it delivered. The distinct parts make its ID with the kind and the name.
func (m *monitor) report(ctx context.Context, e event, distinct ...string) error {
	if err := m.send(ctx, e, distinct); err != nil {
		return &reportError{err}
	}

	return nil
}

func (m *monitor) send(ctx context.Context, e event, distinct []string) error {
	now := time.Now()

	// The time is no part of the id, because an event that is reported again must have the same one.
	sum := sha256.Sum256([]byte(strings.Join(append(distinct, e.Event, e.Name, e.Log), "\x00")))
	e.ID = "msg_" + hex.EncodeToString(sum[:16])
	e.At = cli.FormatTime(now)

	if err := m.print(e); err != nil {
		return err
	}

	if m.sender == nil {
		return nil
	}

	data, err := json.Marshal(e)
	if err != nil {
		return err
	}

	return m.sender.Send(ctx, &webhook.Message{
		ID: e.ID, Type: "log." + strings.ReplaceAll(e.Event, " ", "_"), At: now, Data: data,
	})
}

func (m *monitor) print(e event) error {
	m.printing.Lock()
	defer m.printing.Unlock()

	if !m.session.Format.IsTable() {
		return m.session.PrintValue(e, "", cli.Table{})
	}

	index := ""
	if e.Index != nil {
		index = strconv.FormatUint(*e.Index, 10)
	}

	detail := e.Detail
	if e.Agent != "" {
		detail = fmt.Sprintf("%s of %s, %s", e.Agent, e.Origin, e.RID)
		if e.BroughtBy != "" {
			detail += ", brought by " + e.BroughtBy
		}
	}

	log := e.Log

	// Before the first checkpoint, the origin of the log is not known.
	log = cmp.Or(log, e.Name)

	return m.table.PrintRow([]string{e.At, e.Event, log, index, detail})
}

// matching returns the registrations that a directory shows of the name that is watched: more than maxMatching if
// there are too many.
func (m *monitor) matching(ctx context.Context, client *apiclient.Client) (found []apiclient.Item, err error) {
	if m.agent == "" {
		return nil, nil
	}

	page, err := client.Lookup(ctx, apiclient.LookupOptions{Agent: m.agent, Brief: true})
	for err == nil && page != nil {
		if found = append(found, page.Agents...); len(found) > maxMatching {
			return found, nil
		}

		page, err = client.Next(ctx, page)
	}

	return found, err
}

// maxMatching bounds the registrations whose names match.
const maxMatching = 10_000

// A brokenError is of a log that has broken its word: it has an exit code of its own.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// A reportError is of an event that could not be reported or kept: it ends the command.
type reportError struct{ error }

func (e *reportError) Unwrap() error { return e.error }
