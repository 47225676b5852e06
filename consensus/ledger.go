package consensus

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/roster-mesh/roster/consensus/history"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// A Ledger is this member's copy of the logs of its domain, on disk beside its snapshots. The
// state has the frontier of the log at hand, which is the tree by which the copy is judged.
type Ledger struct {
	member *member
	epochs *ledger.Epochs
}

// openLedger names the directory of a member's logs.
func openLedger(cfg *Config) *ledger.Epochs {
	return ledger.OpenEpochs(filepath.Join(cfg.Dir, "ledger"))
}

// Tree returns the epoch at hand and the tree of its log, as applied here. The epoch is 0
// while the domain's history has not begun, and while a restored one has no epoch of its own.
func (l *Ledger) Tree() (epoch uint64, tree ledger.Tree) { return l.member.replica.tree() }

func (r *Replica) tree() (epoch uint64, tree ledger.Tree) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	history := r.state.History()
	if history.Sealed() != "" {
		return 0, tree
	}

	tree.Size, tree.Root = history.Ledger()

	return history.Position().Epoch, tree
}

// Log returns the log of an epoch with its tree, which grows if it is the epoch at hand. The
// error is directory.NotFound, or Unavailable if this copy is damaged.
func (l *Ledger) Log(epoch uint64) (*ledger.Log, ledger.Tree, error) {
	// After a failure the state may not be the domain's.
	if failed := l.member.life.failure(); failed != nil {
		return nil, ledger.Tree{}, directory.Refuse(directory.Unavailable, "this node has stopped: %w", failed)
	}

	log, end, err := l.epochs.Log(epoch)

	switch {
	case errors.Is(err, ledger.ErrNoTile):
		return nil, ledger.Tree{}, directory.Refuse(directory.NotFound,
			"this node has no ledger of epoch %d; one that ended before the node joined, or while it was away, is at "+
				"other nodes of the domain", epoch)
	case err != nil:
		return nil, ledger.Tree{}, directory.Refuse(directory.Unavailable, "the ledger of epoch %d: %w", epoch, err)
	case end != nil:
		return log, *end, nil
	}

	now, tree := l.Tree()

	// The epoch may have ended since its log was opened. The next call finds its end.
	if now != epoch {
		return nil, ledger.Tree{}, directory.Refuse(directory.Unavailable, "the ledger of epoch %d is ending", epoch)
	}

	return log, tree, nil
}

// Included returns where the statement of a registration of this domain is in the log at hand;
// false if it is not, as after a restore until its owner refreshes it.
func (l *Ledger) Included(e *directory.Entry) (at directory.Inclusion, ok bool) {
	reg := l.member.replica.registration(e.RID)
	if reg == nil || reg.Entry().Statement != e.Statement || l.member.replica.isSealed() {
		return at, false
	}

	epoch, index, issued := reg.Leaf()
	at = directory.Inclusion{Log: directory.LogName(l.member.cfg.Domain, epoch), Index: index, At: issued}

	return at, epoch == l.member.replica.Position().Epoch
}

// A Statement is one of the history of a registration, with the contents that it had.
type Statement struct {
	history.Record

	Payload     []byte           // nil once its contents were pruned
	Disclosures []string         // all
	Entry       *directory.Entry // as it was stated; nil for that of an end, and once pruned
}

// IsErased reports whether an operator has had the contents of a registration erased.
func (l *Ledger) IsErased(rid directory.RID) bool { return l.member.replica.hasErased(rid) }

// History returns the statements of a registration of this domain, the first one first: none if it is not
// known. complete is false while this member copies the history of another one.
func (l *Ledger) History(rid directory.RID) (statements []Statement, complete bool, err error) {
	// Before the records: if another statement follows meanwhile, this one is among them.
	newest := l.member.replica.registration(rid)

	records, err := l.member.replica.history.Of(rid)
	if err != nil {
		return nil, false, directory.Refuse(directory.Unavailable, "the history can't be read: %w", err)
	}

	// The erasure holds from its commit, whether or not this disk has the contents still.
	erased := l.member.replica.hasErased(rid)

	for _, r := range withNewest(records, newest) {
		if erased {
			r.Agent, r.Kept = "", nil
		}

		st := Statement{Record: r}
		if r.Kept != nil {
			if st.Payload, st.Disclosures, st.Entry, err = state.Kept(l.member.cfg.Domain, r.Kept); err != nil {
				return nil, false, directory.Refuse(directory.Unavailable, "the history can't be read: %w", err)
			}
		}

		statements = append(statements, st)
	}

	return statements, !l.member.replica.history.Lacks(), nil
}

// withNewest adds a registration's statement to its past ones. It is among them if a backup was restored.
func withNewest(records []history.Record, reg *state.Registration) []history.Record {
	if reg == nil {
		return records
	}

	past := reg.Past(0)
	newest := history.RecordOf(&past)

	at, known := slices.BinarySearchFunc(records, newest, func(a, b history.Record) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Index, b.Index))
	})
	if known {
		records[at] = newest

		return records
	}

	return slices.Insert(records, at, newest)
}

