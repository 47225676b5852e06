package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
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

	// oldest is the first epoch that is known here: 0 before trace, and 1 once that has come to the domain's first one.
	oldest atomic.Uint64
	traced uint64        // the epoch at hand from which trace has come there
	asked  atomic.Uint64 // the epoch at hand of which all former logs are here, or were asked for in vain
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
	case errors.Is(err, ledger.ErrNoTile) && !l.knows(epoch):
		return nil, ledger.Tree{}, directory.Refuse(directory.Unavailable,
			"this node does not know yet whether the domain had a ledger of epoch %d: it has yet to copy one that "+
				"ended before it joined, or while it was away; ask another node", epoch)
	case errors.Is(err, ledger.ErrNoTile):
		return nil, ledger.Tree{}, directory.Refuse(directory.NotFound, "the domain has no ledger of epoch %d", epoch)
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

// knows reports whether this member knows if the domain had a ledger of an epoch.
func (l *Ledger) knows(epoch uint64) bool {
	oldest := l.oldest.Load()
	return oldest > 0 && epoch >= oldest
}

// Start returns the payload of the first entry of an epoch's log. The error is directory.NotFound, or Unavailable if
// this node lacks it.
func (l *Ledger) Start(epoch uint64) ([]byte, error) {
	if _, _, err := l.Log(epoch); err != nil {
		return nil, err
	}

	payload, err := l.epochs.Start(epoch)
	if err != nil {
		return nil, directory.Refuse(directory.Unavailable, "the start of epoch %d: %w; ask another node", epoch, err)
	}

	return payload, nil
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

// History returns the last statements of a registration of this domain before a place, the first one first: none if
// it is not known. The zero place is behind all of them. earlier says that there are others before these. complete is
// false while this member copies the history of another one.
func (l *Ledger) History(rid directory.RID, before directory.Position) (statements []Statement, earlier, complete bool,
	err error,
) {
	// Before the records: if another statement follows meanwhile, this one is among them.
	var newest *state.Registration
	if before == (directory.Position{}) {
		newest = l.member.replica.registration(rid)
	}

	records, earlier, err := l.member.replica.history.Of(rid, before)
	if err != nil {
		return nil, false, false, directory.Refuse(directory.Unavailable, "the history can't be read: %w", err)
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
				return nil, false, false, directory.Refuse(directory.Unavailable, "the history can't be read: %w", err)
			}
		}

		statements = append(statements, st)
	}

	return statements, earlier, !l.member.replica.history.Lacks(), nil
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

// hasAsked reports whether the former logs are here, as far as another member has them.
func (l *Ledger) hasAsked() bool {
	epoch, _ := l.Tree()
	return l.asked.Load() == epoch
}

// mendEvery is how often this copy is looked after, and mendWithin how long one answer of
// another member may take.
const (
	mendEvery  = time.Second
	mendWithin = 10 * time.Second
)

// run completes this copy of the log at hand, and of those that ended: with the entries on disk, or from other members.
func (l *Ledger) run() {
	// Each log has a pause of its own, and so has trace: a former log may be lost on all members.
	pauses := map[uint64]mendPause{}

	every(l.member.life.closing, mendEvery, func() {
		present, _ := l.Tree()
		l.paced(pauses, 0, "former ledgers", mendFormer, func() error { return l.trace(present) })

		for _, epoch := range l.epochs.Lacking(present) {
			most := mendFormer
			if epoch == present {
				most = mendPresent
			}

			l.paced(pauses, epoch, "entries of the ledger", most, func() error { return l.mend(epoch) })
		}

		if l.traced == present || len(pauses) > 0 {
			l.asked.Store(present)
		}
	})
}

// The longest pauses, in doublings of mendEvery: about a minute for the log at hand, because a member that has the
// entries may be away for long, and a quarter of an hour for former ones, which may be lost on all members.
const (
	mendPresent = 6
	mendFormer  = 10
)

