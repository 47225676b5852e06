package domain

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func restoreCommand(session *connect.Session) *cobra.Command {
	var r restore
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the domain's registrations with a backup, while it runs",
		Long: `Replace the domain's registrations with those of a backup, on all nodes and while they run.
Nodes, keys and peerings stay as they are. The command prints the costs first, and changes
nothing until you accept each, by its flag or, on a terminal, when it asks:

  --accept-loss-since POSITION  Changes since the backup are undone: registrations made since
                                end, changed ones are set back, removed ones come back.
  --new-epoch                   A restore begins a new epoch of the domain. Peers drop its
                                registrations, and show each again once its owner refreshes it.

Restored registrations are unconfirmed until then; "roster status" shows how many are. The Go
client and "roster register --keep" refresh theirs within two minutes, and those with a
lifetime of over an hour within ten. A backup of another domain is refused.

An encrypted backup is decrypted here (--identity) and sent over mutual TLS. The whole file
is checked before anything is sent. The check shows that the file is complete, not who made
it: anyone can encrypt to a public key. Store the hash from "roster snapshot inspect" apart
from the file, and give it by --hash: it is over everything in the backup, and nothing is
sent if it differs.`,
		Args: cli.Args("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			r.path = args[0]
			return r.run(c.Context(), session)
		},
	}
	cmd.Flags().StringVar(&r.options.AcceptLossSince, flagLoss, "",
		"accept that changes since the backup's `POSITION` are lost: EPOCH.REVISION or REVISION")
	cmd.Flags().BoolVar(&r.options.NewEpoch, flagNewEpoch, false,
		"accept that peers drop the registrations until their owners refresh them")
	cmd.Flags().StringVar(&r.options.Reason, "reason", "",
		"`REASON` to record in the domain's ledger, for anyone to read")
	cmd.Flags().StringVar(&r.hash, flagHash, "",
		"refuse a backup whose `HASH`, by \"roster snapshot inspect\", is another")
	addIdentityFlag(cmd, &r.identity)

	return cmd
}

// The flags by which the consequences of a restore are accepted.
const (
	flagLoss     = "accept-loss-since"
	flagNewEpoch = "new-epoch"
	flagHash     = "hash"
)

// A restore is the flags and the argument of one restore.
type restore struct {
	path     string
	identity string
	hash     string // that the backup must have; any if empty
	options  apiclient.RestoreOptions
}

func (r *restore) run(ctx context.Context, session *connect.Session) error {
	// The form is checked before the file is decrypted, because the file may be large.
	if since := r.options.AcceptLossSince; since != "" && !positionForm.MatchString(since) {
		return cli.Usage("--%s must be a position, EPOCH.REVISION or REVISION, got %q", flagLoss, since)
	}

	file, err := openFile(r.path, r.identity)
	if err != nil {
		return err
	}
	defer file.close()

	// The whole file is checked before anything is sent.
	info, err := file.inspect()
	if err != nil {
		return err
	}

	if r.hash != "" && r.hash != info.Sum.String() {
		return cli.Failed(cli.ExitFormat, "the backup's hash is %s, not %s; nothing was sent", info.Sum, r.hash)
	}

	client, err := session.Client()
	if err != nil {
		return err
	}

	// The file is decrypted again while it is sent. If it has changed since the check, that
	// fails, and the directory applies nothing of an incomplete backup.
	done, reply, err := client.Operator().RestoreSnapshot(ctx, file.reader, info.Size, r.options)

	// The first attempt has the directory name the consequences. It changes nothing unless all were accepted.
	if session.IsInteractive() {
		accepted, failed := r.ask(session, err, info.Position.String())
		if failed != nil {
			return failed
		}

		if accepted {
			done, reply, err = client.Operator().RestoreSnapshot(ctx, file.reader, info.Size, r.options)
		}
	}

	if err != nil {
		return r.explain(session, file.explain(err), info.Position.String())
	}

	session.Note("registrations restored: %d; confirmed by their owners: 0", done.Registrations)

	if done.Registrations > 0 {
		session.Note("peers show each again once its owner refreshes it; to see how many are confirmed:")
		session.Note("  %s", session.CommandLine("status"))
	}

	// The restore is done, so its result is printed even if the peers can't be listed.
	if err := notePeers(ctx, session, client, info.Domain.Name()); err != nil {
		session.Note("This domain's peers can't be listed: %v", err)
	}

	t := cli.Table{Head: []string{"BACKUP", "BEFORE", "NOW", "REGISTRATIONS", "UNDONE", "DROPPED BY PEERS"}}
	t.Add(done.Backup, done.Before, done.Now, strconv.Itoa(done.Registrations), strconv.Itoa(done.Lost),
		strconv.Itoa(done.Exported))

	return session.Print(cli.Answer{Body: reply.Body, Table: t})
}

