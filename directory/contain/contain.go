// Package contain limits the harm of a panic on foreign bytes to the item that caused it.
// Without it, one record of one peer that triggers a defect in this program would end every
// node that reads it, and again at each start.
//
// Only work on one item from outside is contained: a record, an indexed entry, a message.
// Applying the domain's own log is not contained, because members that continue with different
// states are worse than members that stop.
package contain

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
)

// A Place is where panics are contained.
type Place string

// The places. Metrics have one series for each from the beginning.
const (
	Record    Place = "record"    // opening a record that came from another node
	Stored    Place = "stored"    // opening a record from disk
	Policy    Place = "policy"    // judging an entry by an import policy
	Index     Place = "index"     // entering an entry into the index of its origin
	Page      Place = "page"      // the gate for a page, and applying it
	Head      Place = "head"      // the gate for a head
	Keys      Place = "keys"      // a key document
	Evidence  Place = "evidence"  // judging evidence
	Gossip    Place = "gossip"    // a gossiped packet, and memberlist's callbacks
	Request   Place = "request"   // a request of another node
	Discovery Place = "discovery" // entering an entry into the discovery index
	Listing   Place = "listing"   // writing an entry into the answer to a lookup
	Answer    Place = "answer"    // the answer of an agent, a source or another node
	Ledger    Place = "ledger"    // another domain's ledger, or the cosignature of a witness
	Bundle    Place = "bundle"    // a peer's trust bundle
)

// Places lists them.
var Places = []Place{Record, Stored, Policy, Index, Page, Head, Keys, Evidence, Gossip, Request, Discovery, Listing,
	Answer, Ledger, Bundle}

// Bounds on logging.
const (
	maxLogged = 64       // distinct causes
	maxStack  = 16 << 10 // bytes of a stack
)

// Panics counts contained panics, and logs each distinct cause once. The zero value
// logs to slog.Default, and a nil one contains and counts nothing. It is safe for
// concurrent use.
type Panics struct {
	logger *slog.Logger
	counts [16]atomic.Uint64 // by index in Places

	mu     sync.Mutex // guards logged
	logged map[cause]bool
}

// A cause is where in the program something panics, at the work of a place.
type cause struct {
	place Place
	file  string
	line  int
}

// New returns a counter that logs to a logger.
func New(logger *slog.Logger) *Panics { return &Panics{logger: logger} }

// An Error says that work on an item panicked.
type Error struct {
	Place Place
	Value string // of the panic, cut off
}

func (e *Error) Error() string {
	return fmt.Sprintf("contained a panic in %s: %s", e.Place, e.Value)
}

// Run runs f and returns its error, or an *Error if f panics.
func (p *Panics) Run(place Place, f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			// Without a counter, the panic is contained and logged all the same.
			p = cmp.Or(p, &Panics{})

			err = p.note(place, value)
		}
	}()

	return f()
}

// Do runs f, and reports whether it returned.
func (p *Panics) Do(place Place, f func()) (returned bool) {
	err := p.Run(place, func() error {
		f()
		return nil
	})

	return err == nil
}

// Count returns how many panics were contained at a place.
func (p *Panics) Count(place Place) uint64 {
	for i, known := range Places {
		if known == place {
			return p.counts[i].Load()
		}
	}

	return 0
}

// note counts a panic. It is called by the deferred function of Run, so the stack is
// still that of the panic.
func (p *Panics) note(place Place, value any) *Error {
	for i, known := range Places {
		if known == place {
			p.counts[i].Add(1)
		}
	}

	contained := &Error{Place: place, Value: fmt.Sprintf("%.200v", value)}

	if p.first(causeOf(place)) {
		logger := p.logger
		logger = cmp.Or(logger, slog.Default())

		stack := debug.Stack()
		logger.Error("contained a panic on foreign bytes; the item is left out and the node continues",
			"where", string(place), "panic", contained.Value, "stack", string(stack[:min(len(stack), maxStack)]))
	}

	return contained
}

// first reports whether a cause was not logged yet, and there is room to remember it.
func (p *Panics) first(c cause) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	// A peer can provoke panics at many places, so the number of logged ones is bounded.
	if p.logged[c] || len(p.logged) == maxLogged {
		return false
	}

	if p.logged == nil {
		p.logged = map[cause]bool{}
	}

	p.logged[c] = true

	return true
}

// causeOf finds the line that panicked: the first behind those of the runtime.
func causeOf(place Place) cause {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])

	panicking := false
	for {
		frame, more := frames.Next()

		inRuntime := strings.HasPrefix(frame.Function, "runtime.")
		if panicking && !inRuntime || !more {
			return cause{place: place, file: frame.File, line: frame.Line}
		}

		panicking = panicking || frame.Function == "runtime.gopanic"
	}
}
