package consensus

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
)

// A restorer backs the domain up and restores backups.
type restorer struct {
	*member

	terms    *terms
	reader   *reader
	restores sync.Mutex // one at a time
}

// Backup writes a backup of the domain to w: all changes that any member acknowledged before
// the call. It fails with Unavailable if no majority confirms that.
func (r *restorer) Backup(ctx context.Context, w io.Writer) error {
	if err := r.reader.Linearize(ctx); err != nil {
		return err
	}

	var (
		sealed string
		sn     *state.Snapshot
	)

	r.replica.use(func(s *state.State) { sealed, sn = s.History().Sealed(), s.Snapshot() })

	if sealed != "" { // since
		return errSealed
	}

	return backup.Write(w, backup.Header{Version: backup.Version, Node: r.cfg.Node, Taken: r.cfg.clock().Unix()}, sn)
}

// Restore replaces the domain's registrations with a backup's, on all members, and begins a new
// epoch (rules P1, P2). Agreements about members, keys and peers stay as they are, and the
// backup's peers that are not known come back. Until the epoch has begun the domain takes no
// writes, signs nothing and sends peers nothing. Restored registrations are shown here,
// unconfirmed, and exported once their owners refresh them.
//
// It is refused if the backup is another domain's, or if it has consequences that the options don't
// accept: the loss of changes, and that peers drop the exported registrations. Errors are
// *directory.Error; after OutcomeUnknown the domain is either as before or restored, and its epoch
// shows which.
func (r *restorer) Restore(ctx context.Context, backup io.Reader, options RestoreOptions) (message.Restored, error) {
	if len(options.Reason) > maxReason {
		return message.Restored{}, directory.Refuse(directory.BadRequest,
			"the reason has %d bytes; at most %d are allowed", len(options.Reason), maxReason)
	}

	var request *state.OperatorRequest
	if asked := directory.OperatorRequestOf(ctx); asked != nil {
		request = state.OriginOf(r.cfg.Node, asked).Operator
	}

	if own := r.terms.leader(); own != nil {
		return r.receive(ctx, own, &message.Request{Operator: request}, backup, options)
	}

	leader, ok := r.group.leader()
	if !ok || leader.ID == r.cfg.Node {
		return message.Restored{}, directory.Refuse(directory.Unavailable,
			"the domain has no leader in reach; nothing was changed: try again: %w", errNoLeader)
	}

	return r.sendBackup(ctx, leader, backup, request, options)
}

// receive restores a backup from a stream, as the leader. The order is judged before the
// stream is read, because that may take longer than a proof holds.
func (r *restorer) receive(ctx context.Context, leads *Leader, req *message.Request, backup io.Reader,
	options RestoreOptions) (done message.Restored, err error) {
	origin, err := leads.orders.ofRestore(ctx, req)
	if err != nil {
		return done, err
	}

	// The options that the operator has signed count, and not those that a member passes on.
	if asked := origin.Request(); asked != nil && asked.Proof != "" {
		if options, err = optionsOf(asked); err != nil {
			return done, err
		}
	}

	file, size, hash, err := r.spool(backup)
	if err != nil {
		return done, err
	}
	defer discard(file)

	switch {
	case origin == nil || origin.Operator == nil:
	case origin.Operator.Proof == "":
		// Without a proof no signature covers the hash, so the order gets that of the file.
		origin.Operator.BodyHash = hash
	case origin.Operator.BodyHash != hash:
		// Otherwise a member could restore another backup by the operator's proof.
		return done, directory.Refuse(directory.Forbidden,
			"the operator's proof is for another backup than the one that came; nothing was changed")
	}

	options.origin = origin

	return r.restore(ctx, leads, file, size, options)
}

// optionsOf returns the options of a restore as its operator has signed them.
func optionsOf(asked *directory.OperatorRequest) (options RestoreOptions, err error) {
	target, err := url.Parse(asked.Target)
	if err != nil {
		return options, directory.Refuse(directory.BadRequest, "malformed request: %w", err)
	}

	query := target.Query()

	return restoreOptions(query), nil
}

// restoreOptions returns the options of a query.
func restoreOptions(query url.Values) RestoreOptions {
	return RestoreOptions{
		AcceptLossSince: query.Get(paramLoss), NewEpoch: query.Get(paramNewEpoch) == "true",
		Reason: query.Get(paramReason),
	}
}

