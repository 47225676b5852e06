package peering

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// Bounds of a change of an agreement.
const (
	amendAtMost = 5               // attempts when concurrent changes precede it
	readTime    = 5 * time.Second // for the current agreements, as long as a write waits for a leader
	readPause   = 50 * time.Millisecond
)

// A Consensus has the domain's agreements.
type Consensus interface {
	// Settled reports whether this node has read the domain's log to its end.
	Settled() bool
	// Peerings returns the agreements that this node has read, sorted by domain.
	Peerings() []directory.Peering
	// Agreed returns a channel that is closed at the next change.
	Agreed() <-chan struct{}
	// Linearize returns nil once this node has read all that was acknowledged.
	Linearize(ctx context.Context) error
	// AmendPeering replaces was by peering; it fails with directory.Conflict if the domain
	// has another agreement than was.
	AmendPeering(ctx context.Context, was, peering directory.Peering) error
	// EndPeering is AmendPeering by a farewell: the request of the peer's operator.
	EndPeering(ctx context.Context, was, peering directory.Peering, farewell *directory.OperatorRequest) error
}

// Bundles are the trust bundles in force on this node.
type Bundles interface {
	Set(td spiffeid.TrustDomain, bundle []byte) error
	Remove(td spiffeid.TrustDomain)
}

// A Config has the parts of the node that agreements need.
type Config struct {
	Dir     string // of the agreements on disk
	Bundles Bundles
	// Client returns a client for the nodes of a former peer, which presents this node's SVID.
	Client func(former directory.Peering) (client *http.Client, done func(), err error)
	// Removal returns the request by which an operator has ended the peering with a domain; nil if it is not
	// known here.
	Removal func(spiffeid.TrustDomain) *directory.OperatorRequest
	// Proven reports whether a peer's bundle, as the domain has it, may be in force although this node had another.
	Proven func(peer spiffeid.TrustDomain, bundle []byte) bool
	// Judge has a bundle confirmed at its endpoint that waits for that. It must not block. Confirm ends the wait.
	Judge func(change *directory.BundleChange)
	// Changed is called after an agreement has changed.
	Changed func()
	// ReplaceFile writes a file so that a reader sees either the old or the new contents.
	ReplaceFile func(path string, contents []byte, mode fs.FileMode) error
	Logger      *slog.Logger
}

// Agreements are those of the domain with its peers, as this node knows and changes them.
type Agreements struct {
	cfg   Config
	last  []directory.Peering // of the last run; not changed after Load
	store Consensus           // set before Run

	recheck chan struct{} // a bundle was confirmed

	mu      sync.Mutex                         // guards the fields below
	ended   map[spiffeid.TrustDomain]time.Time // until when former peers are shown
	inForce map[spiffeid.TrustDomain]directory.Peering
	held    map[spiffeid.TrustDomain]*directory.BundleChange
}

// Load returns the agreements of the node's last run, with the bundles of the peers in force.
// Begin must be called before any other method.
func Load(cfg Config) (*Agreements, error) {
	a := &Agreements{
		cfg: cfg, recheck: make(chan struct{}, 1),
		ended:   map[spiffeid.TrustDomain]time.Time{},
		inForce: map[spiffeid.TrustDomain]directory.Peering{},
		held:    map[spiffeid.TrustDomain]*directory.BundleChange{},
	}

	return a, a.load()
}

// Begin connects the agreements to the domain's consensus.
func (a *Agreements) Begin(store Consensus) { a.store = store }

