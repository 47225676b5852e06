package state

import (
	"bytes"
	"cmp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// Bounds of the Idempotency-Keys of invocations that a domain keeps. Without room for a key,
// the key is refused; without room for an answer, only the use of the key is kept. If a key
// were forgotten within its window, an agent could act twice.
const (
	maxClaims       = 1 << 16
	maxClaimsEach   = 1 << 12 // of one caller
	maxWindow       = 24 * 3600
	maxAnswers      = 32 << 20 // bytes, of all answers
	MaxAnswer       = 64 << 10 // bytes, of one
	maxAnswerHeader = 2 << 10  // bytes of an answer beside its body
)

// claimed is a key that is known. It is never modified: a change puts another in its
// place, so that a snapshot may read it while changes go on.
type claimed struct {
	Key      directory.Hash `cbor:"1,keyasint"`
	Caller   directory.Hash `cbor:"2,keyasint"`
	Body     directory.Hash `cbor:"3,keyasint"`
	Holder   directory.Hash `cbor:"4,keyasint"`
	Until    int64          `cbor:"5,keyasint"` // Unix seconds of committed time, as Leased
	Leased   int64          `cbor:"6,keyasint"`
	Settled  bool           `cbor:"7,keyasint,omitempty"`
	Released bool           `cbor:"8,keyasint,omitempty"`
	Answer   *Answer        `cbor:"9,keyasint,omitempty"`
}

// due is when to look whether a key has ended: not after it has.
type due struct {
	at  int64
	key directory.Hash
}

func (d due) Compare(due due) int {
	if c := cmp.Compare(d.at, due.at); c != 0 {
		return c
	}

	return bytes.Compare(d.key[:], due.key[:])
}

// claims are the keys of all members: one that was used at another is known here, and
// to the next leader (AI-012).
type claims struct {
	known map[directory.Hash]*claimed

	// Derived from known.
	queue table.Heap[due] // one for each
	by    map[directory.Hash]int
	bytes int
}

func newClaims() claims {
	return claims{known: map[directory.Hash]*claimed{}, by: map[directory.Hash]int{}}
}

// add puts a key that is not known.
func (c *claims) add(k *claimed) {
	c.known[k.Key] = k
	c.queue.Push(due{k.Until, k.Key})
	c.by[k.Caller]++
	c.bytes += k.Answer.size()
}

// replace puts a changed key in the place of a known one.
func (c *claims) replace(k *claimed) {
	c.bytes += k.Answer.size() - c.known[k.Key].Answer.size()
	c.known[k.Key] = k
}

// take adds the keys of other, which is newer.
func (c *claims) take(o *claims) {
	for key, k := range o.known {
		if c.known[key] == nil {
			c.add(k)
		} else {
			c.replace(k)
		}
	}
}

// forget lets all go that have ended. They are maxClaims at most.
func (c *claims) forget(now int64) {
	for c.queue.Len() > 0 && c.queue.First().at <= now {
		d := c.queue.Pop()

		k := c.known[d.key]
		if k.Until > now { // it was released, and claimed again
			c.queue.Push(due{k.Until, k.Key})
			continue
		}

		delete(c.known, k.Key)

		c.bytes -= k.Answer.size()
		if c.by[k.Caller]--; c.by[k.Caller] == 0 {
			delete(c.by, k.Caller)
		}
	}
}

// claim is first come, first served, as names are.
func (c *claims) claim(wanted *Claim, now int64) (directory.Outcome, error) {
	k := &claimed{Key: wanted.Key, Caller: wanted.Caller, Body: wanted.Body, Holder: wanted.Holder,
		Until: now + int64(max(wanted.Window, wanted.Lease)), Leased: now + int64(wanted.Lease)}
	switch old := c.known[wanted.Key]; {
	case old == nil && c.by[wanted.Caller] >= maxClaimsEach:
		return directory.Outcome{}, directory.Refuse(directory.RateLimited,
			"you have used %d Idempotency-Keys within their window, as many as one caller may; nothing was sent: "+
				"wait for some to end", maxClaimsEach)
	case old == nil && len(c.known) >= maxClaims:
		return directory.Outcome{}, directory.Refuse(directory.Unavailable,
			"the domain keeps the maximum number of Idempotency-Keys; nothing was sent; retry later or without a key")
	case old == nil:
		c.add(k)
	case old.Released:
		k.Until = max(k.Until, old.Until) // its place in the queue, which is not in snapshots
		c.replace(k)
	case old.Holder == wanted.Holder: // by whom it is held already
	case old.Body != wanted.Body:
		return directory.Outcome{}, directory.Refuse(directory.KeyReused,
			"the Idempotency-Key was used for another request before; use a new key for a new request")
	case old.Answer != nil:
		return directory.Outcome{StoredAnswer: (*directory.StoredAnswer)(old.Answer)}, nil
	case old.Settled:
		return directory.Outcome{}, directory.Refuse(directory.KeySpent,
			"the agent was invoked with this Idempotency-Key, and its answer is not kept: it was a stream, or "+
				"large, or did not come; nothing was sent again")
	case old.Leased <= now:
		return directory.Outcome{}, directory.Refuse(directory.KeySpent,
			"the node that invoked the agent with this Idempotency-Key was lost before it reported the outcome; "+
				"the agent may have acted: nothing was sent again")
	default:
		return directory.Outcome{}, directory.Refuse(directory.KeyInUse,
			"the first request with this Idempotency-Key is under way; nothing was sent again: repeat this later")
	}

	return directory.Outcome{}, nil
}

// settle records the first outcome that the holder of the claim reports.
func (c *claims) settle(word *Settle) {
	old := c.known[word.Key]
	if old == nil || old.Holder != word.Holder || old.Settled || old.Released {
		return
	}

	k := *old

	k.Settled, k.Released = !word.Release, word.Release
	if c.bytes+word.Answer.size() <= maxAnswers {
		k.Answer = word.Answer
	}

	c.replace(&k)
}