// install gives a state to Raft, which gives it to all members. It returns once a
// majority has it.
func (r *restorer) install(st *state.State) error {
	file, err := os.CreateTemp(r.cfg.Dir, "restore-*.tmp")
	if err != nil {
		return err
	}
	defer discard(file)

	w := bufio.NewWriterSize(file, 1<<16)
	if err := errors.Join(st.Snapshot().Write(w), w.Flush()); err != nil {
		return fmt.Errorf("write what is restored: %w", err)
	}

	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}

	if err != nil {
		return err
	}

	err = r.group.raft.Restore(&raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Size: size}, file, restoreTimeout)
	switch {
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return leadsNoMore(err)
	case err != nil:
		// Raft installs the snapshot before it waits for an entry behind it. ErrNotLeader and ErrEnqueueTimeout are
		// answers of both steps, so this member may have the restored state, and lead again.
		return restoreUnknown(err)
	}

	return nil
}

// mayRestore says why a backup is not restored over the domain as it is.
func (r *restorer) mayRestore(live, old *state.State, loss state.Loss, options RestoreOptions) error {
	switch {
	case live.History().Sealed() != "" || old.History().Sealed() != "":
		return errSealed
	case old.History().Position().Epoch == 0:
		return directory.Refuse(directory.BadRequest, "the backup is empty")
	case old.History().Position().Revision > maxRestoredRevision:
		return directory.Refuse(directory.BadRequest,
			"the backup is at revision %d; the highest that is restored is %d",
			old.History().Position().Revision, uint64(maxRestoredRevision))
	}

	// A restore never sets counters and time back, so those of a backup stay for good.
	committed := time.UnixMilli(old.History().Now())
	if committed.Sub(r.cfg.Clock.Now()) > maxRestoredAhead {
		return directory.Refuse(directory.Conflict,
			"the committed time of the backup, %s, is more than %s ahead of this node's clock; set the clock right, "+
				"or take another backup", committed.UTC().Format(time.RFC3339), maxRestoredAhead)
	}

	if err := unaccepted(live, old, loss, options); err != nil {
		return err
	}

	known := max(live.History().Position().Epoch, old.History().Position().Epoch)
	if limit := r.cfg.Clock.Now().Add(directory.Skew).Unix(); known >= uint64(limit) {
		return directory.Refuse(directory.Conflict,
			"epoch %d lies ahead of this node's clock: a new one must lie above it; set the clock right", known)
	}

	return nil
}

// unaccepted refuses a restore with a consequence that its options don't accept. The refusal has a
// fault for each, at the parameter that accepts it.
func unaccepted(live, old *state.State, loss state.Loss, options RestoreOptions) error {
	var faults []directory.Violation

	at, now := old.History().Position(), live.History().Position()
	if at.Epoch > now.Epoch || loss.Changes() > 0 {
		detail := fmt.Sprintf("the backup is at %s and the domain at %s; %s", at, now, lossText(loss))
		if at.Epoch > now.Epoch {
			detail = fmt.Sprintf("the backup is at %s, and this domain, at %s, has never been in that epoch: it is of "+
				"another domain of the same name, or this one was set back; all that is registered here would be lost",
				at, now)
		}

		if since := options.AcceptLossSince; since != at.String() && since != strconv.FormatUint(at.Revision, 10) {
			faults = append(faults, directory.Violation{Pointer: "/" + paramLoss, Detail: detail})
		}
	}

	if !options.NewEpoch {
		detail := "a restore begins a new epoch, in which registrations are unconfirmed until their owners refresh them"
		if peers := live.Peerings().Active(); len(peers) > 0 && loss.Exported > 0 {
			detail = fmt.Sprintf("%s would drop %s until the owner of each refreshes it, because a restore begins a "+
				"new epoch", quantity(len(peers), "peer"), quantity(loss.Exported, "registration"))
		}

		detail += "; " + inForceText(live, old)
		faults = append(faults, directory.Violation{Pointer: "/" + paramNewEpoch, Detail: detail})
	}

	if len(faults) == 0 {
		return nil
	}

	refused := directory.Refuse(directory.Conflict, "%s", faults[0].Detail)
	for _, fault := range faults[1:] {
		refused.Detail += "; " + fault.Detail
	}

	refused.Violations = faults

	return refused
}

// inForceText names the policy and the peerings that are in force after a restore.
func inForceText(live, old *state.State) string {
	policy := "the shipped policy stays in force"

	if _, version := live.Policy().Policy(); version > 0 {
		policy = fmt.Sprintf("the domain's policy, version %d, stays in force", version)
	} else if text, version := old.Policy().Policy(); version > 0 {
		policy = fmt.Sprintf("the backup's policy, version %d with SHA-256 %s, comes into force", version,
			directory.HashOf(text))
	}

	var back []string

	for _, peering := range old.Peerings().List() {
		if live.Peerings().Get(peering.Domain).State == "" {
			back = append(back, peering.Domain.Name())
		}
	}

	if len(back) == 0 {
		return policy
	}

	return fmt.Sprintf("%s; peerings come back from the backup: %s", policy, strings.Join(back, ", "))
}

