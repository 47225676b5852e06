// Package ledger has the commands that read a domain's transparency log and check it. They take
// the directory's word for nothing: tiles and entries are checked against the checkpoint, and
// the checkpoint by a policy of the caller.
package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/durable"
)

// Verdicts on a log (docs/cli.md, "Output").
const (
	exitEquivocation = 11
	exitInclusion    = 13
	exitRollback     = 15
)

// Command returns the group of this package's commands.
func Command(s *connect.Session) *cobra.Command {
	return cli.Group("log", "Read and check a domain's transparency log",
		checkpointCommand(s), policyCommand(s), listCommand(s), proveCommand(s), checkCommand(s), watchCommand(s),
		enrollCommand(s))
}

// A source has the flags of each command: the log, and the policy that judges it.
type source struct {
	epoch      uint64
	policyFile string
}

func (s *source) addFlags(cmd *cobra.Command, judged bool) {
	cmd.Flags().Uint64Var(&s.epoch, "epoch", 0, "`EPOCH` of the log (default: the one at hand)")

	if judged {
		cmd.Flags().StringVar(&s.policyFile, "policy", "",
			"`FILE` with logs and witnesses that you believe, a tlog-policy (default: the directory's own)")
	}
}

// open returns the log and its checkpoint, judged.
func (s *source) open(c *cobra.Command, session *connect.Session) (*reader, *checkpoint.Note, checkpoint.Judgement,
	error) {
	policy, err := s.policy(session)
	if err != nil {
		return nil, nil, checkpoint.Judgement{}, err
	}

	log, err := openLog(c.Context(), session, s.epoch)
	if err != nil {
		return nil, nil, checkpoint.Judgement{}, err
	}

	note, found, err := log.checkpoint(policy)

	return log, note, found, err
}

// policy reads the policy file; nil without one.
func (s *source) policy(session *connect.Session) (*checkpoint.Policy, error) {
	if s.policyFile == "" {
		session.Note("Judged by the directory's own policy: --policy FILE gives one that you trust.")
		return nil, nil
	}

	text, err := session.ReadFile(s.policyFile, checkpoint.MaxPolicy+1)
	if err != nil {
		return nil, err
	}

	policy, err := checkpoint.ParsePolicy(string(text))
	if err != nil {
		return nil, cli.Failed(cli.ExitFormat, "cannot use the policy %s: %w", s.policyFile, err)
	}

	return policy, nil
}

// served returns the policy that the directory serves for the log.
func (s *source) served(c *cobra.Command, session *connect.Session) (string, *checkpoint.Policy, error) {
	log, err := openLog(c.Context(), session, s.epoch)
	if err != nil {
		return "", nil, err
	}

	return log.policy()
}

// cosigning returns the policy that asks for a cosignature of the domain.
func (s *source) cosigning(c *cobra.Command, session *connect.Session) (string, *checkpoint.Policy, error) {
	client, err := session.Client()
	if err != nil {
		return "", nil, err
	}

	return (&reader{ctx: c.Context(), client: client, prefix: "/witness"}).policy()
}

func checkpointCommand(session *connect.Session) *cobra.Command {
	var from source

	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Print the log's checkpoint with all of its signatures",
		Long: `Print the log's checkpoint, a C2SP signed note, after its signatures were verified. Keep it: a
later "roster log check FILE" shows that the log was only appended to.`,
		Example: "  roster log checkpoint > checkpoint.txt\n  roster log checkpoint --policy policy.txt",
		Args:    cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			_, note, _, err := from.open(c, session)
			if err != nil {
				return err
			}

			_, err = io.WriteString(session.Stdout, note.String())

			return err
		},
	}
	from.addFlags(cmd, true)

	return cmd
}

func policyCommand(session *connect.Session) *cobra.Command {
	var (
		from    source
		witness bool
	)

	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Print the log's own policy: its keys and its witnesses",
		Long: `Print the C2SP tlog-policy that the directory serves: the keys that sign for the log, and the
witnesses that the domain names. Compare it with a source that you trust before you judge by it.

With --witness print the keys by which the domain cosigns other logs, as the operator of such a
log needs them.`,
		Example: "  roster log policy > policy.txt\n  roster log policy --witness",
		Args:    cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			serve := from.served
			if witness {
				serve = from.cosigning
			}

			text, _, err := serve(c, session)
			if err != nil {
				return err
			}

			_, err = io.WriteString(session.Stdout, text)

			return err
		},
	}
	from.addFlags(cmd, false)
	cmd.Flags().BoolVar(&witness, "witness", false, "print the keys by which the domain cosigns other logs")
	cmd.MarkFlagsMutuallyExclusive("witness", "epoch")

	return cmd
}

