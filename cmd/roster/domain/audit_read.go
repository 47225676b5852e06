package domain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/trust/audit"
)

// auditPage is how many lines one request asks for.
const auditPage = 1000

// An auditReader reads the log of one node page by page.
type auditReader struct {
	node     auditNode
	report   *auditReport
	verifier audit.Verifier
	page     *apiclient.AuditPage
	at       int // in page.Lines
	entry    audit.Entry
	ended    bool
}

// advance reads the next selected line. At the end it sets ended.
func (a *auditReader) advance(ctx context.Context) error {
	for a.page == nil || a.at == len(a.page.Lines) {
		if a.page != nil && !a.page.More {
			a.finish()
			return nil
		}

		if err := a.fetch(ctx); err != nil {
			return err
		}
	}

	line := a.page.Lines[a.at]
	a.at++

	if !a.report.filtered() {
		// A node names its own faults, and those in lines that are no JSON.
		if fault := a.verifier.Line(line); fault != nil && len(a.page.Faults) == 0 {
			a.report.fault(a.node.id, fault.Reason)
		}
	}

	a.entry, _ = audit.ParseEntry(line)

	return nil
}

func (a *auditReader) finish() {
	a.ended = true

	// With --since the log begins in the middle, and its beginning is not known.
	if a.report.whole() {
		if fault := a.verifier.Begin(); fault != nil {
			a.report.fault(a.node.id, fault.Reason)
		}
	}

	if a.report.filtered() {
		return
	}

	a.report.verified(a.node.id, &a.verifier)
}

// line is the line that advance read.
func (a *auditReader) line() []byte { return a.page.Lines[a.at-1] }

// fetch reads the next page.
func (a *auditReader) fetch(ctx context.Context) error {
	query := &a.report.query
	opt := apiclient.AuditOptions{Who: query.Who, What: query.What, Since: query.Since, Limit: auditPage}

	before := a.page
	if before != nil {
		// The cursor is the number of the last line, which stays valid while the log grows.
		opt.After = before.Last
	}

	page, _, err := a.node.client.Operator().Audit(ctx, opt)
	if err != nil {
		return err
	}

	// The log may be rotated between two pages, but its numbers and hashes still follow each other.
	if before != nil && page.First != 0 && (page.First != before.Last+1 || page.Prev != before.Head) {
		a.report.fault(a.node.id, "the log was changed while it was read: pages don't follow each other")
	}

	for _, reason := range page.Faults {
		a.report.fault(a.node.id, reason)
	}

	switch {
	// The next page has no number to begin at.
	case page.More && page.Last == 0:
		return cli.Failed(cli.ExitFailed,
			"more lines of the log have no numbers, as an earlier build wrote them, than a page holds").
			WithHint("On the node, --file prints them: audit.jsonl in its data directory. --since leaves them out.")

	// A node that makes no progress would keep the command in this loop.
	case page.More && (page.First == 0 || before != nil && page.Last <= before.Last):
		return errors.New("the node sends no more lines, though it has some")
	}

	a.page, a.at = page, 0

	return nil
}

// pages prints the logs of nodes in order of time. A node that doesn't answer holds up no
// other; its error is the command's.
func (r *auditReport) pages(ctx context.Context, nodes []auditNode) error {
	var failed error

	advance := func(reader *auditReader) {
		if err := reader.advance(ctx); err != nil {
			reader.ended = true
			failed = fmt.Errorf("%s: %w", reader.node.id, err)

			// With one node, the failure of the command says it.
			if len(nodes) > 1 {
				r.console.Note("%s: %s", reader.node.id, cli.FailureOf(err).Message)
			}
		}
	}

	readers := make([]*auditReader, len(nodes))
	for i, node := range nodes {
		readers[i] = &auditReader{node: node, report: r}
		advance(readers[i])
	}

	for {
		// Each reader holds its next line, so the earliest of these is the next of all.
		var first *auditReader

		for _, reader := range readers {
			if !reader.ended && (first == nil || reader.entry.Time.Before(first.entry.Time)) {
				first = reader
			}
		}

		if first == nil {
			return cmp.Or(r.end(), failed)
		}

		if err := r.line(first.node.id, first.line()); err != nil {
			return err
		}

		advance(first)
	}
}

