package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/directory/signed"
)

// The types of entries that are few and change who speaks for a domain; the others are statements and
// batches of them.
const (
	typeStatement = 1
	typeBatch     = 2
)

// The files of a log in the directory of a watch, behind its name.
const (
	fileCheckpoint = ".checkpoint"
	fileSeen       = ".json"   // the state that was seen beside the log
	fileBroken     = ".broken" // the verdict on a log that broke its word, and two checkpoints
)

// A follower follows one log. It reports an event before it keeps it, so that after a kill it reports the event again.
type follower struct {
	monitor *monitor
	session *connect.Session
	name    string
	epoch   uint64
	file    string // where its state is, without the ending

	old     *checkpoint.Note // kept; nil before the first
	seen    seen
	trouble error     // why the last look failed; nil if it didn't
	behind  time.Time // since when the log is smaller than it was; zero if it isn't
}

// seen has the facts about a domain that were seen beside its log.
type seen struct {
	At      time.Time `json:"at"`               // of the last look at which all was well
	Silent  bool      `json:"silent,omitzero"`  // it was reported that the log can't be read
	Policy  string    `json:"policy,omitempty"` // as the directory serves it
	Bundle  string    `json:"bundle,omitempty"` // hash of the trust bundle
	Matches []string  `json:"matches,omitempty"`
	Crowded bool      `json:"crowded,omitzero"` // it was reported that too many registrations match
}

// load reads the kept state of the log.
func (f *follower) load() error {
	text, err := os.ReadFile(f.file + fileCheckpoint)
	if err == nil {
		if f.old, err = checkpoint.Parse(string(text)); err != nil {
			return cli.Failed(cli.ExitFormat, "cannot use the checkpoint %s: %w", f.file+fileCheckpoint, err)
		}
	}

	// The checkpoint is absent before the first look.
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(f.file + fileSeen)
	}

	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Before the first look, the time of --silence counts from the start.
		f.seen.At = time.Now().UTC()
	case err != nil:
		return cli.Failed(cli.ExitFailed, "cannot read the saved state of the log: %w", err)
	default:
		if err := json.Unmarshal(text, &f.seen); err != nil {
			return cli.Failed(cli.ExitFormat, "cannot use %s: %w", f.file+fileSeen, err)
		}
	}

	return nil
}

// run looks at the log until ctx ends, the log breaks its word or the output fails.
func (f *follower) run(ctx context.Context) error {
	if err := f.wasBroken(ctx); err != nil {
		return err
	}

	for first := true; ; first = false {
		err := f.look(ctx)

		var broken *brokenError

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &broken):
			return err
		case err != nil && first && f.old == nil && !apiclient.Temporary(err):
			// A first failure most often means that the command line is wrong.
			return err
		case err != nil:
			err = f.troubled(ctx, err)
		}

		if err != nil {
			return err
		}

		if !apiclient.Pause(ctx, f.monitor.every) {
			return ctx.Err()
		}
	}
}

// wasBroken reports a log again that broke its word before the command was started.
func (f *follower) wasBroken(ctx context.Context) error {
	text, err := os.ReadFile(f.file + fileBroken)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	verdict, notes, _ := bytes.Cut(text, []byte("\n"))
	code, reason, _ := strings.Cut(string(verdict), " ")

	number, malformed := strconv.Atoi(code)
	if err != nil || malformed != nil {
		return cli.Failed(cli.ExitFormat, "cannot use %s: %w", f.file+fileBroken, errors.Join(err, malformed))
	}

	return f.broken(ctx, cli.Failed(number, "%s", reason), string(notes))
}

// reportWithin bounds the delivery of the last event of a log, so that the command can end.
const reportWithin = time.Minute

// broken reports that the log broke its word.
func (f *follower) broken(ctx context.Context, verdict *cli.Failure, notes string) error {
	bounded, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()

	e := f.event("broken")
	e.Detail = verdict.Message

	err := f.monitor.report(bounded, e, notes)
	if bounded.Err() != nil && ctx.Err() == nil {
		f.monitor.session.Note("The receiver did not take that %s is broken; the next start sends it again.", f.name)
	} else if err != nil {
		return err
	}

	return &brokenError{verdict.WithHint("See %s; remove it to follow the log again.", f.file+fileBroken)}
}

func (f *follower) event(what string) event {
	e := event{Event: what, Name: f.name}
	if f.old != nil {
		e.Log = f.old.Origin
	}

	return e
}