// lossText names the changes that a restore takes back.
func lossText(loss state.Loss) string {
	var parts []string

	for _, part := range []struct {
		count int
		what  string
	}{
		{loss.Made, "made"}, {loss.Changed, "changed"}, {loss.Removed, "removed"},
		{loss.Lapsed, "kept only by refreshes"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.what))
		}
	}

	return fmt.Sprintf("the changes to %s since then would be lost (%s)", quantity(loss.Changes(), "registration"),
		strings.Join(parts, ", "))
}

// quantity returns a number with its noun.
func quantity(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}

// quiesce waits until nothing is under way into the log and keeps it so until
// release, which may be called twice.
func (r *restorer) quiesce(ctx context.Context, leads *Leader) (release func(), err error) {
	if release, err = leads.proposer.pause(ctx); err != nil {
		return nil, err
	}

	err = r.group.raft.Barrier(enqueueTimeout).Error()
	if err == nil && r.terms.leader() != leads {
		err = message.ErrNotLeader
	}

	if err != nil {
		release()

		return nil, leadsNoMore(err)
	}

	return release, nil
}

// restore is Restore, as the leader.
func (r *restorer) restore(ctx context.Context, leads *Leader, file *os.File, size int64,
	options RestoreOptions) (done message.Restored, err error) {
	if !r.restores.TryLock() {
		return done, directory.Refuse(directory.Conflict, "another restore is under way")
	}

	defer r.restores.Unlock()

	top, items, err := backup.Open(file, size)
	if err != nil {
		return done, directory.Refuse(directory.BadRequest, "%w", err)
	}

	old, header, err := state.Read(items, r.cfg.Domain, nil, backup.Processors())
	switch {
	case header.Domain != "" && header.Domain != r.cfg.Domain.Name():
		return done, directory.Refuse(directory.Conflict, "the backup is of %s; this is %s", header.Domain,
			r.cfg.Domain.Name())
	case err != nil:
		return done, directory.Refuse(directory.BadRequest, "the backup cannot be read: %w", err)
	}

	// The backup is read before this, because writes wait from here on.
	release, err := r.quiesce(ctx, leads)
	if err != nil {
		return done, err
	}
	defer release()

	var (
		live *state.State
		loss state.Loss
	)

	r.replica.view(func(s *state.State) { live, loss = s.Outline(), state.LossBy(s, old) })

	if err := r.mayRestore(live, old, loss, options); err != nil {
		return done, err
	}

	done = message.Restored{Backup: old.History().Position(), Before: live.History().Position(),
		Registrations: old.Registrations().Len(), Lost: loss.Changes(), Exported: loss.Exported}
	ledgerSize, ledgerRoot := old.History().Ledger()

	reason := fmt.Sprintf("restore of a backup that %s took at %s at position %s of %s, ledger size %d, root %s",
		top.Node, time.Unix(top.Taken, 0).UTC().Format(time.RFC3339), old.History().Position(), r.cfg.Domain.Name(),
		ledgerSize, ledgerRoot)
	if options.Reason != "" {
		reason += ": " + options.Reason
	}

	// Another command may have used the proof up while the backup was read.
	r.replica.use(func(s *state.State) { err = s.CheckProof(options.origin) })

	if err != nil {
		return done, err
	}

	if err := old.Registrations().CheckStatements(live.Members().ReadByAll(r.cfg.reads)); err != nil {
		return done, directory.Refuse(directory.Conflict, "a member cannot read the backup; nothing was changed: %w",
			err)
	}

	old.Succeed(live, reason, options.origin)
	r.log.Warn("restoring a backup", "backup", done.Backup, "domain", done.Before, "registrations", done.Registrations,
		"reason", options.Reason)

	// The log may have moved under another leader.
	if r.terms.leader() != leads {
		return done, leadsNoMore(message.ErrNotLeader)
	}

	if err := r.install(old); err != nil {
		return done, err
	}

	// The sealed state refuses all commands but the new epoch.
	release()

	if err := leads.beginHistory(ctx); err != nil {
		// The state is sealed, so the next leader begins its epoch.
		return done, restoreUnknown(err)
	}

	done.Now = r.replica.Position()
	r.log.Warn("the domain was restored", "backup", done.Backup, "now", done.Now)

	return done, nil
}