// Around returns the registrations that had a name before and after another one; zero if there is none.
func (l *Ledger) Around(agent string, rid directory.RID) (before, after directory.RID, err error) {
	// It is read before the past ones, as in History.
	newest := l.member.replica.named(agent)

	rids, err := l.member.replica.history.Named(agent)
	if err != nil {
		return before, after, directory.Refuse(directory.Unavailable, "the history can't be read: %w", err)
	}

	if newest != nil {
		is := func(other directory.RID) bool { return other == newest.Entry().RID }

		// The living registration is the last one, even if a restored backup left it among the past ones.
		rids = append(slices.DeleteFunc(rids, is), newest.Entry().RID)
	}

	at := slices.Index(rids, rid)
	if at > 0 {
		before = rids[at-1]
	}

	if at >= 0 && at+1 < len(rids) {
		after = rids[at+1]
	}

	return before, after, nil
}

// Whole reports whether this copy of the log at hand has all entries.
func (l *Ledger) Whole() bool {
	epoch, _ := l.Tree()

	log, _, err := l.epochs.Log(epoch)
	if err != nil {
		return epoch == 0
	}

	_, missing := log.Missing()

	return !missing
}

// mendEvery is how often this copy is looked after, and mendWithin how long one answer of
// another member may take.
const (
	mendEvery  = time.Second
	mendWithin = 10 * time.Second
)

// run completes this copy of the log at hand, and of those that ended and are asked for: with the entries on disk, or
// from other members.
func (l *Ledger) run() {
	ticker := time.NewTicker(mendEvery)
	defer ticker.Stop()

	// Each log has a pause of its own: strangers can ask for a former one that no member can complete.
	pauses := map[uint64]mendPause{}

	for {
		select {
		case <-ticker.C:
		case <-l.member.life.closing.Done():
			return
		}

		present, _ := l.Tree()
		for _, epoch := range l.epochs.Lacking(present) {
			pause := pauses[epoch]
			if time.Now().Before(pause.until) {
				continue
			}

			err := l.mend(epoch)
			if err == nil {
				delete(pauses, epoch)
				continue
			}

			// The pause doubles up to about a minute: a member that has the entries may be away for long.
			pause.rounds = min(pause.rounds+1, 6)
			pause.until = time.Now().Add(mendEvery << pause.rounds)
			pauses[epoch] = pause

			l.member.log.Warn("entries of the ledger are missing here; asking the other members again",
				"epoch", epoch, "after_s", (mendEvery << pause.rounds).Seconds(), "err", err)
		}
	}
}

// A mendPause is until when a log is not looked after, and how often it was in vain.
type mendPause struct {
	until  time.Time
	rounds int
}

// mend fills the log of an epoch up to its tree, from the files and then from each other member.
func (l *Ledger) mend(epoch uint64) error {
	log, tree, err := l.Log(epoch)
	if err != nil {
		return err
	}

	from, _ := log.Missing()
	if err = log.Fill(tree, log.Local); err == nil {
		l.member.log.Info("completed the ledger from its entries on disk",
			"epoch", epoch, "from", from, "to", tree.Size)

		return nil
	}

	all := l.member.group.servers()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	// The order is random, so that a member that never answers holds up only some of the rounds.
	for _, to := range all {
		if to.ID == l.member.cfg.Node {
			continue
		}

		filling := log.Fill(tree, func(index uint64) ([]ledger.Entry, error) {
			return l.ask(to.Member, epoch, index)
		})
		if filling == nil {
			l.member.log.Info("completed the ledger with entries of another member",
				"epoch", epoch, "from", from, "to", tree.Size, "member", to.ID)

			return nil
		}

		err = errors.Join(err, filling)
	}

	return err
}

// ask asks another member for entries.
func (l *Ledger) ask(to Member, epoch, index uint64) ([]ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(l.member.life.closing, mendWithin)
	defer cancel()

	var answer message.EntriesAnswer
	if err := l.member.messenger.post(ctx, to, entriesPath, &message.EntriesRequest{Epoch: epoch, From: index},
		&answer); err != nil {
		return nil, err
	}

	return ledger.ReadEntries(answer.Entries)
}

// answer answers another member's question for entries, with as many as there are from an
// index on, up to maxEntries.
func (l *Ledger) answer(request *message.EntriesRequest) *message.EntriesAnswer {
	log, tree, err := l.Log(request.Epoch)
	if err != nil || request.From >= tree.Size {
		return &message.EntriesAnswer{}
	}

	entries, err := log.Entries(tree, request.From, min(tree.Size-request.From, maxEntries))
	if err != nil {
		return &message.EntriesAnswer{}
	}

	return &message.EntriesAnswer{Entries: entries}
}

// maxEntries bounds the entries of an answer: about 560 KiB.
const maxEntries = 1 << 14