// look compares the log with the kept checkpoint, reports new entries and changes, and keeps the newer checkpoint.
func (f *follower) look(ctx context.Context) error {
	log, err := openLog(ctx, f.session, f.epoch)
	if err != nil {
		return err
	}

	// A change of keys is reported even if the checkpoint then fails the policy.
	if err := f.lookAtKeys(ctx, log); err != nil {
		return err
	}

	note, _, err := log.checkpoint(f.monitor.policy)
	if err != nil {
		return err
	}

	// A node that lags shows an older log, which is no break yet.
	if f.lags(note) {
		return nil
	}

	if err := f.lookAtEntries(ctx, log, note); err != nil {
		return err
	}

	// The checkpoint is kept first, because a failed lookup must not have the entries reported again.
	if err := f.keep(note); err != nil {
		return err
	}

	if err := f.lookAtNames(ctx, log); err != nil {
		return err
	}

	if f.seen.Silent {
		if err := f.monitor.report(ctx, f.event("well again"), f.seen.At.Format(time.RFC3339Nano)); err != nil {
			return err
		}
	}

	f.seen.At = time.Now().UTC()
	f.seen.Silent = false
	f.trouble = nil

	return f.writeSeen()
}

// lookAtKeys reports a change of the policy or of the trust bundle since the last look. It keeps them at once, because
// the change may explain a checkpoint that fails.
func (f *follower) lookAtKeys(ctx context.Context, log *reader) error {
	text, policy, err := log.policy()
	if err != nil || len(policy.Logs) == 0 {
		return err
	}

	// The name of a log's key is the origin of the log, which begins with the domain.
	domain, _, _ := strings.Cut(policy.Logs[0].Key.Name, "/roster/")

	reply, err := log.client.Do(ctx, http.MethodGet, "/bundles/"+domain, nil, nil)
	if err != nil && !errors.Is(err, apiclient.ErrNotFound) {
		return err
	}

	// Without a bundle at the directory, the last one counts as unchanged.
	bundle := f.seen.Bundle
	if err == nil {
		bundle = directory.HashOf(reply.Body).String()
	}

	if text == f.seen.Policy && bundle == f.seen.Bundle {
		return nil
	}

	// The same change may come twice, so the last good look makes the ids of its events different.
	at := f.seen.At.Format(time.RFC3339Nano)
	if f.seen.Policy != "" && f.seen.Policy != text {
		e := f.event("policy")
		e.Detail = differences(f.seen.Policy, text)

		if err := f.monitor.report(ctx, e, f.seen.Policy, text, at); err != nil {
			return err
		}
	}

	if f.seen.Bundle != "" && f.seen.Bundle != bundle {
		e := f.event("trust bundle")
		e.Detail = "SHA-256 " + bundle + ", was " + f.seen.Bundle

		if err := f.monitor.report(ctx, e, f.seen.Bundle, bundle, at); err != nil {
			return err
		}
	}

	f.seen.Policy, f.seen.Bundle = text, bundle

	return f.writeSeen()
}

// differences returns the lines that were removed from a text, and those that were added.
func differences(before, after string) string {
	var out []string

	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range old {
		if !slices.Contains(now, line) {
			out = append(out, "- "+line)
		}
	}

	for _, line := range now {
		if !slices.Contains(old, line) {
			out = append(out, "+ "+line)
		}
	}

	return strings.Join(out, "\n")
}

// lookAtEntries checks that the log goes on from the checkpoint that is kept, and reports its new entries.
func (f *follower) lookAtEntries(ctx context.Context, log *reader, note *checkpoint.Note) error {
	// The first look has no earlier checkpoint, so no entry is new to it.
	from := note.Size

	switch {
	case f.old == nil:
		e := f.event("begun")
		e.Log, e.Index = note.Origin, &note.Size

		if err := f.monitor.report(ctx, e); err != nil {
			return err
		}

	// A restore begins a new log. Its first entry may name another end than was seen here, as after the loss of all
	// disks, so the event only names the log that was seen.
	case f.old.Origin != note.Origin:
		from = 0
		e := f.event("new log")
		e.Log = note.Origin
		e.Detail = fmt.Sprintf("the log seen before was %s, with %d entries", f.old.Origin, f.old.Size)

		if err := f.monitor.report(ctx, e); err != nil {
			return err
		}
	default:
		from = f.old.Size

		if err := f.judged(ctx, note, goesOn(log, f.old, note)); err != nil {
			return err
		}
	}

	// entries reads on after a failed report, so the first failure is kept, and no later entry is reported.
	var failed error

	err := log.entries(note.Checkpoint, from, note.Size, func(entry entry) {
		if failed == nil && (f.monitor.all || entry.Type != typeStatement && entry.Type != typeBatch) {
			e := f.event(entry.Kind)
			e.Log, e.Index, e.Detail = note.Origin, &entry.Index, entry.explain(log)
			failed = f.monitor.report(ctx, e, strconv.FormatUint(entry.Index, 10))
		}
	})

	if failed != nil {
		return failed
	}

	return f.judged(ctx, note, err)
}

