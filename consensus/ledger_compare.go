package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory/ledger"
)

// compareEvery is how often a member whose ledger has grown compares it with another member's.
const compareEvery = 5 * time.Second

// A ledgerComparer compares this member's log with those of the others: equal logs give equal trees, so
// one that differs has a damaged state, or lies. The majority decides: a member that most of the
// others contradict stops, and one that the others and this one contradict is named.
type ledgerComparer struct {
	member *member
	logs   *Ledger

	epoch, agreed uint64 // the largest size of the epoch's log at which a member has agreed
}

func (c *ledgerComparer) run() {
	var last ledger.Tree

	every(c.member.life.closing, compareEvery, func() {
		if _, tree := c.logs.Tree(); tree != last && c.compare() {
			last = tree
		}
	})
}

// compare asks one member for its tree, and all of them if that is another one. It reports whether
// this member's was compared.
func (c *ledgerComparer) compare() bool {
	others := c.logs.others()
	for i, to := range others {
		switch same, err := c.agrees(to); {
		case err != nil:
			continue // it is away, behind, or in another epoch
		case same:
			return true
		default:
			c.decide(others[i:])
			return true
		}
	}

	return false
}

// decide counts the members with this member's tree, once one of them has another.
func (c *ledgerComparer) decide(others []Member) {
	var with, against []Member

	for _, to := range others {
		if same, err := c.agrees(to); err == nil && same {
			with = append(with, to)
		} else if err == nil {
			against = append(against, to)
		}
	}

	epoch, tree := c.logs.Tree()
	differ := fmt.Errorf("the ledger of epoch %d up to entry %d is another", epoch, tree.Size)

	switch {
	case len(against) == 0:
		// The member that differed agrees now, or doesn't answer again.
	case len(against) > len(with)+1:
		// More than half of the members that answer contradict this one, itself counted.
		c.member.life.fail(fmt.Errorf("%w: %w than at %d of %d members that answer", ErrOtherState, differ,
			len(against), len(with)+len(against)))
	case len(with) > 0 && c.member.cfg.Misconduct != nil:
		for _, by := range against {
			c.member.cfg.Misconduct(Misconduct{By: by.ID, Kind: badLedger, Err: differ})
		}
	default:
		c.member.log.Error("two members have different ledgers, and no third one says which is right",
			"member", against[0].ID, "epoch", epoch, "size", tree.Size)
	}
}

// errIncomparable says that a member has no tree to compare.
var errIncomparable = errors.New("it has no such tree")

// agrees reports whether another member's log has the same tree, at the size of the shorter one.
func (c *ledgerComparer) agrees(to Member) (bool, error) {
	epoch, tree := c.logs.Tree()

	ctx, cancel := context.WithTimeout(c.member.life.closing, mendWithin)
	defer cancel()

	var answer message.RootAnswer

	err := c.member.messenger.post(ctx, to, rootPath, &message.RootRequest{Epoch: epoch, Size: tree.Size}, &answer)
	if err != nil {
		return false, err
	}

	return c.same(epoch, tree.Size, &answer)
}

// same reports whether an answer has the tree of this member's log, which had a size when it was asked.
func (c *ledgerComparer) same(epoch, size uint64, answer *message.RootAnswer) (bool, error) {
	// Each log agrees with a beginning that was compared before: a member that answers no more says nothing of
	// what this one has appended since.
	old := epoch == c.epoch && answer.Size <= c.agreed && c.agreed < size

	// A member with a longer log answers at this size. Only a false one names a larger size.
	if answer.Size == 0 || answer.Size > size || old {
		return false, errIncomparable
	}

	// This log may have grown since the question, so its tree is taken anew.
	log, tree, err := c.logs.Log(epoch)
	if err != nil {
		return false, err
	}

	root, err := log.Root(tree, answer.Size)
	if err != nil || root != answer.Root {
		return false, err
	}

	if epoch != c.epoch {
		c.epoch, c.agreed = epoch, 0
	}

	c.agreed = max(c.agreed, answer.Size)

	return true, nil
}

// answer answers another member's question for the tree of a log: at a size, or at this member's smaller one.
func (c *ledgerComparer) answer(request *message.RootRequest) *message.RootAnswer {
	log, tree, err := c.logs.Log(request.Epoch)
	if err != nil {
		return &message.RootAnswer{}
	}

	size := min(request.Size, tree.Size)

	root, err := log.Root(tree, size)
	if err != nil {
		return &message.RootAnswer{}
	}

	return &message.RootAnswer{Size: size, Root: root}
}
