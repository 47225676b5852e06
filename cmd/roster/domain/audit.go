package domain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
)

// auditFlags are the flags of roster audit.
type auditFlags struct {
	since, who, what string
	node, file       string
	follow           bool
}

func auditCommand(session *connect.Session) *cobra.Command {
	var flags auditFlags

	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Print and verify the audit log of nodes",
		Long: `Print the audit log of the addressed node, of another one (--node), or of all nodes in
order of time (--node all), and verify it. Operators and auditors may read it. Each node
logs the changes and refusals of the requests that it received, and the commands of
operators that the domain applied.

Each line carries the hash of the line before it. The command names each place where lines
were changed, removed or moved, and then exits with 10. The last lines of a log can be
removed without a trace in the log itself: keep the head that the command prints, and
compare. With --who or --what, the node verifies the lines that it doesn't send.

--file verifies and prints a log without a node: audit.jsonl in a data directory, and its
older parts audit.jsonl.1 and so on in the same directory.

-o json and -o jsonl print the lines of the log as the node wrote them, one object a line, with
the member "node" in front.`,
		Example: "  roster audit --since 1h --who agent/ada\n" +
			"  roster audit --node all --what policy\n" +
			"  roster audit --follow -o jsonl\n" +
			"  roster audit --file /var/lib/roster/audit.jsonl",
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := flags.query(time.Now())
			if err != nil {
				return err
			}

			report := newAuditReport(session.Console, query)

			switch {
			case flags.file != "" && (flags.follow || flags.node != ""):
				return cli.Usage("--file takes neither --follow nor --node")
			case flags.file != "":
				return report.file(flags.file)
			}

			nodes, err := auditNodes(cmd.Context(), session, flags.node)
			if err != nil {
				return err
			}

			if flags.follow {
				return report.follow(cmd.Context(), nodes)
			}

			return report.pages(cmd.Context(), nodes)
		},
	}

	cmd.Flags().StringVar(&flags.since, "since", "",
		"print lines since a `TIME`, or of the last duration, such as 1h30m")
	cmd.Flags().StringVar(&flags.who, "who", "",
		"print lines of an actor, an owner, or the member that forwarded a command: a SPIFFE `ID` or the end "+
			"of its path")
	cmd.Flags().StringVar(&flags.what, "what", "",
		"print lines about an `ACTION` such as register or peer, or about an agent, rid or target")
	cmd.Flags().StringVar(&flags.node, "node", "",
		"read the log of the node `ID` (its SPIFFE ID or last segment), or of all")
	cmd.Flags().StringVar(&flags.file, "file", "", "read the log at `PATH`, without a node")
	cmd.Flags().BoolVarP(&flags.follow, "follow", "f", false, "follow the log: print new lines until interrupted")

	return cmd
}

// query returns the selection that the flags make.
func (f *auditFlags) query(now time.Time) (query directory.AuditQuery, err error) {
	query.Who, query.What = f.who, f.what
	if f.since == "" {
		return query, nil
	}

	if ago, err := time.ParseDuration(f.since); err == nil && ago > 0 {
		query.Since = now.Add(-ago).UTC().Truncate(time.Second)
		return query, nil
	}

	if query.Since, err = directory.ParseInstant(f.since); err == nil {
		return query, nil
	}

	if query.Since, err = time.Parse(time.DateOnly, f.since); err == nil {
		return query, nil
	}

	return query, cli.Usage("--since must be a time such as 2026-01-02T15:04:05Z, or a duration such as 1h, got %q",
		f.since)
}

// An auditNode is a node whose log is read.
type auditNode struct {
	id     string
	client *apiclient.Client
}

// auditNodes returns the nodes that --node selects.
func auditNodes(ctx context.Context, session *connect.Session, selected string) ([]auditNode, error) {
	client, err := session.Client()
	if err != nil {
		return nil, err
	}

	if selected == "" {
		// One line is read, to get the node's id.
		page, _, err := client.Operator().Audit(ctx, apiclient.AuditOptions{Limit: 1})
		if err != nil {
			return nil, err
		}

		return []auditNode{{page.Node, client}}, nil
	}

	status, _, err := client.Operator().Raft(ctx)
	if err != nil {
		return nil, err
	}

	var nodes []auditNode

	for _, peer := range status.Peers {
		if selected != "all" && peer.ID != selected && !strings.HasSuffix(peer.ID, "/"+selected) {
			continue
		}

		// An absent log must not go unnoticed among those of all nodes, so the command ends here.
		if peer.API == "" {
			return nil, cli.Failed(cli.ExitUnavailable, "%s has not announced its address", peer.ID)
		}

		client, err := session.ClientOf(peer.API)
		if err != nil {
			return nil, err
		}

		nodes = append(nodes, auditNode{peer.ID, client})
	}

	if len(nodes) == 0 {
		return nil, suggestMembers(session, cli.Failed(cli.ExitNotFound, "no node %q in the domain", selected))
	}

	return nodes, nil
}

// An auditReport prints lines and their faults.
type auditReport struct {
	console *cli.Console
	query   directory.AuditQuery
	table   cli.GrowingTable
	head    bool           // printed
	faults  map[string]int // by log
}