func listCommand(session *connect.Session) *cobra.Command {
	var (
		source   source
		from, to uint64
		kind     uint8
	)

	cmd := &cobra.Command{
		Use:   "list",
		Short: "List entries of the log, each checked against the checkpoint",
		Long: `List entries of the log. An entry is a type and the SHA-256 of a payload, and discloses nothing;
each is checked against the checkpoint. The types:

  1  a statement: a registration or its end   5  the begin of an epoch
  2  a batch of announced changes             6  an operator's command
  3  a key document                           7  the head of the audit log
  4  a bundle of a domain

The start of an epoch is public: which log it follows, what was restored, and why. It is shown if
its SHA-256 is in the entry.`,
		Example: "  roster log list --from 100\n  roster log list --type 6 -o json",
		Args:    cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			log, note, _, err := source.open(c, session)
			if err != nil {
				return err
			}

			listed := []entry{}
			table := cli.Table{Head: []string{"INDEX", "TYPE", "KIND", "HASH", "DETAIL"}}

			err = log.entries(note.Checkpoint, from, min(to, note.Size), func(e entry) {
				if kind == 0 || e.Type == kind {
					detail := e.explain(log)
					listed = append(listed, e)
					table.Add(strconv.FormatUint(e.Index, 10), strconv.Itoa(int(e.Type)), e.Kind, e.Hash.String(),
						detail)
				}
			})
			if err != nil {
				return err
			}

			value := struct {
				Origin  string  `json:"origin"`
				Size    uint64  `json:"size"`
				Entries []entry `json:"entries"`
			}{note.Origin, note.Size, listed}

			return session.PrintValue(value, "entries", table)
		},
	}
	cmd.Flags().Uint64Var(&from, "from", 0, "first `INDEX` to list")
	cmd.Flags().Uint64Var(&to, "to", maxIndex, "`INDEX` behind the last one to list (default: all)")
	cmd.Flags().Uint8Var(&kind, "type", 0, "list only entries of this `TYPE` (default: all)")

	// pflag hides a default of 0, and the real one would say nothing.
	cmd.Flags().Lookup("to").DefValue = "0"
	source.addFlags(cmd, true)

	return cmd
}

func proveCommand(session *connect.Session) *cobra.Command {
	var from source

	cmd := &cobra.Command{
		Use:   "prove INDEX",
		Short: "Print a proof that the log holds the entry at an index",
		Long: `Print a C2SP tlog-proof of the entry at an index of the log, made from the log's tiles and checked.
"roster verify FILE --tlog-proof PROOF" takes it for the record whose statement is that entry.`,
		Example: "  roster log prove 17 > record.tlog-proof",
		Args:    cli.Args("INDEX"),
		RunE: func(c *cobra.Command, args []string) error {
			// tlog takes an index as int64, so 63 bits are the most.
			index, err := strconv.ParseUint(args[0], 10, 63)
			if err != nil {
				return cli.Usage("INDEX must be a number, got %q", args[0])
			}

			log, note, _, err := from.open(c, session)
			if err != nil {
				return err
			}

			if index >= note.Size {
				return cli.Failed(cli.ExitNotFound, "the log %s has %d entries, and none at index %d", note.Origin,
					note.Size, index).
					WithHint("The first index is 0. A newer entry has a proof once a checkpoint covers it.")
			}

			path, err := log.prove(note.Checkpoint, index)
			if err != nil {
				return err
			}

			proof := checkpoint.FormatProof(checkpoint.Proof{Index: index, Path: path, Checkpoint: note.String()})
			_, err = io.WriteString(session.Stdout, proof)

			return err
		},
	}
	from.addFlags(cmd, true)

	return cmd
}

func checkCommand(session *connect.Session) *cobra.Command {
	var (
		from source
		keep bool
	)

	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check that the log was only appended to since a checkpoint",
		Long: `Check that the log of today is the log of an earlier checkpoint, in FILE, with entries appended:
its tiles lead from one root to the other. With --keep FILE is replaced by the newer checkpoint
once that holds, and made if it does not exist, so that a timer can run the command.

Exit codes: 0 it was only appended to, 11 two checkpoints of one size have different roots
(both are printed: they are evidence), 12 signed by no log of the policy, 13 the log is no
extension of the earlier one, or not cosigned as the policy asks, 15 it is smaller than it was.`,
		Example: "  roster log check checkpoint.txt\n  roster log check alpha.checkpoint --keep --policy policy.txt",
		Args:    cli.Args("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])

			// With --keep, the first run has no checkpoint to compare with.
			if err != nil && !(keep && errors.Is(err, fs.ErrNotExist)) {
				return cli.Failed(cli.ExitFailed, "cannot read the checkpoint: %w", err)
			}

			log, note, found, err := from.open(c, session)
			if err != nil {
				return err
			}

			var old *checkpoint.Note
			if text != nil {
				if old, err = checkpoint.Parse(string(text)); err != nil {
					return cli.Failed(cli.ExitFormat, "cannot use the checkpoint %s: %w", args[0], err)
				}

				if err := goesOn(log, old, note); err != nil {
					return errors.Join(printEvidence(session, err, old, note), err)
				}
			}

			// Only a checkpoint that extends the kept one replaces it, so that no run forgets a break.
			if keep {
				if err := durable.WriteFile(args[0], []byte(note.String()), 0o644); err != nil {
					return cli.Failed(cli.ExitFailed, "cannot keep the checkpoint: %w", err)
				}
			}

			return printCheck(session, old, note, found)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "replace FILE by the newer checkpoint if it holds")
	from.addFlags(cmd, true)

	return cmd
}

