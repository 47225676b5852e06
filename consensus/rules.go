package consensus

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Rules are what a domain's operator decides about names and their owners. A
// leader whose configuration has others than the domain puts its own into the
// log, so that all members judge every registration alike, and none can race
// another.
type Rules struct {
	// Hold is for how many seconds a name that was removed or has expired is for
	// its former owner alone (jimenez 7.1, AD-034); 0 frees it at once.
	Hold uint32 `cbor:"1,keyasint,omitempty"`
	// PerOwner is how many registrations one identity may own; 0 is any number.
	// Commissioning tools own what they must.
	PerOwner uint32 `cbor:"2,keyasint,omitempty"`
	// Owners are those of whom another number holds; of several the first that matches.
	Owners []OwnerRule `cbor:"3,keyasint,omitempty"`
	// BytesPerOwner bounds the documents of one identity, and OwnersBytes says of whom
	// another bound holds, as Owners does.
	BytesPerOwner uint64      `cbor:"4,keyasint,omitempty"`
	OwnersBytes   []OwnerRule `cbor:"5,keyasint,omitempty"`
	// Registrations and Bytes bound what the whole domain registers.
	Registrations uint64 `cbor:"6,keyasint,omitempty"`
	Bytes         uint64 `cbor:"7,keyasint,omitempty"`
}

// An OwnerRule is how much each of some identities may own; 0 is any amount.
type OwnerRule struct {
	Who  directory.IdentityPattern `cbor:"1,keyasint"`
	Most uint64                    `cbor:"2,keyasint"`
}

func (r *Rules) equal(o *Rules) bool {
	return r.Hold == o.Hold && r.PerOwner == o.PerOwner && r.BytesPerOwner == o.BytesPerOwner &&
		r.Registrations == o.Registrations && r.Bytes == o.Bytes &&
		slices.Equal(r.Owners, o.Owners) && slices.Equal(r.OwnersBytes, o.OwnersBytes)
}

// decree puts this leader's rules in the place of the domain's.
func (s *Store) decree(ctx context.Context) error {
	s.mu.RLock()
	same := s.state.rules.equal(&s.cfg.Rules)
	s.mu.RUnlock()
	if same {
		return nil
	}
	rules := s.cfg.Rules
	_, err := s.propose(ctx, &command{Rules: &rules})
	return err
}

// rule puts new rules in force. Names that are held stay so for as long as they
// were, unless names are not held any more.
func (s *state) rule(r *Rules) {
	s.rules = *r
	s.recountShares()
	if r.Hold == 0 {
		s.holds = newHolds()
	}
}

// maxHolds bounds how many names are held; the oldest are freed first.
const maxHolds = 100_000

// holds are the names that nobody has and that only a former owner may take.
type holds struct {
	names map[string]hold
	queue []hold // in the order in which they became free; what is not in names is done with
}

type hold struct {
	Agent    string             `cbor:"1,keyasint"`
	Owner    directory.Identity `cbor:"2,keyasint"`
	Until    int64              `cbor:"3,keyasint"` // Unix seconds of committed time
	Revision uint64             `cbor:"4,keyasint"` // of the change that freed the name
}

func newHolds() holds { return holds{names: map[string]hold{}} }

// add adds one, and lets at most two go, so that no single change pays for many.
// What it does depends on all alone, not on what the queue has besides.
func (h *holds) add(o hold, now int64) {
	h.names[o.Agent] = o
	h.queue = append(h.queue, o)
	if len(h.queue) > 2*len(h.names)+64 {
		h.queue = h.all()
	}
	for gone := 0; gone < 2; {
		oldest := h.queue[0] // o is behind it, or is it and stays
		current := h.names[oldest.Agent] == oldest
		if current {
			if oldest == o || oldest.Until > now && len(h.names) <= maxHolds {
				return
			}
			delete(h.names, oldest.Agent)
			gone++
		}
		h.queue = h.queue[1:]
	}
}

// all returns what is held, the oldest first.
func (h *holds) all() []hold {
	all := make([]hold, 0, len(h.names))
	for _, o := range h.queue {
		if h.names[o.Agent] == o {
			all = append(all, o)
		}
	}
	return all
}

// hold keeps the name of what ended at that time (Unix seconds) for its owner.
func (s *state) hold(reg *registration, at int64) {
	if s.rules.Hold > 0 {
		h := s.holdOf(reg, at)
		h.Agent = strings.Clone(h.Agent) // and not a part of the registration, which goes
		s.holds.add(h, s.now/1000)
	}
}

func (s *state) holdOf(reg *registration, at int64) hold {
	return hold{reg.entry.Agent, reg.entry.Owner, at + int64(s.rules.Hold), s.revision}
}

// vacant says whether owner may take a name that nobody has. gone is what had it
// and is past its deadline, but not swept yet; nil where there is none. Quotas are
// another question.
func (s *state) vacant(c *register, owner directory.Identity, gone *registration) error {
	h := s.holds.names[c.Agent]
	if gone != nil {
		h = s.holdOf(gone, gone.entry.ExpiresAt/1000)
	}
	if h.Until > s.now/1000 && h.Owner != owner {
		return directory.Refuse(directory.NameTaken, "Agent name '%s' is held for its former registrant until %s.",
			c.Agent, time.Unix(h.Until, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// matches is If-Match and If-None-Match of a registration, against what has the
// name: nil for none.
func (c *register) matches(old *registration) error {
	switch {
	case c.Present && old == nil:
		return directory.Refuse(directory.PreconditionFailed, "If-Match is *, and nothing is registered under the name '%s'", c.Agent)
	case c.Absent && old != nil:
		return directory.Refuse(directory.PreconditionFailed, "If-None-Match is *, and registration %s has the name '%s' already", old.entry.RID, c.Agent)
	}
	return matches(c.IfMatch, old)
}
