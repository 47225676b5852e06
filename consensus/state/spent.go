package state

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// maxSpent bounds how many proofs are remembered. A proof holds for a minute or
// two, so this is over two thousand writes a second for as long as one does. A full
// set refuses: to forget one that still holds would let it be shown again.
const maxSpent = 1 << 18

// spent are the proofs by which commands came, of all members: one that was shown
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

// check refuses a proof that was used, or that cannot be remembered; nil is no proof.
func (p *spent) check(proof *Spend, now int64) error {
	if proof == nil {
		return nil
	}

	p.forget(now)

	switch {
	case p.known[proof.Proof]:
		return directory.Refuse(directory.Replayed,
			"the proof that came with the request has been used; make a new one for each request")
	case len(p.known) >= maxSpent:
		return directory.Refuse(directory.Unavailable,
			"the domain keeps the maximum number of used proofs; nothing was changed; retry, or use a client "+
				"certificate")
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

// spentAtLeast is for how many seconds a proof is remembered; it holds for less.
const spentAtLeast = 300
