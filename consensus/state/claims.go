package state

import (
	"bytes"
	"cmp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// Bounds of the Idempotency-Keys of invocations that a domain keeps. Where there is
// no room a key is refused; where there is none for an answer, only that the key was
// used is kept. To forget a key within its window would have an agent act twice.
const (
	maxClaims       = 1 << 16
	maxClaimsEach   = 1 << 12 // of one caller
	maxWindow       = 24 * 3600
	maxAnswers      = 32 << 20 // bytes, of all answers
	MaxAnswer       = 64 << 10 // bytes, of one
	maxAnswerHeader = 2 << 10  // bytes of what is beside its body
)

// claim makes a request the first with its key, or finds the first one's answer. Its
// members are directory.Claim's.
type Claim struct {
	Key    directory.Hash `cbor:"1,keyasint"`
	Caller directory.Hash `cbor:"2,keyasint"`
	Body   directory.Hash `cbor:"3,keyasint"`
	Holder directory.Hash `cbor:"4,keyasint"`
	Lease  uint32         `cbor:"5,keyasint"`
	Window uint32         `cbor:"6,keyasint"`
}

// settle says what came of a claim. Its members are directory.Settlement's.
type Settle struct {
	Key     directory.Hash `cbor:"1,keyasint"`
	Holder  directory.Hash `cbor:"2,keyasint"`
	Release bool           `cbor:"3,keyasint,omitempty"`
	Answer  *Answer        `cbor:"4,keyasint,omitempty"`
}

// answer is a directory.KeptAnswer.
type Answer struct {
	Status      int               `cbor:"1,keyasint,omitempty"`
	ContentType string            `cbor:"2,keyasint,omitempty"`
	Body        []byte            `cbor:"3,keyasint,omitempty"`
	Problem     directory.Problem `cbor:"4,keyasint,omitempty"`
	Detail      string            `cbor:"5,keyasint,omitempty"`
	Pointer     string            `cbor:"6,keyasint,omitempty"`
}

func (a *Answer) size() int {
	if a == nil {
		return 0
	}
	return len(a.Body) + len(a.ContentType) + len(a.Detail) + len(a.Pointer)
}

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

func (d due) Compare(o due) int {
	if c := cmp.Compare(d.at, o.at); c != 0 {
		return c
	}
	return bytes.Compare(d.key[:], o.key[:])
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

// replace puts what became of a key that is known.
func (c *claims) replace(k *claimed) {
	c.bytes += k.Answer.size() - c.known[k.Key].Answer.size()
	c.known[k.Key] = k
}

// take adds what o has, which is newer.
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
func (s *State) claim(c *Claim) (directory.Outcome, error) {
	now := s.history.now / 1000
	k := &claimed{Key: c.Key, Caller: c.Caller, Body: c.Body, Holder: c.Holder, Until: now + int64(max(c.Window, c.Lease)), Leased: now + int64(c.Lease)}
	switch old := s.claims.known[c.Key]; {
	case old == nil && s.claims.by[c.Caller] >= maxClaimsEach:
		return directory.Outcome{}, directory.Refuse(directory.RateLimited, "you have used %d Idempotency-Keys within their window, as many as one caller may; nothing was sent: wait for some to end", maxClaimsEach)
	case old == nil && len(s.claims.known) >= maxClaims:
		return directory.Outcome{}, directory.Refuse(directory.Unavailable, "the domain keeps as many Idempotency-Keys as it can; nothing was sent: try without one, or later")
	case old == nil:
		s.claims.add(k)
	case old.Released:
		k.Until = max(k.Until, old.Until) // where it is queued, which no snapshot tells
		s.claims.replace(k)
	case old.Holder == c.Holder: // by whom it is held already
	case old.Body != c.Body:
		return directory.Outcome{}, directory.Refuse(directory.KeyReused, "the Idempotency-Key was used for another request before; use a new key for a new request")
	case old.Answer != nil:
		return directory.Outcome{Kept: (*directory.KeptAnswer)(old.Answer)}, nil
	case old.Settled:
		return directory.Outcome{}, directory.Refuse(directory.KeySpent, "the agent was invoked with this Idempotency-Key, and its answer is not kept: it was a stream, or large, or did not come; nothing was sent again")
	case old.Leased <= now:
		return directory.Outcome{}, directory.Refuse(directory.KeySpent, "the node that invoked the agent with this Idempotency-Key was lost before it told what came of it; the agent may have acted: nothing was sent again")
	default:
		return directory.Outcome{}, directory.Refuse(directory.KeyInUse, "the first request with this Idempotency-Key is under way; nothing was sent again: repeat this later")
	}
	return directory.Outcome{}, nil
}

// settle takes the first word of whoever holds the claim.
func (s *State) settle(c *Settle) {
	old := s.claims.known[c.Key]
	if old == nil || old.Holder != c.Holder || old.Settled || old.Released {
		return
	}
	k := *old
	k.Settled, k.Released = !c.Release, c.Release
	if s.claims.bytes+c.Answer.size() <= maxAnswers {
		k.Answer = c.Answer
	}
	s.claims.replace(&k)
}

func (c *Claim) Check() error {
	if c.Window == 0 || c.Window > maxWindow || c.Lease == 0 || c.Lease > 2*maxWindow {
		return directory.Refuse(directory.BadRequest, "an Idempotency-Key is kept for 1 to %d seconds", maxWindow)
	}
	return nil
}

func (c *Settle) Check() error {
	if c.Answer != nil && (len(c.Answer.Body) > MaxAnswer || c.Answer.size()-len(c.Answer.Body) > maxAnswerHeader) {
		return directory.Refuse(directory.TooLarge, "an answer to an Idempotency-Key is kept up to %d bytes", MaxAnswer)
	}
	return nil
}
