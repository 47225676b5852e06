package backup

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func restoreCommand(session connect.Session) *cobra.Command {
	var r restore
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the domain's registrations with a backup, while it runs",
		Long: `Replace the domain's registrations with those of a backup, on all nodes and while they run.
Every registration, change and removal since the backup is undone. The domain begins a new
epoch: restored registrations are unconfirmed, and peers show each again once its owner
refreshes it. Nodes, keys and peerings stay as they are.

A backup of another domain is refused. A backup older than the domain's state, or of a later
epoch than the domain has reached, is refused without --force.

An encrypted backup is decrypted here (--identity) and sent over mutual TLS. The whole file
is checked before anything is sent. The check shows that the file is complete, not who made
it: anyone can encrypt to a public key. Store the hash from "roster snapshot inspect" apart
from the file, and compare it before you restore.`,
		Args: cli.Args("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			r.path = args[0]
			return r.run(c.Context(), session)
		},
	}
	cmd.Flags().BoolVar(&r.force, "force", false, "restore a backup older than the domain's state or of a later epoch")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`REASON` to record in the domain's ledger")
	addIdentityFlag(cmd, &r.identity)

	return cmd
}

// A restore is the flags and the argument of one restore.
type restore struct {
	path     string
	identity string
	force    bool
	reason   string
}

func (r *restore) run(ctx context.Context, session connect.Session) error {
	file, err := openFile(r.path, r.identity)
	if err != nil {
		return err
	}
	defer file.close()

	info, err := file.inspect()
	if err != nil {
		return err
	}

	client, err := session.Client()
	if err != nil {
		return err
	}

	// The file is decrypted again while it is sent. If it has changed since the check, that
	// fails, and the directory applies nothing of an incomplete backup.
	done, reply, err := client.Operator().RestoreSnapshot(ctx, file.reader, info.Size, r.force, r.reason)
	if err != nil {
		err = file.explain(err)
		if !r.force {
			err = cli.Suggest(err, cli.ExitConflict, r.inspectCommand(session))
		}

		return err
	}

	session.Note("registrations restored: %d; peers show each again once its owner refreshes it", done.Registrations)
	t := cli.Table{Head: []string{"BACKUP", "BEFORE", "NOW", "REGISTRATIONS"}}
	t.Add(done.Backup, done.Before, done.Now, strconv.Itoa(done.Registrations))

	return session.Print(cli.Answer{Body: reply.Body, Table: t})
}

// inspectCommand returns the command line that inspects the same file.
func (r *restore) inspectCommand(session connect.Session) string {
	args := []string{"snapshot", "inspect", r.path}
	if r.identity != "" {
		args = append(args, "--identity", r.identity)
	}

	return session.CommandLine(args...)
}
