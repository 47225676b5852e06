package node

import (
	"context"
	"io"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// cluster changes the Raft members of the domain. The store transfers leadership, confirms clocks and leaves.
type cluster struct {
	domain spiffeid.TrustDomain
	*consensus.Store
}

// Remove implements operator.Members.
func (c cluster) Remove(ctx context.Context, id spiffeid.ID) error { return c.Expel(ctx, id) }

// Admit implements operator.Members. It admits only an identity that can have a node's
// certificate.
func (c cluster) Admit(ctx context.Context, id spiffeid.ID, withdraw bool) error {
	if !withdraw && !trust.IsNode(id, c.domain) {
		return directory.Refuse(directory.BadRequest, "%s is not under %s%s, where the domain's nodes are", id,
			c.domain.IDString(), trust.NodePath).At("/id")
	}

	return c.Store.Admit(ctx, consensus.Admission{ID: id, Withdraw: withdraw})
}

// AdmitStanding implements operator.Members. The pattern matches nodes of the domain only.
func (c cluster) AdmitStanding(ctx context.Context, pattern string, most uint32) error {
	prefix := c.domain.IDString() + trust.NodePath
	if name, is := strings.CutPrefix(pattern, prefix); !is || name == "" ||
		strings.Contains(strings.TrimSuffix(name, "*"), "*") || len(pattern) > maxPattern {
		return directory.Refuse(directory.BadRequest,
			"a standing admission is for %sNAME, where NAME may end in *, got %.64q", prefix, pattern).At("/id")
	}

	return c.Store.Admit(ctx, consensus.Admission{Pattern: pattern, Max: most, Withdraw: most == 0})
}

const maxPattern = 300 // bytes

// backups saves and restores the domain's replicated state.
type backups struct{ store *consensus.Store }

// Save implements operator.BackupStore.
func (b backups) Save(ctx context.Context, w io.Writer) error { return b.store.Backup(ctx, w) }

// Restore implements operator.BackupStore.
func (b backups) Restore(
	ctx context.Context, backup io.Reader, options apioperator.RestoreOptions,
) (wire.Restored, error) {
	done, err := b.store.Restore(ctx, backup, consensus.RestoreOptions{AcceptLossSince: options.AcceptLossSince,
		NewEpoch: options.NewEpoch, Reason: options.Reason})
	if err != nil {
		return wire.Restored{}, err
	}

	return wire.Restored{
		Backup: done.Backup.String(), Before: done.Before.String(), Now: done.Now.String(),
		Registrations: done.Registrations, Lost: done.Lost, Exported: done.Exported,
	}, nil
}

// ErrBackup means that a file is no backup that this release can use.
var ErrBackup = backup.ErrUnusable

// ErrOtherHistory means that most of the domain's voters have another history than this node.
var ErrOtherHistory = consensus.ErrOtherHistory

// ErrOtherState means that most members have made another state of the domain's log than this node.
var ErrOtherState = consensus.ErrOtherState

// ErrDamaged means that a node's log or snapshots were altered after it wrote them.
var ErrDamaged = consensus.ErrDamaged

// An EntryError means that a node can't apply an entry of its log.
type EntryError = backup.EntryError

// SalvageBackup writes a backup of the state on a stopped node's disk, for a domain that
// has lost its majority for good. It returns the end of the node's log, which is the entry ahead of before
// unless that is 0.
func SalvageBackup(cfg config.Config, before uint64, w io.Writer) (backup.LogEnd, error) {
	return backup.Salvage(cfg.ConsensusDir(), cfg.TrustDomain, before, w)
}

// A Backup describes the contents of a backup, without its secrets.
type Backup = backup.Backup

// InspectBackup reads a backup to its end and returns its contents, without a directory
// and without its secrets. The error is ErrBackup if any of it has been altered.
func InspectBackup(r io.Reader) (*Backup, error) { return backup.Inspect(r) }
