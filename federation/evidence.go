package federation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	errNoCase = errors.New("no evidence against a peer of this domain")
)

// file returns a file that Evidence lists, the oldest if id is empty. The error is
// directory.NotFound if there is none.
func (pr *prosecutor) file(td spiffeid.TrustDomain, id string) ([]byte, error) {
	all := pr.cases.Files(td)
	switch {
	case len(all) == 0:
		return nil, directory.Refuse(directory.NotFound, "this node has no evidence against %s", td.Name())
	case id == "":
		id = all[0].ID
	case !slices.ContainsFunc(all, func(f evidence.File) bool { return f.ID == id }):
		return nil, directory.Refuse(directory.NotFound, "this node has no evidence %.40q against %s", id, td.Name())
	}

	return pr.cases.Read(td, id)
}

// accuse makes evidence of an origin's contradictory structures, and reports whether it
// convicts the origin. Invalid evidence is logged and has no other effect.
func (pr *prosecutor) accuse(origin *replica.Origin, parts, keys []string) bool {
	var (
		fresh    bool
		evidence []byte
	)

	err := pr.cfg.Panics.Run(contain.Evidence, func() (err error) {
		evidence, err = pr.cfg.Verifier.Accuse(origin.Domain, parts, keys)
		return err
	})
	if err == nil {
		fresh, err = pr.convict(evidence, true)
	}

	if err != nil && pr.refusals.Lines.Allow(protocol.CodeEquivocation, origin.Domain) {
		pr.cfg.Logger.Warn("two statements of an origin differ, but don't convict it", "origin", origin.Domain.Name(),
			"err", err)
	}

	return fresh
}

// Contradicts accuses a peer of two checkpoints of its ledger, which it has signed: they have one size and
// two roots.
func (m *Mesh) Contradicts(peer spiffeid.TrustDomain, one, other string) {
	if origin := m.origins.Get(peer); origin != nil {
		m.evidence.accuse(origin, []string{one, other}, origin.Keys.Issued())
	}
}

// convict judges evidence, which is news or was read from disk. If it is valid and not known,
// this node freezes the origin at once, and enforce passes it to the domain and the mesh.
func (pr *prosecutor) convict(evidence []byte, news bool) (fresh bool, err error) {
	err = pr.cfg.Panics.Run(contain.Evidence, func() (err error) {
		fresh, err = pr.judgeEvidence(evidence, news)
		return err
	})

	return fresh, err
}

func (pr *prosecutor) judgeEvidence(evidence []byte, news bool) (fresh bool, err error) {
	conviction, err := pr.cfg.Verifier.Judge(evidence, news)
	if err != nil {
		return false, err
	}

	origin := pr.origins.Get(conviction.Origin)
	if origin == nil {
		return false, errNoCase
	}

	if state := origin.Peering.Load().State; origin.HasEnded() ||
		state != directory.PeeringActive && state != directory.PeeringFrozen {
		return false, errNoCase
	}

	// The file comes before the freeze, which is resumed from it after a stop.
	if fresh, err = pr.cases.Add(conviction, evidence, news && origin.IsFrozen()); !fresh || err != nil {
		return false, err
	}

	origin.SetConvicted(true)
	pr.noteFrozen()
	origin.Counted(protocol.CodeEquivocation)
	pr.cfg.Logger.Error("a peer contradicted itself and is frozen; the evidence is stored", "peer",
		origin.Domain.Name(), "evidence", conviction.ID)

	return true, nil
}

// noteFrozen updates the result of Frozen.
func (pr *prosecutor) noteFrozen() {
	pr.freezing.Lock()
	defer pr.freezing.Unlock()

	var all []spiffeid.TrustDomain
	for _, origin := range pr.origins.All() {
		if origin.IsFrozen() {
			all = append(all, origin.Domain)
		}
	}

	pr.frozen.Store(&all)
}

// resume continues the cases that were pending when the node stopped. They were judged
// before, and their files exist. An unfinished case would freeze the origin again after a
// release.
func (pr *prosecutor) resume(pending [][]byte) {
	for _, evidence := range pending {
		if _, err := pr.convict(evidence, false); err != nil {
			pr.cfg.Logger.Warn("stored evidence is no longer valid", "err", err)
		}
	}
}

// recall freezes a domain that became a peer again, if earlier evidence still convicts it. A
// domain thus can't escape evidence by ending its peering and starting a new one. It needs
// the domain's current key document.
func (pr *prosecutor) recall(origin *replica.Origin) {
	if !origin.Again.Swap(false) {
		return
	}

	for _, file := range pr.cases.Files(origin.Domain) {
		evidence, err := pr.file(origin.Domain, file.ID)
		if err == nil && !pr.judged(evidence) {
			continue
		}

		if err == nil {
			err = pr.cases.Reopen(origin.Domain, file.ID)
		}

		if err == nil {
			_, err = pr.convict(evidence, false)
		}

		if err != nil {
			pr.cfg.Logger.Error("reading earlier evidence failed", "peer", origin.Domain.Name(), "evidence", file.ID,
				"err", err)
		}
	}
}

// freezeTime bounds one attempt to have the domain act.
const freezeTime = 10 * time.Second

// enforce makes the domain freeze convicted origins and sends evidence to other nodes, until
// ctx ends.
func (pr *prosecutor) enforce(ctx context.Context) {
	var tellers sync.WaitGroup
	defer tellers.Wait()

	b := newBackoff()
	for {
		left := false
		for _, pending := range pr.cases.Pending() {
			// Sent before the domain has acted, because that may have to be retried for long.
			if !pending.Shown {
				pending.Shown = true
				for _, n := range pr.toTell(pending.Conviction) {
					tellers.Go(func() { pr.tell(ctx, pending, n) })
				}
			}

			if err := pr.freeze(ctx, pending); err != nil {
				left = true
				pr.cfg.Logger.Warn("a peer is frozen on this node but not yet in the domain; retrying", "peer",
					pending.Origin.Name(), "err", err)
			}
		}

		pause := time.Duration(0)
		if left {
			pause = b.NextBackOff()
		} else {
			b.Reset()
		}

		if !wait(ctx, pr.cases.News, pause) {
			return
		}
	}
}

func (pr *prosecutor) freeze(ctx context.Context, pending *evidence.Pending) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()

	if err := pr.cfg.Verifier.Freeze(ctx, pending.Origin); err != nil {
		return err
	}

	return pr.cases.Settle(pending)
}

// A prosecutor makes, judges, stores and sends evidence.
type prosecutor struct {
	cfg      *Config
	cases    *evidence.Store
	client   *protocol.Client
	origins  *replica.Set
	peers    peers
	refusals *replica.RefusalLog

	freezing sync.Mutex // held while frozen is made
	frozen   atomic.Pointer[[]spiffeid.TrustDomain]
}
