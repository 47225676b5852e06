package replica

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// An Origin is another domain as this node follows it.
type Origin struct {
	Deps
	Domain   spiffeid.TrustDomain
	Peering  *atomic.Pointer[directory.Peering] // as agreed; never nil
	base     directory.Clock                    // its messages are judged by it, and don't move it
	Streams  *streams
	Contacts *contacts
	Answers  *answers
	Theirs   *standings
	Keys     *keyHistory
	Mailbox  mailbox
	Loops    loops
	Ask      chan struct{} // a reader waits for a head
	Pull     chan struct{} // something may be missing

	// summary is the part that readers see of the fields that mu guards; never nil.
	summary atomic.Pointer[summary]

	Announced *rate.Limiter // digests; not guarded, as the next
	repulls   *rate.Limiter // searches for pages signed by revoked keys

	Mu        guard        // guards the fields below; taken before streams.mu, not held over disk I/O
	Again     bool         // it may have been a peer before: evidence of that time isn't judged yet
	Convicted bool         // frozen at this node; the domain hasn't done it yet
	Unlisted  bool         // its newest key document doesn't list this domain for its mesh stream
	head      *signed.Head // the newest verified one
	HeadText  string
	HeadIs    time.Time          // when it was issued, by the origin's clock
	pageIs    time.Time          // when the newest applied page was issued, likewise
	PassedOn  directory.Position // how far pages of the origin were gossiped on by this node
	heard     time.Time          // when anything verified last came
	LastErr   string
	unread    unsupported
}

func New(td spiffeid.TrustDomain, index *index.Index, shared Deps) *Origin {
	peering := &atomic.Pointer[directory.Peering]{}
	peering.Store(&directory.Peering{})

	origin := &Origin{
		Deps:      shared,
		Domain:    td,
		Peering:   peering,
		Streams:   newStreams(td, index, peering, shared),
		Answers:   &answers{},
		Theirs:    &standings{},
		Keys:      &keyHistory{},
		Mailbox:   mailbox{Queue: make(chan Pushed, 8)},
		Ask:       make(chan struct{}, 1),
		Pull:      make(chan struct{}, 1),
		Announced: rate.NewLimiter(originRate, OriginBurst),
		repulls:   rate.NewLimiter(rate.Every(RepullEvery), RepullBurst),
		Contacts: &contacts{
			domain:    td,
			audiences: [2]directory.Audience{directory.Mesh, directory.Only(shared.Cfg.Domain)},
			peering:   peering,
			Issuing:   rate.NewLimiter(rate.Every(KeysEvery), IssueBurst),
			Following: make(chan struct{}, 1),
			turns:     map[directory.Audience]turn{},
		},
	}
	origin.base.Checked = index.Clock.Checked
	origin.base.Advance(index.Clock.Checked.Now()) // from here on a step of the wall clock back is not seen
	origin.Mu.publish = origin.publish
	origin.publish()

	return origin
}

// A mailbox holds gossiped messages of an origin.
type mailbox struct {
	Queue chan Pushed // dropped when full: a pull brings the same
	Late  []Pushed    // wait for the key document; tend's own
}

// loops are the goroutines that follow an origin.
type loops struct {
	Stop     context.CancelFunc // nil if none were started
	Done     chan struct{}      // closed when they have ended
	Removing atomic.Bool        // the origin is being removed from disk
}

// Running reports whether the loops of an origin were started and haven't ended.
func (lp *loops) Running() bool {
	if lp.Stop == nil {
		return false
	}

	select {
	case <-lp.Done:
		return false
	default:
		return true
	}
}

// Halt asks the loops of an origin to end, and reports whether they have ended.
func (lp *loops) Halt() bool {
	if lp.Stop != nil {
		lp.Stop()
	}

	return !lp.Running()
}

// Wait ends the loops of an origin and waits for them.
func (lp *loops) Wait() {
	if !lp.Halt() {
		<-lp.Done
	}
}

// Accepts reports whether messages of this origin are taken at all.
func (o *Origin) Accepts() bool {
	return o.Peering.Load().State == directory.PeeringActive && !o.Streams.HasEnded() && !o.summary.Load().convicted
}

// Saved returns the state of the origin that is kept on disk, with rule T4's floor. The
// caller holds Change.
func (o *Origin) Saved(floor time.Time) store.Origin {
	o.Mu.Lock()
	defer o.Mu.Unlock()

	st := store.Origin{Floor: floor.UnixMilli(), Head: o.HeadText, Keys: o.Keys.NewestText()}
	st.Epoch = o.Streams.shownEpoch()

	return st
}

// heardPage records that a page was applied.
func (o *Origin) heardPage(page *Page) {
	o.Mu.Lock()
	defer o.Mu.Unlock()

	o.pageIs = later(o.pageIs, time.Unix(page.IssuedAt, 0)) // a relay's may be older than the newest
	o.heard = time.Now()
	o.LastErr = ""
	o.unread.page = nil
}

// Failed records an error of a node and selects the origin's next node.
func (o *Origin) Failed(f *Feed, node protocol.Node, err error) {
	o.Complain(err)
	o.Contacts.failed(f.Aud, node)
}

// Complain records an error after which the origin's loops continue.
func (o *Origin) Complain(err error) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	o.LastErr = err.Error()
}