// goesOn checks that a log goes on from an earlier checkpoint. Whether that one was signed by a
// key of the policy is left open: keys change, and the caller kept it.
func goesOn(log *reader, old, note *checkpoint.Note) error {
	switch {
	case old.Origin != note.Origin:
		return cli.Failed(exitRollback, "the earlier checkpoint is of the log %s, this one of %s", old.Origin,
			note.Origin).
			WithHint("A restore begins a new log, whose entry 0 names the old one; --epoch checks the old one.")
	case old.Size == note.Size && old.Root != note.Root:
		return cli.Failed(exitEquivocation, "two checkpoints of %s with %d entries have different roots", note.Origin,
			note.Size).WithHint("No honest log signs both. If the earlier one is signed by it, the two are evidence.")
	case note.Size < old.Size:
		return cli.Failed(exitRollback, "the log %s had %d entries and has %d now", note.Origin, old.Size, note.Size).
			WithHint("A node that lags has a smaller one for a moment; check again.")
	}

	err := log.extends(note.Checkpoint, old.Checkpoint)
	if errors.Is(err, checkpoint.ErrProof) {
		return cli.Failed(exitInclusion, "the log %s was changed: it is no extension of the %d entries that it had",
			note.Origin, old.Size)
	}

	return err
}

// printEvidence prints two checkpoints that no honest log signs.
func printEvidence(session *connect.Session, err error, old, note *checkpoint.Note) error {
	if cli.FailureOf(err).Code != exitEquivocation {
		return nil
	}

	_, err = fmt.Fprintf(session.Stdout, "%s\n%s", old, note)

	return err
}

func printCheck(session *connect.Session, old, note *checkpoint.Note, found checkpoint.Judgement) error {
	type witness struct {
		Name string `json:"name"`
		At   string `json:"at"`
	}

	result := struct {
		Origin    string    `json:"origin"`
		From      uint64    `json:"from"`
		Size      uint64    `json:"size"`
		Witnesses []witness `json:"witnesses"`
	}{Origin: note.Origin, Size: note.Size, Witnesses: []witness{}}

	if old != nil {
		result.From = old.Size
	}

	table := cli.Table{Head: []string{"LOG", "FROM", "SIZE", "WITNESSES"}}

	for _, c := range found.Witnesses {
		result.Witnesses = append(result.Witnesses, witness{c.Witness.Key.Name, cli.FormatTime(c.At)})
	}

	table.Add(note.Origin, strconv.FormatUint(result.From, 10), strconv.FormatUint(note.Size, 10),
		strconv.Itoa(len(result.Witnesses)))

	return session.PrintValue(result, "", table)
}

func enrollCommand(session *connect.Session) *cobra.Command {
	var (
		from    source
		contact string
		perDay  uint
	)

	cmd := &cobra.Command{
		Use:   "enroll",
		Short: "Print what a witness asks for to witness the log",
		Long: `Print an entry of a C2SP tlog-list for each key that signs for the log, in the order that public
witnesses ask for: vkey, qpd and contact. The key's name is the origin of the log.`,
		Example: "  roster log enroll --contact ops@alpha.test",
		Args:    cli.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			_, policy, err := from.served(c, session)
			if err != nil {
				return err
			}

			if len(policy.Logs) > 1 {
				session.Note("Each of %d nodes signs by a key of its own. Have the witness list all of them: with one "+
					"key it refuses what the other nodes submit.", len(policy.Logs))
			}

			for _, l := range policy.Logs {
				lines := fmt.Sprintf("vkey %s\nqpd %d\n", l.Key, perDay)
				if contact != "" {
					lines += "contact " + contact + "\n"
				}

				if _, err := io.WriteString(session.Stdout, lines); err != nil {
					return err
				}
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&contact, "contact", "", "`ADDRESS` at which the log's operator is reached")
	cmd.Flags().UintVar(&perDay, "qpd", 8640, "`NUMBER` of checkpoints that the witness is asked to cosign a day")
	from.addFlags(cmd, false)

	return cmd
}