// Run follows the domain's agreements until ctx ends.
func (a *Agreements) Run(ctx context.Context) {
	known := map[spiffeid.TrustDomain]directory.Peering{}

	var farewells sync.WaitGroup
	defer farewells.Wait()

	for {
		// Taken before the list is read, so that no change is missed.
		agreed := a.store.Agreed()
		changed := false

		for _, peering := range a.List() {
			if peering.Equal(known[peering.Domain]) {
				continue
			}

			changed = true

			left := a.keep(peering)
			a.noteEnd(peering, left)

			// A peer that has ended the agreement itself needs no farewell.
			if left && !peering.ByPeer {
				farewells.Go(func() {
					if a.sayFarewell(ctx, peering) {
						a.acknowledge(peering.Domain)
					}
				})
			}

			known[peering.Domain] = peering

			// An agreement whose bundle waits is looked at again, also if the domain returns to the one before.
			if a.isHeld(peering.Domain) {
				delete(known, peering.Domain)
			}
		}

		if changed {
			a.cfg.Changed()
		}

		select {
		case <-ctx.Done():
			return
		case <-agreed:
		case <-a.recheck:
		}
	}
}

// List returns the domain's agreements. Until the node has read its domain's log to the
// end it returns those of its last run: an agreement that ended once and was made again
// would otherwise count as ended for a while, and the peer's records would be dropped.
func (a *Agreements) List() []directory.Peering {
	if !a.store.Settled() {
		return a.last
	}

	return a.store.Peerings()
}

// endedFor is the time for which a former peer is shown that has ended the agreement, or that
// has not acknowledged its end.
const endedFor = 24 * time.Hour

// noteEnd begins the time for which a former peer is shown, if the agreement has ended now. One
// that had ended before this node started is not shown.
func (a *Agreements) noteEnd(peering directory.Peering, now bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	switch {
	case peering.State != directory.PeeringTerminated:
		delete(a.ended, peering.Domain)
	case now:
		a.ended[peering.Domain] = time.Now().Add(endedFor)
	default:
		a.ended[peering.Domain] = time.Time{}
	}
}

// acknowledge ends the time for which a former peer is shown.
func (a *Agreements) acknowledge(td spiffeid.TrustDomain) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if _, ended := a.ended[td]; ended {
		a.ended[td] = time.Time{}
	}
}

// Shown returns the agreements that this node has read, sorted by domain, for operators. One
// that has ended is shown until the former peer has acknowledged that, and for a day at most.
func (a *Agreements) Shown() []directory.Peering {
	a.mu.Lock()
	defer a.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(a.store.Peerings()), func(p directory.Peering) bool {
		until, ended := a.ended[p.Domain]

		return ended && p.State == directory.PeeringTerminated && !time.Now().Before(until)
	})
}

// With returns the current agreement with a domain; ok is false if there is none.
func (a *Agreements) With(td spiffeid.TrustDomain) (peering directory.Peering, ok bool) {
	all := a.store.Peerings()

	i := slices.IndexFunc(all, func(p directory.Peering) bool { return p.Domain == td })
	if i < 0 {
		return directory.Peering{}, false
	}

	return all[i], true
}

// IsActive reports whether a domain is an active peer.
func (a *Agreements) IsActive(td spiffeid.TrustDomain) bool {
	return slices.ContainsFunc(a.List(), func(p directory.Peering) bool {
		return p.Domain == td && p.State == directory.PeeringActive
	})
}

// ExportsTo reports whether the operator exports mesh registrations to a peer.
func (a *Agreements) ExportsTo(td spiffeid.TrustDomain) bool {
	return slices.ContainsFunc(a.List(), func(p directory.Peering) bool {
		return p.Domain == td && p.State == directory.PeeringActive && p.Mesh
	})
}

// Service returns the public URL of another domain's directory; empty if no agreement names
// it.
func (a *Agreements) Service(td spiffeid.TrustDomain) string {
	for _, p := range a.List() {
		if p.Domain == td && len(p.Addresses) > 0 {
			return p.Addresses[0]
		}
	}

	return ""
}

// seedsOfPeer bounds the seeds of one peer. One reachable seed announces the others.
const seedsOfPeer = 8

// Seeds returns addresses of active peers at which the mesh can be joined.
func (a *Agreements) Seeds() (seeds []string) {
	for _, p := range a.List() {
		if p.State == directory.PeeringActive {
			seeds = append(seeds, p.Gossip[:min(len(p.Gossip), seedsOfPeer)]...)
		}
	}

	return seeds
}