// sendBackup hands a backup to the leader, as it comes.
func (r *restorer) sendBackup(ctx context.Context, leader Member, backup io.Reader,
	request *state.OperatorRequest, options RestoreOptions) (done message.Restored, err error) {
	q := url.Values{paramLoss: {options.AcceptLossSince}, paramNewEpoch: {strconv.FormatBool(options.NewEpoch)},
		paramReason: {options.Reason}}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+leader.Address+restorePath+"?"+q.Encode(),
		io.NopCloser(backup))
	if err != nil {
		return done, err
	}

	if request != nil {
		data, err := state.Marshal(&message.Request{Operator: request})
		if err != nil {
			return done, err
		}

		req.Header.Set(headerOperator, directory.B64.EncodeToString(data))
	}

	resp, err := r.messenger.cluster.Client().Do(req)
	if err != nil {
		return done, restoreUnknown(err)
	}
	defer resp.Body.Close()

	// Part of the backup is read, so it can't be sent to the new leader.
	if resp.StatusCode == http.StatusMisdirectedRequest {
		return done, directory.Refuse(directory.Unavailable,
			"the leader has changed; nothing was changed otherwise: try again")
	}

	var answer message.RestoreAnswer

	switch err := readMessage(resp.Body, &answer); {
	case err != nil:
		return done, restoreUnknown(err)
	case answer.Err() != nil:
		return done, answer.Err()
	}

	return answer.Done, r.replica.Await(ctx, answer.Done.Now)
}

// spool writes a backup into a file of its own, and returns its SHA-256.
func (r *restorer) spool(backup io.Reader) (file *os.File, size int64, hash directory.Hash, err error) {
	if file, err = os.CreateTemp(r.cfg.Dir, "restore-*.tmp"); err != nil {
		return nil, 0, hash, err
	}

	sum := sha256.New()

	// One byte more than the bound shows that the backup is larger.
	size, err = io.Copy(io.MultiWriter(file, sum), io.LimitReader(backup, maxBackup+1))
	switch {
	case err != nil:
		err = directory.Refuse(directory.BadRequest, "the backup is incomplete; nothing was changed: %w", err)
	case size > maxBackup:
		err = directory.Refuse(directory.TooLarge, "a backup has at most %d bytes", int64(maxBackup))
	}

	if err != nil {
		discard(file)
		return nil, 0, hash, err
	}

	return file, size, directory.Hash(sum.Sum(nil)), nil
}

// takeBackup is the leader's end of sendBackup.
func (r *restorer) takeBackup(w http.ResponseWriter, req *http.Request) {
	leader := r.terms.leader()
	if leader == nil {
		r.messenger.refuse(w, errMisdirected)
		return
	}

	var answer message.RestoreAnswer

	asked, err := restoreRequest(req)
	if err == nil {
		answer.Done, err = r.receive(req.Context(), leader, asked, req.Body, restoreOptions(req.URL.Query()))
	}

	if err != nil {
		answer.Refuse(err)
	}

	r.messenger.answer(w, &answer)
}

// restoreRequest returns the operator's request that a member sends with a backup.
func restoreRequest(r *http.Request) (*message.Request, error) {
	asked := &message.Request{}

	text := r.Header.Get(headerOperator)
	if text != "" {
		data, err := directory.B64.DecodeString(text)
		if err == nil {
			asked, err = message.DecodeRequest(data)
		}

		if err != nil {
			return nil, directory.Refuse(directory.BadRequest, "malformed operator's request from a member: %w", err)
		}
	}

	asked.From, _ = transport.PeerID(r.TLS)

	return asked, nil
}

// RestoreOptions say how to restore.
type RestoreOptions struct {
	// AcceptLossSince accepts that changes since the backup are lost. It is the backup's position or
	// its revision, so that it is meant for no other backup.
	AcceptLossSince string
	// NewEpoch accepts that peers drop exported registrations until their owners refresh them.
	NewEpoch bool
	Reason   string // for the ledger; at most 200 bytes

	origin *state.Origin // who ordered it; set on the leader
}

// Parameters of a restore, in the operator's request and between members.
const (
	paramLoss     = "accept_loss_since"
	paramNewEpoch = "new_epoch"
	paramReason   = "reason"
)

const (
	restorePath = "/v1/restore"
	// headerOperator has the operator's request of a restore, between members.
	headerOperator = "Roster-Operator-Request"
	maxReason      = 200

	// maxRestoredRevision is the highest revision that every reader of JSON takes.
	maxRestoredRevision = 1 << 53
	// maxRestoredAhead is how far the committed time of a backup may be ahead of this node's clock.
	maxRestoredAhead = 24 * time.Hour

	// maxBackup bounds a backup's file in bytes.
	maxBackup = 64 << 30
	// restoreTimeout bounds the time until a majority has the restored state.
	restoreTimeout = 10 * time.Minute
)

func discard(file *os.File) {
	_ = file.Close()
	_ = os.Remove(file.Name())
}

// dropSpools removes the files of restores that ended with their process.
func dropSpools(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "restore-*.tmp"))
	for _, path := range left {
		_ = os.Remove(path)
	}
}
