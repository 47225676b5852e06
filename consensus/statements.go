package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roster-mesh/roster/consensus/history"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// A statementKeeper writes the history of registrations to disk and prunes its old contents. After a
// snapshot of another member it copies the history from the others.
type statementKeeper struct {
	member *member
	logs   *Ledger
	eraser eraser
}

// pruneEvery is how often old contents are looked for.
const pruneEvery = 10 * time.Second

// prune takes the contents that are old, and the oldest ones while all take more than their share of the
// disk: an owner that replaces a large document all day would fill it.
func (k *statementKeeper) prune() error {
	kept, now := k.member.replica.history, k.member.cfg.Clock.Now()

	for k.member.cfg.KeepHistory > 0 {
		pruned, err := kept.Prune(now.Add(-k.member.cfg.KeepHistory))
		if err != nil || pruned < history.MostPruned {
			return errors.Join(err, k.shrink(now))
		}
	}

	return k.shrink(now)
}

func (k *statementKeeper) shrink(now time.Time) error {
	kept := k.member.replica.history
	if most := k.member.cfg.HistoryBytes; most <= 0 || kept.Used() <= most {
		return nil
	}

	k.member.log.Warn("the history of registrations takes more than history.max_bytes; its oldest contents are pruned",
		"bytes", kept.Used(), "max_bytes", k.member.cfg.HistoryBytes)

	for kept.Used() > k.member.cfg.HistoryBytes {
		pruned, err := kept.Prune(now.Add(time.Second))
		if err != nil || pruned == 0 { // the rest are those of living registrations
			return err
		}
	}

	return nil
}

func (k *statementKeeper) run() {
	var (
		pruned  time.Time
		wait    int
		failing bool
	)

	every(k.member.life.closing, mendEvery, func() {
		kept := k.member.replica.history

		// A failure is logged once, and not each second while the disk is full.
		err := kept.Flush()
		if err != nil && !failing {
			k.member.log.Error("statements can't be written to disk; trying again", "err", err)
		}

		failing = err != nil

		if wait--; wait <= 0 && kept.Lacks() && k.logs.Whole() && k.logs.hasAsked() {
			if err := k.copyAll(); err != nil {
				wait = 10
				k.member.log.Warn("the history of registrations is incomplete here; asking the other members again",
					"after_s", wait, "err", err)
			}
		}

		// Behind the copying, so that nothing of another member comes back.
		k.eraser.step(k.member)

		if now := time.Now(); now.Sub(pruned) >= pruneEvery {
			pruned = now

			if err := k.prune(); err != nil {
				k.member.log.Error("old statements can't be pruned", "err", err)
			}
		}
	})
}

// copyAll copies the history of a member that has all of it, or those of all others: after the restore of a
// backup no member has more.
func (k *statementKeeper) copyAll() error {
	var (
		errs  []error
		whole bool
	)

	for _, to := range k.logs.others() {
		lacks, err := k.copyFrom(to)
		if err == nil && !lacks {
			errs, whole = nil, true
			break
		}

		// A member that lacks some statements is no failure: the others may have them.
		errs = append(errs, err)
	}

	if err := errors.Join(errs...); err != nil {
		return err
	}

	k.member.replica.history.Copied(whole)
	k.member.log.Info("copied the history of registrations that other members have")

	return nil
}

// copyFrom copies the history of another member, page by page, and reports whether that member lacks some
// of it, too.
func (k *statementKeeper) copyFrom(to Member) (lacks bool, err error) {
	var behind []byte

	for end := time.Now().Add(copyWithin); ; {
		answer, err := k.ask(to, behind)
		if err != nil {
			return false, err
		}

		lacks = lacks || answer.Lacks
		if len(answer.Records) == 0 {
			return lacks, nil
		}

		// The history of a false member may have no end.
		if bytes.Compare(answer.Last, behind) <= 0 || time.Now().After(end) {
			return false, fmt.Errorf("the history of %s does not end", to.ID)
		}

		var proven []history.Record

		for i := range answer.Records {
			r := &answer.Records[i]

			// A record is left out if its ledger is not here. One that contradicts its ledger ends the copying.
			switch err := k.judge(r); {
			case err == nil:
				proven = append(proven, *r)
			case !errors.Is(err, errNoLog):
				return false, fmt.Errorf("a statement of registration %s that %s has: %w", r.RID, to.ID, err)
			}
		}

		if err := k.member.replica.history.Merge(proven); err != nil {
			return false, err
		}

		behind = answer.Last
	}
}

func (k *statementKeeper) ask(to Member, behind []byte) (answer message.StatementsAnswer, err error) {
	ctx, cancel := context.WithTimeout(k.member.life.closing, mendWithin)
	defer cancel()

	err = k.member.messenger.post(ctx, to, statementsPath, &message.StatementsRequest{Behind: behind}, &answer)

	return answer, err
}

// answer answers another member's question for a page of the history.
func (k *statementKeeper) answer(request *message.StatementsRequest) *message.StatementsAnswer {
	records, last, err := k.member.replica.history.Page(request.Behind, maxStatements)
	if err != nil {
		return &message.StatementsAnswer{Lacks: true}
	}

	return &message.StatementsAnswer{Records: records, Last: last, Lacks: k.member.replica.history.Lacks()}
}

// copyWithin bounds the copying of one member's history.
const copyWithin = 10 * time.Minute

// maxStatements bounds an answer, in bytes.
const maxStatements = 1 << 20

// errNoLog says that the ledger of a former epoch is not here.
var errNoLog = errors.New("its ledger is not here")

// judge compares a record of another member with the ledger.
func (k *statementKeeper) judge(r *history.Record) error {
	log, tree, err := k.logs.Log(r.Epoch)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoLog, err)
	}

	entry, err := log.Entries(tree, r.Index, 1)
	if errors.Is(err, ledger.ErrIncomplete) {
		return fmt.Errorf("%w: %w", errNoLog, err)
	}

	if err != nil {
		return err
	}

	if want, err := ledger.ReadEntries(entry); err != nil || want[0] != ledger.EntryOfHash(ledger.Statement, r.H) {
		return fmt.Errorf("entry %d of the ledger is another", r.Index)
	}

	// Another member may not have erased contents and name yet.
	if k.member.replica.hasErased(r.RID) {
		r.Agent, r.Kept = "", nil
	}

	if r.Kept == nil {
		return nil
	}

	// Contents go by this time, which the ledger doesn't have.
	r.Until = min(r.Until, k.member.cfg.Clock.Now().Unix())

	payload, _, of, err := state.Kept(k.member.cfg.Domain, r.Kept)

	switch {
	case err != nil:
		return err
	case directory.HashOf(payload) != r.H:
		return errors.New("its contents are others")
	case of != nil && (of.RID != r.RID || of.Agent != r.Agent):
		return errors.New("it is of another registration")
	}

	return nil
}
