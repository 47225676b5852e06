package consensus

import (
	"bytes"
	"cmp"
	"context"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// maxSpent bounds how many proofs are remembered. A proof holds for a minute or
// two, so this is over two thousand writes a second for as long as one does. A full
// set refuses: to forget one that still holds would let it be shown again.
const maxSpent = 1 << 18

// A spend is a proof that is good for one command, and until when it could be shown
// again (Unix seconds of committed time).
type spend struct {
	Proof directory.Hash `cbor:"1,keyasint"`
	Until int64          `cbor:"2,keyasint"`
}

func (p spend) Compare(o spend) int {
	if c := cmp.Compare(p.Until, o.Until); c != 0 {
		return c
	}
	return bytes.Compare(p.Proof[:], o.Proof[:])
}

// spent are the proofs by which commands came, of all members: one that was shown
// to another member is known here (draft-ietf-wimse-wpt-02, 2: jti).
type spent struct {
	known map[directory.Hash]bool
	queue table.Heap[spend]
}

// Spend uses up a proof by which a request came that is no command: Replayed where it
// was before. That it is not known whether it was is no leave to go on.
func (s *Store) Spend(ctx context.Context, proof directory.Hash, until int64) error {
	_, err := s.write(ctx, &request{Spend: &spend{proof, until}})
	return err
}

func newSpent() spent { return spent{known: map[directory.Hash]bool{}} }

func (p *spent) add(o spend) {
	p.known[o.Proof] = true
	p.queue.Push(o)
}

// take adds what o has.
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

// unspent says why a proof is not good for a command; p is nil where none came.
func (s *state) unspent(p *spend) error {
	if p == nil {
		return nil
	}
	s.spent.forget(s.now / 1000)
	switch {
	case s.spent.known[p.Proof]:
		return directory.Refuse(directory.Replayed, "the proof that came with the request has been used; make a new one for each request")
	case len(s.spent.known) >= maxSpent:
		return directory.Refuse(directory.Unavailable, "the domain remembers as many proofs as it can; nothing was changed: try again, or use a client certificate")
	}
	return nil
}

// spend remembers a proof, whatever its command came to: one that was refused must
// not be good for another either.
func (s *state) spend(p *spend) {
	if p != nil {
		s.spent.add(*p)
	}
}
