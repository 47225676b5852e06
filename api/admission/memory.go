package admission

import (
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of the memory that answers hold until their clients have read them. A page of
// large registrations has megabytes, may be requested hundreds of times a second, and
// may be read over minutes.
const (
	maxUnread  = 256 << 20 // bytes, of all callers
	perUnread  = 16 << 10  // that each answer takes beside its body
	SmallBody  = 4 << 10   // net/http buffers as much, whether the client reads or not
	unreadPart = 4         // a caller gets at most this fraction of the free memory
)

// AnswerMemory counts the bytes of answers that clients have not read yet. It is safe
// for concurrent use.
type AnswerMemory struct {
	own   spiffeid.TrustDomain
	total int

	mu   sync.Mutex // guards the fields below
	held int
	by   map[string]int // by party
}

// NewAnswerMemory returns the memory of a node of a domain. With total 0 it has the
// default size, 256 MiB.
func NewAnswerMemory(own spiffeid.TrustDomain, total int) *AnswerMemory {
	if total == 0 {
		total = maxUnread
	}

	return &AnswerMemory{own: own, total: total, by: map[string]int{}}
}

// Hold counts the bytes of a body for a caller until release is called, or refuses
// them. A caller gets at most a quarter of the free memory: so one caller holds at most
// a fifth of the total, and many callers who read nothing leave some for the next.
func (m *AnswerMemory) Hold(caller Caller, body int) (release func(), err error) {
	if body <= SmallBody {
		return func() {}, nil
	}

	party := caller.Party(m.own)
	size := body + perUnread

	m.mu.Lock()
	defer m.mu.Unlock()

	switch {
	case m.by[party]+size <= (m.total-m.held)/unreadPart:
	case m.by[party] > 0:
		return nil, directory.Refuse(directory.RateLimited,
			"You have not read %d KiB of earlier answers yet. Read them first.", m.by[party]>>10)
	default:
		return nil, directory.Refuse(directory.Unavailable,
			"This node has no memory left for answers that clients are slow to read. Try again, or ask another node.")
	}

	m.held += size
	m.by[party] += size

	return func() { m.release(party, size) }, nil
}

func (m *AnswerMemory) release(party string, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.held -= size
	if m.by[party] -= size; m.by[party] == 0 {
		delete(m.by, party)
	}
}