// judged turns an error that breaks the log into a verdict, and keeps the verdict before it reports it. Other errors
// are returned as they are.
func (f *follower) judged(ctx context.Context, note *checkpoint.Note, err error) error {
	if err == nil || !slices.Contains([]int{exitEquivocation, exitInclusion, exitRollback}, cli.FailureOf(err).Code) {
		return err
	}

	verdict := cli.FailureOf(err)

	var notes bytes.Buffer
	if f.old != nil {
		notes.WriteString(f.old.String() + "\n")
	}

	notes.WriteString(note.String())

	text := strconv.Itoa(verdict.Code) + " " + verdict.Message + "\n" + notes.String()
	if err := durable.WriteFile(f.file+fileBroken, []byte(text), 0o644); err != nil {
		return cli.Failed(cli.ExitFailed, "cannot keep the verdict: %w", err)
	}

	return f.broken(ctx, verdict, notes.String())
}

// lagsFor is how long a node of the domain may show less than another one has shown.
const lagsFor = time.Minute

// lags reports whether a log is smaller than it was, and may be that of a node that is behind.
func (f *follower) lags(note *checkpoint.Note) bool {
	if f.old == nil || f.old.Origin != note.Origin || note.Size >= f.old.Size {
		f.behind = time.Time{}
		return false
	}

	if f.behind.IsZero() {
		f.behind = time.Now()
	}

	return time.Since(f.behind) < lagsFor
}

// lookAtNames reports registrations whose names match and that were not seen before. While too many match, it reports
// that once, and those seen before stay known.
func (f *follower) lookAtNames(ctx context.Context, log *reader) error {
	found, err := f.monitor.matching(ctx, log.client)
	if err != nil {
		return err
	}

	crowded := len(found) > maxMatching
	if crowded && !f.seen.Crowded {
		e := f.event("too many matches")
		e.Detail = fmt.Sprintf("more than %d registrations match %s, so new ones are not reported; "+
			"watch a longer prefix", maxMatching, f.monitor.agent)

		if err := f.monitor.report(ctx, e, f.seen.At.Format(time.RFC3339Nano)); err != nil {
			return err
		}
	}

	f.seen.Crowded = crowded
	if crowded {
		return nil
	}

	known := map[string]bool{}
	for _, match := range f.seen.Matches {
		known[match] = true
	}

	// A registration that no longer matches is forgotten, so that it is reported again if it returns.
	var matches []string

	for _, item := range found {
		rid := item.Href[strings.LastIndexByte(item.Href, '/')+1:]
		match := item.Provenance.Authority + " " + rid

		matches = append(matches, match)
		if known[match] {
			continue
		}

		e := f.event("registration")
		e.Agent, e.Origin, e.RID = item.Agent, item.Provenance.Authority, rid
		e.BroughtBy = bringerOf(ctx, log.client, item.Href)

		if err := f.monitor.report(ctx, e, match); err != nil {
			return err
		}
	}

	f.seen.Matches = matches

	return nil
}

// bringerOf returns the node that brought a registration, by its record; empty if the directory gives none.
func bringerOf(ctx context.Context, client *apiclient.Client, href string) string {
	reply, err := client.Record(ctx, href)
	if err != nil {
		return ""
	}

	record, err := signed.ParseRecord(string(reply.Body))
	if err != nil {
		return ""
	}

	claims, err := record.Claims()
	if err != nil || claims.BroughtBy().IsZero() {
		return ""
	}

	return claims.BroughtBy().String()
}

// troubled notes the failure of a look, and reports it if it lasts for the time of --silence. It fails if the report
// does.
func (f *follower) troubled(ctx context.Context, why error) error {
	// An event that can't be reported is no trouble of the log, and ends the command.
	if _, ended := errors.AsType[*reportError](why); ended {
		return why
	}

	if !apiclient.SameCause(f.trouble, why) {
		f.monitor.session.Note("Cannot follow the log %s: %s; trying again.", f.name, cli.FailureOf(why).Message)
	}

	f.trouble = why

	if f.seen.Silent || time.Since(f.seen.At) < f.monitor.silence {
		return nil
	}

	e := f.event("silent")
	e.Detail = "since " + f.seen.At.Format(time.RFC3339) + ": " + cli.FailureOf(why).Message

	if err := f.monitor.report(ctx, e, f.seen.At.Format(time.RFC3339Nano)); err != nil {
		return err
	}

	f.seen.Silent = true

	return f.writeSeen()
}

// keep keeps the checkpoint up to which the entries were reported. If the command is killed before, it reports them
// again.
func (f *follower) keep(note *checkpoint.Note) error {
	if f.old != nil && f.old.String() == note.String() {
		return nil
	}

	if err := durable.WriteFile(f.file+fileCheckpoint, []byte(note.String()), 0o644); err != nil {
		return keepFailed(err)
	}

	f.old = note

	return nil
}

func (f *follower) writeSeen() error {
	text, err := json.Marshal(f.seen, jsontext.Multiline(true))
	if err == nil {
		err = durable.WriteFile(f.file+fileSeen, append(text, '\n'), 0o644)
	}

	return keepFailed(err)
}

func keepFailed(err error) error {
	if err == nil {
		return nil
	}

	return &reportError{cli.Failed(cli.ExitFailed, "cannot save the state of the log: %w", err)}
}