// An auditLine is a line or a fault of a node that is followed.
type auditLine struct {
	node  string
	event *apiclient.WatchEvent
}

// follow prints the lines of nodes as they come, until ctx ends or a node can't be followed.
func (r *auditReport) follow(ctx context.Context, nodes []auditNode) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	lines := make(chan auditLine)

	var followers sync.WaitGroup
	for _, node := range nodes {
		followers.Go(func() { cancel(r.followNode(ctx, node, lines)) })
	}

	defer followers.Wait()
	defer cancel(nil)

	verifiers := map[string]*audit.Verifier{}

	for {
		select {
		case <-ctx.Done():
			cause := context.Cause(ctx)

			// The directory has answered before, so that the end of --timeout is no failure.
			if errors.Is(cause, context.DeadlineExceeded) {
				r.console.Note("Stopped following, because the time of --timeout is over.")
				return r.end()
			}

			return cause
		case line := <-lines:
			if verifiers[line.node] == nil {
				verifiers[line.node] = &audit.Verifier{}
			}

			if err := r.followed(line, verifiers[line.node]); err != nil {
				return err
			}
		}
	}
}

// followed prints one event.
func (r *auditReport) followed(line auditLine, verifier *audit.Verifier) error {
	switch line.event.Kind {
	case apiclient.EventFault:
		// With filters, only the node sees all lines and can judge them.
		if r.filtered() {
			r.fault(line.node, line.event.Why)
		}

	case apiclient.EventLine:
		if !r.filtered() {
			if fault := verifier.Line(line.event.Data); fault != nil {
				r.fault(line.node, fault.Reason)
			}
		}

		return r.line(line.node, line.event.Data)
	}

	return nil
}

// followNode sends the events of a node over as many connections as it takes. It returns
// why it can't go on.
func (r *auditReport) followNode(ctx context.Context, node auditNode, lines chan<- auditLine) error {
	opt := apiclient.AuditOptions{Who: r.query.Who, What: r.query.What, Since: r.query.Since}
	connected := false

	var noted error // why the node can't be followed, as the user was notified last

	for wait := apiclient.FirstRetry; ; wait = min(2*wait, apiclient.LastRetry) {
		stream, err := node.client.Operator().FollowAudit(ctx, opt)
		if err == nil {
			// The connection worked, so the next pause is the shortest again.
			wait = apiclient.FirstRetry
			connected = true
			noted = nil

			err = sendEvents(ctx, node.id, stream, &opt.After, lines)
		}

		// A node that was never reached ends the command, and so does a failure that no retry cures.
		if ctx.Err() != nil || !connected || !apiclient.Temporary(err) && !errors.Is(err, io.EOF) {
			return err
		}

		if !apiclient.SameCause(noted, err) {
			r.console.Note("%s: connection lost: %s; retrying", node.id, cli.FailureOf(err).Message)
			noted = err
		}

		// The next connection may show a newer certificate.
		node.client.CloseIdleConnections()

		if !apiclient.Pause(ctx, apiclient.Jitter(wait)) {
			return ctx.Err()
		}
	}
}

// sendEvents sends the events of a stream, and notes the number of the last line.
func sendEvents(ctx context.Context, node string, stream *apiclient.Watch, last *uint64, to chan<- auditLine) error {
	defer func() { _ = stream.Close() }()

	for {
		event, err := stream.Next()
		if err != nil {
			return err
		}

		select {
		case to <- auditLine{node, event}:
		case <-ctx.Done():
			return ctx.Err()
		}

		// The position moves only once the line was taken, so that a reconnection repeats no line and skips none.
		if entry, err := audit.ParseEntry(event.Data); err == nil && entry.Number > 0 {
			*last = entry.Number
		}
	}
}
