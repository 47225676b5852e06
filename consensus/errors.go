package consensus

import (
	"context"
	"errors"

	"github.com/roster-mesh/roster/consensus/message"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/directory"
	httpproblem "github.com/roster-mesh/roster/directory/problem"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	errNoLeader = errors.New("the domain has no leader in reach")
	errBehind   = errors.New("this member is behind the leader")
	errNotYet   = errors.New("this member has just become the leader and is not ready yet")
)

var errSealed = directory.Refuse(directory.Unavailable,
	"the domain was restored a moment ago and its new epoch has not begun yet: try again")

// errNoMajority says that a leader's term is not confirmed by a majority.
var errNoMajority = errors.New("a majority of the domain's members does not answer in this term")

// errMisdirected is for another member, which then asks the leader.
var errMisdirected = directory.Refuse(httpproblem.Misdirected, "this member doesn't lead the domain; ask the leader")

var errDiskHangs = errors.New("the disk of this member's log does not answer")

// ErrOtherState says that this member's log made another state than at most other members: a fault of its
// disk or memory, or two releases that apply the log differently.
var ErrOtherState = errors.New("this member's state is not that of the domain")

// errLoneRestore says that this member alone has restored a backup.
var errLoneRestore = errors.New("this member has restored a backup and the domain has gone on without it")

func tooBusy(ctx context.Context) error {
	return directory.Refuse(directory.Unavailable,
		"the leader is overloaded; nothing was changed; retry: %w", context.Cause(ctx))
}

// proposed maps an error of raft.Apply or of a change of members: nothing was changed, or
// the outcome is unknown.
func proposed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout):
		return message.ErrNotLeader
	}

	return message.Unknown(err)
}

func overtaken(format string, args ...any) error {
	return directory.Refuse(directory.Overtaken, format+"; nothing was changed: try again", args...)
}

func unknownMember(id spiffeid.ID) error {
	return directory.Refuse(directory.NotFound, "%s is no member of the domain", id)
}

// removalUnknown is OutcomeUnknown of a removal. To repeat one is not safe as such: the domain may have
// lost another voter meanwhile.
func removalUnknown(id spiffeid.ID, cause error) error {
	return directory.Refuse(directory.OutcomeUnknown, "it is not known whether %s was removed; see which members "+
		"answer with: roster raft peers, before another is removed: %w", id, cause)
}

// leadsNoMore is the refusal of a restore whose leader's term has ended before it.
func leadsNoMore(cause error) error {
	return directory.Refuse(directory.Unavailable,
		"this node does not lead any more; nothing was changed: try again: %w", cause)
}

// restoreUnknown is OutcomeUnknown of a restore.
func restoreUnknown(cause error) error {
	return directory.Refuse(directory.OutcomeUnknown,
		"it is not known whether the backup was restored; if it was, the domain is in a new epoch: %w", cause)
}
