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

// Shares of these bounds, which the leader checks before a command is in the log: apply takes
// whatever the log has.
const (
	maxForeignClaims  = maxClaims / 2  // of all other domains together
	maxForeignAnswers = maxAnswers / 2 // of all other domains together
	maxAnswersEach    = maxAnswers / 8 // of one caller, or of one other domain
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

// Claims are the keys of all members: one that was used at another is known here, and
// to the next leader (AI-012).
type Claims struct {
	known map[directory.Hash]*claimed

	// Derived from known.
	queue table.Heap[due]             // one for each
	by    map[directory.Hash]keyCount // by caller
	other keyCount                    // of all other domains
	bytes int
}

// A keyCount is the number of keys of a caller, and the bytes of the answers that are kept for them.
type keyCount struct{ keys, bytes int }

func newClaims() Claims {
	return Claims{known: map[directory.Hash]*claimed{}, by: map[directory.Hash]keyCount{}}
}

// count adds keys and bytes, which may be negative, to a caller's count.
func (c *Claims) count(caller directory.Hash, keys, bytes int) {
	c.bytes += bytes

	held := c.by[caller]
	held.keys += keys
	held.bytes += bytes
	c.by[caller] = held

	if held.keys == 0 {
		delete(c.by, caller)
	}

	if directory.IsForeignClaimant(caller) {
		c.other.keys += keys
		c.other.bytes += bytes
	}
}

// add puts a key that is not known.
func (c *Claims) add(k *claimed) {
	c.known[k.Key] = k
	c.queue.Push(due{k.Until, k.Key})
	c.count(k.Caller, 1, k.Answer.size())
}

// replace puts a changed key in the place of a known one.
func (c *Claims) replace(k *claimed) {
	c.count(k.Caller, 0, k.Answer.size()-c.known[k.Key].Answer.size())
	c.known[k.Key] = k
}

// take adds the keys of other, which is newer.
func (c *Claims) take(o *Claims) {
	for key, k := range o.known {
		if c.known[key] == nil {
			c.add(k)
		} else {
			c.replace(k)
		}
	}
}

// forget lets all go that have ended. They are maxClaims at most.
func (c *Claims) forget(now int64) {
	for c.queue.Len() > 0 && c.queue.First().at <= now {
		d := c.queue.Pop()

		k := c.known[d.key]

		// It was released, and claimed again.
		if k.Until > now {
			c.queue.Push(due{k.Until, k.Key})
			continue
		}

		delete(c.known, k.Key)
		c.count(k.Caller, -1, -k.Answer.size())
	}
}

// Check refuses a new key for which other domains have no share left.
func (c *Claims) Check(wanted *Claim) error {
	if c.known[wanted.Key] != nil || !directory.IsForeignClaimant(wanted.Caller) || c.other.keys < maxForeignClaims {
		return nil
	}

	return directory.Refuse(directory.Unavailable,
		"other domains use as many Idempotency-Keys as they may together; nothing was sent; retry later or "+
			"without a key")
}

// KeepsAnswer reports whether an answer is within the shares of its caller. If it is not, the key
// stays used, without the answer.
func (c *Claims) KeepsAnswer(word *Settle) bool {
	claim := c.known[word.Key]
	if claim == nil || word.Answer == nil {
		return true
	}

	size := word.Answer.size()
	if directory.IsForeignClaimant(claim.Caller) && c.other.bytes+size > maxForeignAnswers {
		return false
	}

	return c.by[claim.Caller].bytes+size <= maxAnswersEach
}

// claim is first come, first served, as names are.
func (c *Claims) claim(wanted *Claim, now int64) (directory.Outcome, error) {
	k := &claimed{Key: wanted.Key, Caller: wanted.Caller, Body: wanted.Body, Holder: wanted.Holder,
		Until: now + int64(max(wanted.Window, wanted.Lease)), Leased: now + int64(wanted.Lease)}
	switch old := c.known[wanted.Key]; {
	case old == nil && c.by[wanted.Caller].keys >= maxClaimsEach:
		return directory.Outcome{}, directory.Refuse(directory.RateLimited,
			"you have used %d Idempotency-Keys within their window, as many as one caller may; nothing was sent: "+
				"wait for some to end", maxClaimsEach)
	case old == nil && len(c.known) >= maxClaims:
		return directory.Outcome{}, directory.Refuse(directory.Unavailable,
			"the domain keeps the maximum number of Idempotency-Keys; nothing was sent; retry later or without a key")
	case old == nil:
		c.add(k)
	case old.Released:
		// It ends no earlier than its place in the queue, so that a member with a snapshot forgets it at the same
		// entry.
		k.Until = max(k.Until, old.Until)
		c.replace(k)
	case old.Holder == wanted.Holder:
		// The same holder asks again.
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
func (c *Claims) settle(word *Settle) {
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
