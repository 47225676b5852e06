package admission

import (
	"errors"
	"sync"
)

// firstAnswer is the first share of an answer whose length is not known.
const firstAnswer = 16 << 10

var errReleased = errors.New("the call whose answers these are has ended")

// An AnswerHold is the memory that one call takes for answers of others while they come: those of
// agents. It counts against its caller's share of the answers that are not read yet. It is safe
// for concurrent use.
type AnswerHold struct {
	pools  *Pools
	caller Caller

	mu       sync.Mutex // guards the fields below
	held     int64
	counted  int64
	released bool
	releases []func()
}

// HoldAnswers returns a hold of a caller that has nothing yet. The caller releases it.
func (p *Pools) HoldAnswers(caller Caller) *AnswerHold {
	return &AnswerHold{pools: p, caller: caller}
}

// More counts more bytes, or refuses them as Pools do. It takes the share in pieces that double,
// so that an answer that comes in small parts asks for it seldom.
func (h *AnswerHold) More(bytes int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.released {
		return errReleased
	}

	if need := h.held + bytes - h.counted; need > 0 {
		piece := max(need, h.counted, firstAnswer)

		release, err := h.pools.Take(AnswerBytesPool, h.caller, piece)
		if err != nil {
			// Doubling is for later bytes. Without room for them, those at hand may still fit.
			piece = need
			release, err = h.pools.Take(AnswerBytesPool, h.caller, piece)
		}

		if err != nil {
			return err
		}

		h.counted += piece
		h.releases = append(h.releases, release)
	}

	h.held += bytes

	return nil
}

// Release gives all of it back. To call it twice is harmless.
func (h *AnswerHold) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()

	for _, release := range h.releases {
		release()
	}

	h.releases, h.released = nil, true
}