// hear records the arrival of a verified message.
func (o *Origin) hear() {
	o.Mu.Lock()
	defer o.Mu.Unlock()

	o.heard = time.Now()
}

// Admit is the rest of the gate, after the signature: rate, epoch and time. A message from
// the future is detected by a clock that the origin's own messages don't advance. Otherwise
// a thief of a key could advance the clock page by page, and all of the origin's
// registrations would appear expired.
func (o *Origin) Admit(claim Claim) error {
	now := o.base.Now()
	o.witness(claim)

	cost := float64(claim.Digests)
	switch {
	case cost > 0 && o.Announced.TokensAt(time.Now()) < cost:
		return &protocol.Refusal{Code: protocol.CodeQuota, Origin: claim.Issuer, Err: errQuota}
	case claim.Epoch < o.Streams.newestEpoch(claim.Aud):
		return &protocol.Refusal{Code: protocol.CodeEpochOld, Origin: claim.Issuer, Err: errEpoch}
	case claim.IssuedAt > now.Add(future).Unix(), claim.Epoch > uint64(now.Add(future).Unix()):
		return &protocol.Refusal{Code: protocol.CodeFuture, Origin: claim.Issuer, Err: errFuture}
	}

	// The origin's own word on the time counts from here on (rule T4).
	o.Streams.Shown.Index.Clock.Advance(time.Unix(claim.IssuedAt, 0))

	return nil
}

// witness lets an origin's newest word on the time confirm a step of this machine's clock (rule T2).
func (o *Origin) witness(claim Claim) {
	o.Mu.Lock()
	newest := claim.IssuedAt > max(o.HeadIs.Unix(), o.pageIs.Unix()) // an older one may be a replay
	o.Mu.Unlock()

	if clock := o.base.Checked; newest && clock != nil {
		clock.Witness(time.Unix(claim.IssuedAt, 0))
	}
}

// IsCaughtUp reports whether the origin's private stream is complete here up to p. It is
// also true if the origin failed to answer for that stream after since, so that readers
// don't wait in vain.
func (o *Origin) IsCaughtUp(p directory.Position, since time.Time) bool {
	return o.Contacts.failedSince(o.Streams.Pair.Private.Aud, since) || o.Streams.caughtUp(p)
}

func (o *Origin) SaveClock() error {
	if err := o.Streams.Change.Lock(o.Store); err != nil {
		return err
	}

	defer o.Streams.Change.Unlock()

	if o.Streams.HasEnded() || o.Streams.Pair.Mesh.Cur == nil {
		return nil
	}

	return o.Store.SaveOrigin(o.Domain, o.Saved(o.Streams.Shown.Index.Clock.Now()))
}

// Furthest reports whether a page ends after all pages that were passed on. If so, it
// counts the page as passed on.
func (o *Origin) Furthest(page *Page) bool {
	o.Mu.Lock()
	defer o.Mu.Unlock()

	to := directory.Position{Epoch: page.Epoch, Revision: page.To}
	if !o.PassedOn.Before(to) {
		return false
	}

	o.PassedOn = to

	return true
}

// Holds reports whether a head is the one that is held, byte for byte.
func (o *Origin) Holds(head string) bool { return o.NewestHead() == head }

// NewestHead returns the newest verified head, "" for none.
func (o *Origin) NewestHead() string {
	o.Mu.Lock()
	defer o.Mu.Unlock()

	return o.HeadText
}

// Silent reports whether the last sign of life of an origin is too old. If the origin gives
// this domain no readable head, any verified message counts.
func (o *Origin) Silent() bool {
	o.Mu.Lock()
	defer o.Mu.Unlock()

	if o.Unlisted || o.unread.head != nil {
		return time.Since(o.heard) > MaxHeadAge
	}

	return o.Streams.Shown.Index.Clock.Now().Sub(o.HeadIs) > MaxHeadAge
}

// Load fills memory from disk before any loop runs. Accepted pages and records stay
// accepted, whether or not the present keys would verify them.
func (o *Origin) Load(saved store.Origin, peering *directory.Peering) (err error) {
	o.Streams.Room.Store(true)
	o.Peering.Store(peering)

	if saved.Floor > 0 {
		o.Streams.Shown.Index.Clock.Advance(time.UnixMilli(saved.Floor))
		o.base.Advance(time.UnixMilli(saved.Floor))
	}

	past, err := o.loadPast(o.Domain)
	if err != nil {
		return err
	}

	o.Keys.replace(saved.Keys, past)

	if saved.Keys != "" {
		if _, err := o.Cfg.Keys.Adopt(o.Domain, saved.Keys); err != nil {
			o.Cfg.Logger.Info("the key document on disk is no longer valid; the peer is asked for its newest",
				"origin", o.Domain.Name(), "err", err)
		}
	}

	if err := o.Streams.loadStreams(saved); err != nil {
		return err
	}

	o.loadHead(saved.Head)

	if err := o.loadPage(); err != nil {
		return err
	}

	if doc, _, ok := o.Cfg.Keys.Keys(o.Domain); ok {
		if err := o.RepullRevoked(doc); err != nil {
			return err
		}
	}

	if err := o.obey(); err != nil { // the machine may have stopped before it was done
		return err
	}

	o.Streams.publish()
	o.publish()

	return nil
}