// Invite makes a domain a pending peer until the time at which its invitation ends. secret is
// the hash of the invitation's secret. An earlier invitation of that domain becomes invalid.
func (a *Agreements) Invite(ctx context.Context, td spiffeid.TrustDomain, secret directory.Hash,
	until time.Time) error {
	return a.amend(ctx, td, func(peering *directory.Peering, _ bool) error {
		if err := noPeerYet(peering); err != nil {
			return err
		}

		*peering = directory.Peering{Domain: td, State: directory.PeeringPending, Secret: secret, Until: until.Unix()}

		return nil
	})
}

// A RefusedError is a node's answer that it doesn't accept an offer.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the answer.
func (e *RefusedError) Unwrap() error { return e.Err }

// Accept makes the domain of an invitation a peer. The agreement is pending until that domain
// has accepted the offer, and active afterwards. offer presents the secret; it returns that
// domain as it describes itself, or a *RefusedError if it refuses.
func (a *Agreements) Accept(ctx context.Context, invited directory.Peering,
	offer func(context.Context) (directory.Peering, error)) error {
	err := a.amend(ctx, invited.Domain, func(now *directory.Peering, _ bool) error {
		if err := noPeerYet(now); err != nil {
			return err
		}

		*now = invited

		return nil
	})
	if err != nil {
		return err
	}

	pending, name := invited, invited.Domain.Name()
	settled := byPeersWord(ctx)

	var refused *RefusedError

	described, err := offer(ctx)
	switch {
	case errors.As(err, &refused):
		invited.State = directory.PeeringTerminated

		return errors.Join(directory.Refuse(directory.Conflict, "%s refuses: %w", name, err),
			a.store.AmendPeering(settled, pending, invited))
	case err != nil:
		// The agreement stays pending, because the other domain may have accepted although its answer was lost.
		return directory.Refuse(problem.Upstream,
			"no node of %s confirmed the invitation, so the peering is pending here; accept it again "+
				"once one is reachable: %w", name, err)
	}

	described.State = directory.PeeringActive

	return a.store.AmendPeering(settled, pending, described)
}

// byPeersWord returns the context of a change that follows from the other domain's answer to an acceptance,
// which has used the operator's proof up.
func byPeersWord(ctx context.Context) context.Context { return directory.WithOperatorRequest(ctx, nil) }

// Renew replaces the agreement with an active peer, which has ended it and invited this domain anew, by that of
// the invitation: nothing is exported, and no rules apply. described is the peer as it answered the offer.
func (a *Agreements) Renew(ctx context.Context, invited, described directory.Peering) error {
	err := a.amend(ctx, invited.Domain, func(now *directory.Peering, _ bool) error {
		// The peer may have been frozen or removed while it was asked, and it chooses how long that takes.
		if now.State != directory.PeeringActive && !now.Equal(invited) {
			return directory.Refuse(directory.Conflict, "the peering with %s is %s by now; nothing was changed",
				invited.Domain.Name(), now.State)
		}

		*now = invited

		return nil
	})
	if err != nil {
		return err
	}

	described.State = directory.PeeringActive

	return a.store.AmendPeering(byPeersWord(ctx), invited, described)
}

func noPeerYet(p *directory.Peering) error {
	if p.State == directory.PeeringActive || p.State == directory.PeeringFrozen {
		name := p.Domain.Name()

		return directory.Refuse(directory.Conflict, "%s is a peer already (%s); remove it first, or replace its "+
			"authority with: roster peer set %s --peer-bundle FILE", name, p.State, name)
	}

	return nil
}

// Put replaces the agreement with a domain, but for its rules.
func (a *Agreements) Put(ctx context.Context, next directory.Peering) error {
	return a.amend(ctx, next.Domain, func(peering *directory.Peering, _ bool) error {
		*peering = next.Replacing(*peering)

		return nil
	})
}