// notePeers prints the command of the peers' operators that gives them the present addresses of this
// domain, which differ from the agreed ones after a restore onto other machines.
func notePeers(ctx context.Context, session *connect.Session, client *apiclient.Client, domain string) error {
	peers, _, err := client.Operator().Peers(ctx)
	if err != nil {
		return err
	}

	var names []string

	// Only these peers have agreed on addresses of this domain.
	for _, peer := range peers {
		if peer.Agreed == "active" || peer.Agreed == "frozen" {
			names = append(names, peer.Domain)
		}
	}

	if len(names) == 0 {
		return nil
	}

	raft, _, err := client.Operator().Raft(ctx)
	if err != nil {
		return err
	}

	members, _, err := client.Operator().Members(ctx)
	if err != nil {
		return err
	}

	session.Note("peers: %s. If this domain's nodes have new addresses, they tell a peer's nodes that they reach.",
		strings.Join(names, " "))
	session.Note("each peer's operator makes them permanent, and one whose nodes have moved too needs this:")
	session.Note("  %s", peerCommandLine(domain, raft, members))

	return nil
}

// peerCommandLine returns the command line by which a peer's operator sets the addresses of this domain.
func peerCommandLine(domain string, raft *apiclient.RaftStatus, members []apiclient.Member) string {
	var nodes, gossip []string

	for _, peer := range raft.Peers {
		if peer.API != "" {
			nodes = append(nodes, peer.API)
		}
	}

	for _, member := range members {
		if member.Domain == domain {
			gossip = append(gossip, member.Address)
		}
	}

	command := []string{"roster", "peer", "set", domain, "--nodes", strings.Join(nodes, ",")}
	if len(gossip) > 0 {
		command = append(command, "--gossip", strings.Join(gossip, ","))
	}

	return strings.Join(command, " ")
}

// positionForm is the form of a position, or of its revision alone.
var positionForm = regexp.MustCompile(`^([0-9]+\.)?[0-9]+$`)

// ask asks a person to accept each consequence that a refusal names, and reports whether the person
// accepts all.
func (r *restore) ask(session *connect.Session, err error, position string) (accepted bool, failed error) {
	var refused *apiclient.Error
	if !errors.As(err, &refused) || len(refused.Errors) == 0 {
		return false, nil
	}

	// Each consequence is accepted on its own, so that none is accepted unread.
	for _, fault := range refused.Errors {
		session.Say("%s", cli.FirstLine(fault.Detail))

		if accepted, err := session.Accepts(); !accepted {
			return false, err
		}
	}

	r.accept(refused.Errors, position)

	return true, nil
}

// accept sets the options that accept the consequences.
func (r *restore) accept(faults []apiclient.Fault, position string) {
	for _, fault := range faults {
		switch fault.Pointer {
		case "/accept_loss_since":
			r.options.AcceptLossSince = position
		case "/new_epoch":
			r.options.NewEpoch = true
		}
	}
}

// explain returns the failure of a restore. If it has consequences that were not accepted, the
// next command accepts them.
func (r *restore) explain(session *connect.Session, err error, position string) error {
	var refused *apiclient.Error
	if !errors.As(err, &refused) || len(refused.Errors) == 0 {
		return cli.Suggest(err, cli.ExitConflict, session.CommandLine(r.arguments("inspect")...))
	}

	// The command line to repeat has the flags for all consequences that the directory named.
	r.accept(refused.Errors, position)

	args := r.arguments("restore")
	if r.options.AcceptLossSince != "" {
		args = append(args, "--"+flagLoss, r.options.AcceptLossSince)
	}

	if r.options.NewEpoch {
		args = append(args, "--"+flagNewEpoch)
	}

	if r.options.Reason != "" {
		args = append(args, "--reason", r.options.Reason)
	}

	return cli.Failed(cli.ExitConflict, "%s", strings.TrimSuffix(cli.FirstLine(refused.Detail), ".")).
		WithHint("Nothing was changed. To restore and accept that:").WithNext(session.CommandLine(args...))
}

// arguments returns the arguments of a verb with the same file.
func (r *restore) arguments(verb string) []string {
	args := []string{"snapshot", verb, r.path}
	if r.identity != "" {
		args = append(args, "--identity", r.identity)
	}

	if r.hash != "" && verb == "restore" {
		args = append(args, "--"+flagHash, r.hash)
	}

	return args
}
