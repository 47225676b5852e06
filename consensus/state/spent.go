package state

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// maxSpent bounds how many proofs are remembered. A proof holds for a minute or
// two, so this is over two thousand writes a second for as long as one does. A full
// set refuses: to forget one that still holds would let it be shown again.
const maxSpent = 1 << 18

// spent are the proofs by which commands of callers came, of all members: one that was shown
// to another member is known here (draft-ietf-wimse-wpt-02, 2: jti).
type spent struct {
	known map[directory.Hash]bool
	queue table.Heap[Spend]
}

func newSpent() spent { return spent{known: map[directory.Hash]bool{}} }

func (p *spent) add(o Spend) {
	p.known[o.Proof] = true
	p.queue.Push(o)
}

// take adds the proofs of other.
func (p *spent) take(o *spent) {
	for _, one := range o.queue.Items() {
		if !p.known[one.Proof] {
			p.add(one)
		}
	}
}

// forget lets at most two go that have ended, so that no single command pays for
// many.
func (p *spent) forget(now int64) {
	for range 2 {
		if p.queue.Len() == 0 || p.queue.First().Until > now {
			return
		}

		delete(p.known, p.queue.Pop().Proof)
	}
}

var (
	errProofUsed = directory.Refuse(directory.Replayed,
		"the proof that came with the request has been used; make a new one for each request")
	errProofsFull = directory.Refuse(directory.Unavailable,
		"the domain keeps the maximum number of used proofs; nothing was changed; retry, or use a client certificate")
)

// check refuses a proof that was used, or that cannot be remembered; nil is no proof.
func (p *spent) check(proof *Spend, now int64) error {
	if proof == nil {
		return nil
	}

	p.forget(now)

	switch {
	case p.known[proof.Proof]:
		return errProofUsed
	case len(p.known) >= maxSpent:
		return errProofsFull
	}

	return nil
}

// spend remembers a proof, whether or not its command succeeded: a refused command's proof must
// not be valid for another either. One that has ended by the committed time holds by the clock of
// the member that verified it, so it is remembered all the same.
func (p *spent) spend(proof *Spend, now int64) {
	if proof == nil {
		return
	}

	known := *proof
	if known.Until <= now {
		known.Until = now + spentAtLeast
	}

	p.add(known)
}

// maxOrdered is how many proofs of operators are remembered after they have ended, so that the committed
// time may go back.
const maxOrdered = 1024

// ordered are the proofs of operators by which commands came. They are remembered longer than others,
// because a leader may move the committed time ahead, so that a proof has ended, and back, so that it
// holds again.
type ordered struct {
	spent

	// forgotten is when the last of those that were forgotten has ended. One that ends no later may
	// have been used. Only an operator makes a proof, so a leader can't raise it.
	forgotten int64
}

// check refuses a proof that was used, may have been used, or cannot be remembered; nil is no proof.
func (o *ordered) check(proof *Spend) error {
	switch {
	case proof == nil:
		return nil
	case o.known[proof.Proof]:
		return errProofUsed
	case proof.Until <= o.forgotten:
		return directory.Refuse(directory.Replayed, "the operator's proof may have been used: it ends before others "+
			"that are forgotten; see that this machine's clock is right, and make a new one")
	case len(o.known) >= maxSpent:
		return errProofsFull
	}

	return nil
}

// spend remembers a proof, and forgets the first of those that have ended if there are many.
func (o *ordered) spend(proof *Spend, now int64) {
	if proof == nil || o.known[proof.Proof] {
		return
	}

	o.add(*proof)

	for o.queue.Len() > maxOrdered && o.queue.First().Until <= now {
		first := o.queue.Pop()
		delete(o.known, first.Proof)
		o.forgotten = max(o.forgotten, first.Until)
	}
}

// take adds the proofs that other has used.
func (o *ordered) take(other *ordered) {
	o.spent.take(&other.spent)
	o.forgotten = max(o.forgotten, other.forgotten)
}

// knows reports whether o refuses each proof that other refuses.
func (o *ordered) knows(other *ordered) bool {
	if o.forgotten < other.forgotten {
		return false
	}

	for _, one := range other.queue.Items() {
		if !o.known[one.Proof] && one.Until > o.forgotten {
			return false
		}
	}

	return true
}

// spentAtLeast is for how many seconds a proof is remembered; it holds for less.
const spentAtLeast = 300
