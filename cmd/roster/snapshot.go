package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
)

func (a *app) snapshotCommand() *cobra.Command {
	return group("snapshot", "Save a domain's directory while it runs, look into a backup, restore it",
		a.snapshotSaveCommand(), a.snapshotSalvageCommand(), a.snapshotInspectCommand(), a.snapshotRestoreCommand())
}

func (a *app) snapshotSaveCommand() *cobra.Command {
	var seal sealing
	c := &cobra.Command{
		Use:   "save FILE (--recipient KEY | --plaintext)",
		Short: "Save a backup of the directory's domain while it runs",
		Long: `Save a backup of the directory's domain while it runs. It has all that was
acknowledged before. A file that exists is not overwritten.
` + sealingHelp,
		Example: "  roster snapshot save alpha.backup --recipient age1…\n" +
			"  roster snapshot save alpha.backup --recipient @operators.txt",
		Args: needs("FILE"),
		RunE: func(c *cobra.Command, args []string) error { return a.saveSnapshot(c.Context(), args[0], seal) },
	}
	seal.flags(c)

	return c
}

func (a *app) snapshotSalvageCommand() *cobra.Command {
	var file string
	var seal sealing
	c := &cobra.Command{
		Use:   "salvage FILE --config FILE (--recipient KEY | --plaintext)",
		Short: "Make a backup of a stopped node's disk after the domain lost its majority",
		Long: `Make a backup of what a node has on its disk, for a domain that has lost more than half
of its voters for good: the nodes that are left can't write, and can't save a backup
while they run. The node must be stopped, and what it has on its disk stays as it is;
where that is damaged, or can't be written to, work on a copy.

Do so with each node that is left. Each tells at which term and entry its log ends: take
the backup of the highest term, and of those the one of the highest entry. The position
doesn't tell: a leader that was cut off may have written what never counted.

Then begin the domain anew: move the data of all nodes that are left away, start as many
as the domain begins with, by configurations whose members name them, and restore that
backup with --force. Peers go on by themselves where they find a node that they know
("roster peer set DOMAIN --nodes" at the other side says where they are).

What was acknowledged by none but the nodes that are lost is lost with them.
` + sealingHelp,
		Example: "  roster snapshot salvage left.backup --config node.yaml --recipient age1…\n" +
			"  roster snapshot restore left.backup --identity key.txt --force --reason 'three disks lost'",
		Args: needs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return usage("no configuration is given").because("--config FILE names that of the stopped node on this machine.")
			}
			cfg, err := config.Load(file)
			if err != nil {
				return usage("the configuration can't be used: %w", err).try(a.program + " config")
			}

			var term, entry uint64
			err = a.keepBackup(args[0], seal, func(out io.Writer) error {
				end, err := node.SalvageBackup(cfg, out)
				term = end.Term
				entry = end.Entry
				return err
			})
			if err != nil {
				return err
			}
			a.note("its log ends at term %d, entry %d: of several nodes' backups take the highest term, "+
				"then the highest entry", term, entry)

			return nil
		},
	}
	c.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	seal.flags(c)

	return c
}

func (a *app) saveSnapshot(ctx context.Context, path string, seal sealing) error {
	if _, err := seal.parse(); err != nil {
		return err // before a directory is asked for
	}
	client, err := a.client()
	if err != nil {
		return err
	}

	return a.keepBackup(path, seal, func(out io.Writer) error { return client.SaveSnapshot(ctx, out) })
}

// keepBackup has write make a backup at path, which is there whole or not at all.
func (a *app) keepBackup(path string, seal sealing, write func(io.Writer) error) (err error) {
	recipients, err := seal.parse()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return failed(exitConflict, "%s exists", path).
			because("A backup never takes another file's place; choose another name.")
	}
	partial := path + ".partial"
	file, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return failed(exitConflict, "%s exists", partial).
			because("Another save is under way, or one was interrupted; remove it in the latter case.").
			try("rm " + shellQuote(partial))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropPartial(partial)) }()

	info, err := writeBackup(file, recipients, write)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(partial, path); err != nil { // and not Rename: it would overwrite
		return err
	}

	protection := "not encrypted"
	if len(recipients) > 0 {
		protection = fmt.Sprintf("encrypted, recipients: %d", len(recipients))
	}
	a.note("saved %s at %s: %d registrations, %d bytes, %s",
		info.Domain.Name(), info.Position, info.Registrations, info.Size, protection)

	return nil
}