func newAuditReport(console *cli.Console, query directory.AuditQuery) *auditReport {
	return &auditReport{console: console, query: query, faults: map[string]int{}, table: cli.GrowingTable{
		Console: console,
		Head: []string{"TIME", "PHASE", "ACTION", "WHO", "WHAT", "OUTCOME", "+REVISION", "+POLICIES", "+REQUEST",
			"+BROUGHT BY", "+NODE", "+LINE"},
	}}
}

// filtered tells whether lines between the printed ones are absent.
func (r *auditReport) filtered() bool { return r.query.Who != "" || r.query.What != "" }

// whole tells whether all lines of a log are printed.
func (r *auditReport) whole() bool { return !r.filtered() && r.query.Since.IsZero() }

// fault prints a place at which a log is not as it was written.
func (r *auditReport) fault(node, reason string) {
	r.faults[node]++
	r.console.Note("%s: %s", node, reason)
}

// end returns the command's failure if there were faults. It counts those of each log.
func (r *auditReport) end() error {
	if len(r.faults) == 0 {
		return nil
	}

	var logs []string
	for _, node := range slices.Sorted(maps.Keys(r.faults)) {
		logs = append(logs, fmt.Sprintf("%s (faults: %d)", node, r.faults[node]))
	}

	return cli.Failed(cli.ExitFormat, "audit logs that are not as they were written: %s", strings.Join(logs, ", "))
}

// line prints a line of a node's log.
func (r *auditReport) line(node string, line []byte) error {
	if !r.console.Format.IsTable() {
		return r.object(node, line)
	}

	if !r.head {
		r.head = true

		if err := r.table.PrintHead(); err != nil {
			return err
		}
	}

	entry, err := audit.ParseEntry(line)
	if err != nil {
		// The verifier names a line that can't be read.
		return nil
	}

	return r.table.PrintRow([]string{
		cli.FormatMillis(entry.Time), entry.Phase, entry.Action, cmp.Or(entry.Actor, entry.By),
		auditSubject(entry), entry.Outcome, entry.Revision, strings.Join(entry.Policies, " "), entry.RequestID,
		entry.BroughtBy, node, cli.NonZero(entry.Number),
	})
}

// auditSubject returns the subject of a line.
func auditSubject(entry audit.Entry) string {
	var words []string

	for _, word := range []string{entry.Agent, entry.Target} {
		if word != "" {
			words = append(words, word)
		}
	}

	if len(words) == 0 && entry.RID != "" {
		words = append(words, entry.RID)
	}

	if entry.Count > 0 {
		words = append(words, fmt.Sprintf("(%d)", entry.Count))
	}

	if entry.Reason != "" {
		words = append(words, entry.Reason)
	}

	if entry.Difference != nil {
		words = append(words, differenceWords(entry.Difference))
	}

	return strings.Join(words, " ")
}

// differenceWords summarises an operator's change.
func differenceWords(d *directory.AuditDifference) string {
	words := fmt.Sprintf("+%d -%d lines", d.Added, d.Removed)
	if d.Added == 0 && d.Removed == 0 {
		words = "unchanged"
	}

	if d.WasVersion != nil && d.Version != nil {
		words = fmt.Sprintf("version %d to %d, %s", *d.WasVersion, *d.Version, words)
	}

	return words
}

// object prints a line as JSON. The verifier names a line that can't be read.
func (r *auditReport) object(node string, line []byte) error {
	if _, err := audit.ParseEntry(line); err != nil {
		return nil
	}

	name, err := cli.Marshal(node)
	if err != nil {
		return err
	}

	// The line stays byte for byte, because its hash is over these bytes.
	body := slices.Concat([]byte(`{"node":`), name[:len(name)-1], []byte(","), line[1:])

	if r.console.Format == cli.FormatYAML {
		if _, err := r.console.Stdout.Write([]byte("---\n")); err != nil {
			return err
		}

		return r.console.Print(cli.Answer{Body: body})
	}

	_, err = r.console.Stdout.Write(append(body, '\n'))

	return err
}

// file prints and verifies a log without a node.
func (r *auditReport) file(path string) error {
	var (
		verifier audit.Verifier
		printing error
	)

	// Every line is verified, because the hashes also link the lines that are not printed.
	err := audit.Lines(path, func(line []byte) bool {
		if fault := verifier.Line(line); fault != nil {
			r.fault(path, fault.Reason)
		}

		if audit.Selects(&r.query, line) {
			printing = r.line(path, line)
		}

		return printing == nil
	})
	if err := errors.Join(err, printing); err != nil {
		return err
	}

	// The beginning can be judged only after the last line, which may say that older lines were removed.
	if fault := verifier.Begin(); fault != nil {
		r.fault(path, fault.Reason)
	}

	r.verified(path, &verifier)

	return r.end()
}

// verified prints the head of a log that was read to its end.
func (r *auditReport) verified(node string, v *audit.Verifier) {
	// After a fault, the head is no proof of the lines before it.
	if number, head := v.Head(); number > 0 && r.faults[node] == 0 {
		r.console.Note("%s: verified up to line %d; head %s", node, number, head)
	}
}