// paced takes a step towards something that is missing here, after a pause if the step failed before.
func (l *Ledger) paced(pauses map[uint64]mendPause, key uint64, what string, most int, step func() error) {
	pause := pauses[key]
	if time.Now().Before(pause.until) {
		return
	}

	err := step()
	if err == nil {
		delete(pauses, key)
		return
	}

	pause.rounds = min(pause.rounds+1, most)
	pause.until = time.Now().Add(mendEvery << pause.rounds)
	pauses[key] = pause

	l.member.log.Warn(what+" are missing here; asking the other members again",
		"epoch", key, "after_s", (mendEvery << pause.rounds).Seconds(), "err", err)
}

// A mendPause is until when a log is not looked after, and how often it was in vain.
type mendPause struct {
	until  time.Time
	rounds int
}

// trace follows the domain's epochs back to the first one. The first entry of a log names the log before it and the
// tree with which that ended, so this member also knows a log that ended before it joined, or while it was away.
func (l *Ledger) trace(present uint64) error {
	if present == l.traced {
		return nil
	}

	for epoch := present; ; {
		l.oldest.Store(epoch)

		log, _, err := l.Log(epoch)
		if err != nil {
			return err
		}

		// Its first entry may be one of those that mend gets.
		if _, missing := log.Missing(); missing {
			return nil
		}

		start, err := l.startOf(epoch)
		if err != nil {
			return err
		}

		if start.Former == 0 {
			l.oldest.Store(1)
			l.traced = present

			return nil
		}

		if err := l.epochs.End(start.Former, ledger.Tree{Size: start.Size, Root: start.Root}); err != nil {
			return err
		}

		epoch = start.Former
	}
}

// startOf returns the contents of the first entry of an epoch's log, and keeps them if they come from elsewhere.
func (l *Ledger) startOf(epoch uint64) (*ledger.Start, error) {
	payload, err := l.epochs.Start(epoch)
	if err == nil {
		return ledger.ParseStart(payload)
	}

	// No member has to be asked for what each first epoch has.
	first := ledger.FirstStart(l.member.cfg.Domain, epoch)
	if l.epochs.KeepStart(epoch, first.Payload()) == nil {
		return &first, nil
	}

	for _, to := range l.others() {
		answer, asking := l.ask(to, &message.EntriesRequest{Epoch: epoch, Start: true})
		if asking == nil {
			asking = l.epochs.KeepStart(epoch, answer.Start)
		}

		if asking == nil {
			return ledger.ParseStart(answer.Start)
		}

		err = errors.Join(err, fmt.Errorf("%s: %w", to.ID, asking))
	}

	return nil, fmt.Errorf("the start of epoch %d: %w", epoch, err)
}

// others returns the other members. Their order is random, so that a member that never answers holds up only some of
// the rounds.
func (l *Ledger) others() (others []Member) {
	others = l.member.group.others()
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })

	return others
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

	for _, to := range l.others() {
		filling := log.Fill(tree, func(index uint64) ([]ledger.Entry, error) {
			answer, err := l.ask(to, &message.EntriesRequest{Epoch: epoch, From: index})
			if err != nil {
				return nil, err
			}

			return ledger.ReadEntries(answer.Entries)
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

// ask asks another member for entries, or for the start of an epoch.
func (l *Ledger) ask(to Member, request *message.EntriesRequest) (answer message.EntriesAnswer, err error) {
	ctx, cancel := context.WithTimeout(l.member.life.closing, mendWithin)
	defer cancel()

	err = l.member.messenger.post(ctx, to, entriesPath, request, &answer)

	return answer, err
}

// answer answers another member's question for entries, with as many as there are from an
// index on, up to maxEntries.
func (l *Ledger) answer(request *message.EntriesRequest) *message.EntriesAnswer {
	if request.Start {
		start, _ := l.Start(request.Epoch)

		return &message.EntriesAnswer{Start: start}
	}

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