// Set changes an agreement that has not ended.
func (a *Agreements) Set(ctx context.Context, td spiffeid.TrustDomain, change func(*directory.Peering)) error {
	return a.amend(ctx, td, func(peering *directory.Peering, known bool) error {
		if !known || peering.State == directory.PeeringTerminated {
			return noPeer(td)
		}

		change(peering)

		return nil
	})
}

// Export starts or stops the export of mesh registrations to a peer.
func (a *Agreements) Export(ctx context.Context, td spiffeid.TrustDomain, on bool) error {
	return a.Set(ctx, td, func(peering *directory.Peering) { peering.Mesh = on })
}

// Freeze freezes an active peer, against which there is evidence.
func (a *Agreements) Freeze(ctx context.Context, td spiffeid.TrustDomain) error {
	return a.amend(ctx, td, func(peering *directory.Peering, _ bool) error {
		if peering.State == directory.PeeringActive {
			peering.State = directory.PeeringFrozen
		}

		return nil
	})
}

// Release makes a frozen peer active again.
func (a *Agreements) Release(ctx context.Context, td spiffeid.TrustDomain) error {
	return a.amend(ctx, td, func(peering *directory.Peering, known bool) error {
		switch {
		case !known || peering.State == directory.PeeringTerminated:
			return noPeer(td)
		case peering.State != directory.PeeringFrozen:
			return directory.Refuse(directory.Conflict, "%s is %s; only a frozen peer is released", td.Name(),
				peering.State)
		}

		peering.State = directory.PeeringActive

		return nil
	})
}

// Remove ends the agreement with a domain.
func (a *Agreements) Remove(ctx context.Context, td spiffeid.TrustDomain) error {
	return a.amend(ctx, td, func(peering *directory.Peering, known bool) error {
		if !known {
			return noPeer(td)
		}

		*peering = peering.Removed()

		return nil
	})
}

// EndedByPeer records a peer's statement that it has ended the agreement, which the request of its operator
// shows.
func (a *Agreements) EndedByPeer(ctx context.Context, td spiffeid.TrustDomain,
	farewell *directory.OperatorRequest) error {
	put := func(ctx context.Context, was, peering directory.Peering) error {
		return a.store.EndPeering(ctx, was, peering, farewell)
	}

	return a.amendBy(ctx, td, put, func(peering *directory.Peering, _ bool) error {
		if peering.State != directory.PeeringActive && peering.State != directory.PeeringFrozen {
			return nil
		}

		*peering = peering.Ended(true)

		return nil
	})
}

func noPeer(td spiffeid.TrustDomain) error {
	return directory.Refuse(directory.NotFound, "%s is no peer of this domain", td.Name())
}

// amend applies f to the current agreement with a domain, at any node. It retries after a
// concurrent change, so that no change is lost.
func (a *Agreements) amend(ctx context.Context, td spiffeid.TrustDomain,
	f func(peering *directory.Peering, known bool) error) error {
	return a.amendBy(ctx, td, a.store.AmendPeering, f)
}

// amendBy is amend by another method of the consensus.
func (a *Agreements) amendBy(ctx context.Context, td spiffeid.TrustDomain,
	put func(ctx context.Context, was, peering directory.Peering) error,
	f func(peering *directory.Peering, known bool) error) error {
	for try := 1; ; try++ {
		if err := a.await(ctx); err != nil {
			return err
		}

		was, known := a.With(td)
		was.Domain = td

		peering := was
		if err := f(&peering, known); err != nil || peering.Equal(was) {
			return err
		}

		err := put(ctx, was, peering)
		if directory.ProblemOf(err) != directory.Conflict || try == amendAtMost {
			return err
		}
	}
}

// await waits until this node shows all agreements that the domain acknowledged. A read fails
// as soon as no leader is known; a change waits for one.
func (a *Agreements) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()

	for {
		err := a.store.Linearize(ctx)
		if directory.ProblemOf(err) != directory.Unavailable {
			return err
		}

		select {
		case <-time.After(readPause):
		case <-ctx.Done():
			return err
		}
	}
}
