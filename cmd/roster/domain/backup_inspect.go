package domain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node"
)

func inspectCommand(session *connect.Session) *cobra.Command {
	var identity string
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show a backup's contents without its secrets, offline",
		Args:  cli.Args("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := openFile(args[0], identity)
			if err != nil {
				return err
			}
			defer file.close()

			info, err := file.inspect()
			if err != nil {
				return err
			}

			summary := summarize(info, file.encrypted)

			return session.PrintValue(summary, "", summary.table())
		},
	}
	addIdentityFlag(cmd, &identity)

	return cmd
}

// addIdentityFlag adds the flag of commands that read a backup.
func addIdentityFlag(c *cobra.Command, identity *string) {
	c.Flags().StringVar(identity, "identity", "", "`FILE` with the age identity (private key) that decrypts the backup")
}

// A backupSummary is the contents of a backup as -o json prints them.
type backupSummary struct {
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
	Nodes         []string       `json:"nodes"` // with a signing key
	LedgerSize    uint64         `json:"ledger_size"`
	LedgerRoot    directory.Hash `json:"ledger_root"`
	Policy        uint64         `json:"policy"`               // revision of the policy in it; 0 without a policy
	PolicyHash    directory.Hash `json:"policy_hash,omitzero"` // SHA-256 of the policy's text
	Hash          directory.Hash `json:"hash"`                 // SHA-256 of everything in the backup
	// RegistrationsHash is over all registrations' contents and deadlines alone: that of the restored domain.
	RegistrationsHash directory.Hash `json:"registrations_hash"`
	Bytes             int64          `json:"bytes"` // unencrypted
	Encrypted         bool           `json:"encrypted"`
}

func summarize(info *node.Backup, encrypted bool) backupSummary {
	peers := []string{}
	for _, p := range info.Peers {
		peers = append(peers, p.Name())
	}

	nodes := []string{}
	for _, n := range info.Members {
		nodes = append(nodes, n.String())
	}

	return backupSummary{
		Kind:          "backup",
		Domain:        info.Domain.Name(),
		Epoch:         info.Position.Epoch,
		Revision:      info.Position.Revision,
		Taken:         info.Taken.UTC(),
		Node:          info.Node.String(),
		Time:          info.Now.UTC(),
		Registrations: info.Registrations,
		HeldNames:     info.Held,
		Peers:         peers,
		Nodes:         nodes,
		LedgerSize:    info.LedgerSize,
		LedgerRoot:    info.LedgerRoot,
		Policy:        info.Policy,
		PolicyHash:    info.PolicyHash,
		Hash:          info.Sum,

		RegistrationsHash: info.Hash,
		Bytes:             info.Size,
		Encrypted:         encrypted,
	}
}

func (b backupSummary) policyText() string {
	if b.Policy == 0 {
		return "none of its own"
	}

	return fmt.Sprintf("version %d, SHA-256 %s", b.Policy, b.PolicyHash)
}

func (b backupSummary) table() cli.Table {
	t := cli.Table{Head: []string{"FIELD", "VALUE"}}
	t.Add("domain", b.Domain)
	t.Add("position", fmt.Sprintf("%d.%d", b.Epoch, b.Revision))
	t.Add("taken", cli.FormatTime(b.Taken))
	t.Add("written by", b.Node)
	t.Add("registrations", strconv.Itoa(b.Registrations))
	t.Add("held names", strconv.Itoa(b.HeldNames))
	t.Add("peers", strings.Join(b.Peers, " "))
	t.Add("nodes", strings.Join(b.Nodes, " "))
	t.Add("ledger", fmt.Sprintf("size %d, root %s", b.LedgerSize, b.LedgerRoot))
	t.Add("policy", b.policyText())
	t.Add("registrations hash", b.RegistrationsHash.String())
	t.Add("hash", b.Hash.String())
	t.Add("bytes", strconv.FormatInt(b.Bytes, 10))
	t.Add("encrypted", cli.YesNo(b.Encrypted))

	return t
}
