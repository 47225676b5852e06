package state

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// Erase takes the contents of a registration that has ended out of the history of every member.
type Erase struct {
	RID directory.RID `cbor:"1,keyasint"`
}

// An Erasure is a registration whose contents are erased. The state has all of them for good, so that a
// member that was away erases the contents, too, and no backup brings them back.
type Erasure struct {
	RID      directory.RID `cbor:"1,keyasint"`
	Revision uint64        `cbor:"2,keyasint"`
	// Origin has the operator's request. Nothing brings erased contents back, so a member that gets an erasure in a
	// snapshot judges it as it judges the command.
	Origin *Origin `cbor:"3,keyasint,omitempty"`
}

// command returns the command that made an erasure.
func (e *Erasure) command() *Command { return &Command{Erase: &Erase{e.RID}, Origin: e.Origin} }

// Erasures are the registrations whose contents are erased.
type Erasures struct {
	history *History
	regs    *registry
	owners  *Ownership

	known map[directory.RID]bool
	queue []Erasure // of known, by ascending revisions
}

// CheckErase refuses to erase the contents of a registration that has not ended.
func (e *Erasures) CheckErase(erase *Erase) error {
	if reg := e.regs.get(erase.RID); reg != nil {
		return directory.Refuse(directory.Conflict,
			"registration %s is alive: its contents can't be erased before it ends; remove it first, and then erase it",
			erase.RID)
	}

	return nil
}

// Has reports whether the contents of a registration are erased.
func (e *Erasures) Has(rid directory.RID) bool { return e.known[rid] }

// knows reports whether all erasures of an earlier state are among these.
func (e *Erasures) knows(had *Erasures) bool {
	return !slices.ContainsFunc(had.queue, func(one Erasure) bool { return !e.Has(one.RID) })
}

// hash returns the hash of all erasures; zero without any.
func (e *Erasures) hash() (sum directory.Hash) {
	if len(e.queue) == 0 {
		return sum
	}

	all := sha256.New()
	for _, one := range e.queue {
		_, _ = all.Write([]byte(one.RID.String()))
	}

	return directory.Hash(all.Sum(nil))
}

// check returns why check refuses an erasure that had does not know.
func (e *Erasures) check(had *Erasures, check func(*Command) error) error {
	for _, one := range e.queue {
		if had.Has(one.RID) {
			continue
		}

		err := errors.New("no command of an operator orders it")
		if one.Origin != nil {
			err = check(one.command())
		}

		if err != nil {
			return fmt.Errorf("the erasure of registration %s: %w", one.RID, err)
		}
	}

	return nil
}

func (e *Erasures) add(one Erasure) {
	if !e.known[one.RID] {
		e.known[one.RID] = true
		e.queue = append(e.queue, one)
	}
}

// After returns the erasures behind a revision.
func (e *Erasures) After(revision uint64) []Erasure {
	from, _ := slices.BinarySearchFunc(e.queue, revision+1, func(one Erasure, revision uint64) int {
		return cmp.Compare(one.Revision, revision)
	})

	return slices.Clip(e.queue[from:])
}

func (e *Erasures) erase(erase *Erase, origin *Origin) (directory.Outcome, error) {
	if err := e.CheckErase(erase); err != nil || e.Has(erase.RID) {
		return directory.Outcome{RID: erase.RID}, err
	}

	e.owners.former.forget(erase.RID)
	e.add(Erasure{erase.RID, e.history.next(), origin})

	return directory.Outcome{RID: erase.RID}, nil
}

// succeed takes over the erasures of a domain's state live, and ends the registrations that a backup from
// before them brings back.
func (e *Erasures) succeed(live *Erasures) {
	for _, one := range live.queue {
		e.add(one)

		if e.regs.get(one.RID) != nil {
			e.regs.remove(one.RID)
		}

		e.owners.former.forget(one.RID)
	}

	slices.SortFunc(e.queue, func(a, b Erasure) int { return cmp.Compare(a.Revision, b.Revision) })
}