func dropPartial(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a *app) snapshotInspectCommand() *cobra.Command {
	var identity string
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show what is in a backup, offline and without its secrets",
		Args:  needs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			backup, err := openBackup(args[0], identity)
			if err != nil {
				return err
			}
			defer backup.close()
			info, err := backup.inspect()
			if err != nil {
				return err
			}

			peers, nodes := []string{}, []string{}
			for _, p := range info.Peers {
				peers = append(peers, p.Name())
			}
			for _, n := range info.Members {
				nodes = append(nodes, n.String())
			}
			body, err := marshal(inspected{
				Kind: "backup", Domain: info.Domain.Name(), Epoch: info.Position.Epoch, Revision: info.Position.Revision,
				Taken: info.Taken.UTC(), Node: info.Node.String(), Time: info.Now.UTC(),
				Registrations: info.Registrations, HeldNames: info.Held, Peers: peers, Nodes: nodes,
				LedgerSize: info.LedgerSize, LedgerRoot: info.LedgerRoot, Hash: info.Hash, Bytes: info.Size,
				Encrypted: backup.encrypted,
			})
			if err != nil {
				return err
			}
			t := table{head: []string{"WHAT", "VALUE"}, rows: [][]string{
				{"domain", info.Domain.Name()}, {"position", info.Position.String()}, {"taken", stamp(info.Taken)}, {"by", info.Node.String()},
				{"registrations", strconv.Itoa(info.Registrations)}, {"held names", strconv.Itoa(info.Held)},
				{"peers", strings.Join(peers, " ")}, {"nodes", strings.Join(nodes, " ")},
				{"ledger", fmt.Sprintf("size %d, root %s", info.LedgerSize, info.LedgerRoot)},
				{"hash", info.Hash.String()}, {"bytes", strconv.FormatInt(info.Size, 10)},
				{"encrypted", strconv.FormatBool(backup.encrypted)},
			}}

			return a.print(answer{body: body, table: t})
		},
	}
	identityFlag(c, &identity)

	return c
}

// identityFlag is the flag of commands that read a backup.
func identityFlag(c *cobra.Command, identity *string) {
	c.Flags().StringVar(identity, "identity", "", "file of the age identity that opens an encrypted backup")
}

// inspected is what is in a backup, for programs.
type inspected struct {
	Kind          string         `json:"kind"`
	Domain        string         `json:"domain"`
	Epoch         uint64         `json:"epoch"`
	Revision      uint64         `json:"revision"`
	Taken         time.Time      `json:"taken"`
	Node          string         `json:"node"` // that wrote it
	Time          time.Time      `json:"time"` // the domain's committed time
	Registrations int            `json:"registrations"`
	HeldNames     int            `json:"held_names"`
	Peers         []string       `json:"peers"`
	Nodes         []string       `json:"nodes"` // that had a signing key
	LedgerSize    uint64         `json:"ledger_size"`
	LedgerRoot    directory.Hash `json:"ledger_root"`
	Hash          directory.Hash `json:"hash"`  // over all registrations' contents and deadlines
	Bytes         int64          `json:"bytes"` // in clear
	Encrypted     bool           `json:"encrypted"`
}

func (a *app) snapshotRestoreCommand() *cobra.Command {
	var force bool
	var reason, identity string
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the place of the domain's registrations, while it runs",
		Long: `Put a backup in the place of the domain's registrations, on all its nodes and while
they run. What was registered, changed or removed since is undone. The domain begins
a new epoch: what was restored is shown here as unconfirmed, and peers see it again
once its owner has refreshed it. Nodes, keys and peers stay as they are.

It is refused where the backup is another domain's, or older than the domain or of
a later epoch, which the domain has never been in, and --force is not given.

An encrypted backup is opened here, by --identity, and sent in clear over mutual TLS.
The whole file is read and checked before anything of it is sent. That shows that it is
whole, not who made it: anybody can encrypt to a public key. Keep the hash that inspect
prints apart from the file, and compare it before a restore.`,
		Args: needs("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.restoreSnapshot(c.Context(), args[0], identity, force, reason)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also where the backup is older than the domain, or of a later epoch")
	c.Flags().StringVar(&reason, "reason", "", "why, for the domain's ledger")
	identityFlag(c, &identity)

	return c
}

func (a *app) restoreSnapshot(ctx context.Context, path, identity string, force bool, reason string) error {
	backup, err := openBackup(path, identity)
	if err != nil {
		return err
	}
	defer backup.close()
	info, err := backup.inspect()
	if err != nil {
		return err
	}
	client, err := a.client()
	if err != nil {
		return err
	}

	// It is decrypted once more while it is sent. If the file has changed since, that
	// fails, and the directory applies nothing of a backup that doesn't arrive whole.
	done, reply, err := client.RestoreSnapshot(ctx, backup.reader(), info.Size, force, reason)
	if err != nil {
		err = backup.explain(err)
		if !force {
			inspect := []string{"snapshot", "inspect", path}
			if identity != "" {
				inspect = append(inspect, "--identity", identity)
			}
			err = suggest(err, exitConflict, a.command(inspect...))
		}
		return err
	}
	t := table{head: []string{"BACKUP", "BEFORE", "NOW", "REGISTRATIONS"}, rows: [][]string{
		{done.Backup, done.Before, done.Now, strconv.Itoa(done.Registrations)},
	}}
	a.note("restored; what is restored is unconfirmed until its owner refreshes it")
	return a.print(answer{body: reply.Body, table: t})
}
