// Package federation is what domains tell each other: the streams of signed
// pages in which every domain announces its registrations, the loops that follow
// the streams of peers, and the store of what they said.
//
// A node opens a Mesh, and from then on its View has what other domains told it
// before it was stopped:
//
//	m, err := federation.Open(federation.Config{…})
//	mux.Handle("/federation/v1/", m.Handler(caller))
//	go m.Run(ctx) // subscriptions, repair, gossip; returns when ctx ends
//	defer m.Close()
//
// DESIGN.md says why it is built so.
//
// # Files
//
//	mesh, config               what others call
//	publish, formats, serve, signatures
//	                           what the own domain tells
//	message, page, late        the gate that each foreign message passes
//	pull, subscribe, stint, stages, feed, repair, seed, records
//	                           the loops that have what peers tell, and its records
//	accept, show, rules, quota, rejudge
//	                           what is done with it: stored, filtered, shown
//	store, load, places, past, compact, wipe
//	                           what is on disk
//	stall, status              a disk that does not answer (see also package store), what readers see
//	peer, limits               what is kept of each peer, and its bounds
//	proof                      proof files
//	evidence, compare, doubt, tell, release
//	                           contradictions: found, shown to others, taken back
//	push                       what is gossiped and what came by gossip (see also package gossip)
package federation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Mesh is one node's part in the mesh: it serves its own domain's stream,
// follows those of the domain's peers, and fills the View with them. It is safe
// for concurrent use.
type Mesh struct {
	cfg       Config
	store     *store.Store
	publisher *publish.Publisher
	traffic   protocol.Traffic // of answers
	codecs    protocol.Codecs
	client    *protocol.Client
	refusals  *refusalLog
	records   *recordGate
	origins   *originSet
	judge     chan struct{} // has room for one: rules have changed

	access       *access
	gate         *gate
	receiver     *receiver
	neighbours   *neighbours
	puller       *puller
	follower     *follower
	crossChecker *crossChecker
	evidence     *prosecutor
	gossip       *gossipFeed
	prover       *prover
	holdings     *holdings
	reopener     *reopener
	upkeep       *upkeep

	ctx     context.Context // ends with Close, for work that outlives its request
	cancel  context.CancelFunc
	closing chan struct{} // closed when Run or the Mesh ends: long polls return
	drain   func()        // closes it, once
	close   func() error  // once

	halted chan struct{} // has room for one: loops that manage ended have ended

}

// Open opens the store in cfg.Dir and fills cfg.View with what it holds, before
// anything was spoken. It starts nothing; Run does.
func Open(cfg Config) (*Mesh, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}

	m := &Mesh{
		cfg:     cfg,
		closing: make(chan struct{}),
		halted:  make(chan struct{}, 1),
		judge:   make(chan struct{}, 1),
		origins: newOriginSet(),
	}
	m.refusals = &refusalLog{log: cfg.Logger}
	m.records = &recordGate{cfg: &m.cfg}

	st, err := store.Open(cfg.Dir, cfg.noSync, store.NewDisk(m.stallBegan, m.stallEnded))
	if err != nil {
		return nil, err
	}
	m.store = st

	m.connect()
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.drain = sync.OnceFunc(func() { close(m.closing) })
	m.close = sync.OnceValue(func() error {
		m.drain()
		m.cancel()
		return errors.Join(m.saveClocks(), st.Close())
	})
	var pending [][]byte
	if m.evidence.cases, pending, err = openCases(filepath.Join(cfg.Dir, "evidence")); err == nil {
		err = m.reopener.reopen()
	}
	if err == nil {
		err = m.load()
	}
	if err != nil {
		m.cancel()
		return nil, errors.Join(err, st.Close()) // and nothing is written of what was half read
	}
	m.reconcile()
	m.upkeep.judgeAll(m.ctx)
	if cfg.Court != nil {
		m.evidence.resume(pending)
	}
	return m, nil
}

// connect makes the parts and gives each the others that it needs.
func (m *Mesh) connect() {
	cfg := &m.cfg

	m.client = &protocol.Client{HTTP: cfg.Client, Traffic: &m.traffic, Codecs: &m.codecs}
	m.publisher = publish.New(cfg.Domain, cfg.Source, cfg.Keys, cfg.Dialect)
	m.access = &access{cfg: cfg, origins: m.origins}
	m.neighbours = &neighbours{cfg: cfg, origins: m.origins}
	m.gate = &gate{cfg: cfg, origins: m.origins}
	m.reopener = &reopener{cfg: cfg, store: m.store, records: m.records}
	m.upkeep = &upkeep{cfg: cfg, origins: m.origins, judge: m.judge}
	m.holdings = &holdings{
		cfg: cfg, store: m.store, publisher: m.publisher, origins: m.origins, access: m.access,
	}

	m.receiver = &receiver{
		cfg: cfg, store: m.store, client: m.client, origins: m.origins, access: m.access,
		refusals: m.refusals, records: m.records, gate: m.gate,
	}
	m.evidence = &prosecutor{
		cfg: cfg, client: m.client, origins: m.origins, access: m.access,
		neighbours: m.neighbours, receiver: m.receiver, refusals: m.refusals,
	}
	m.receiver.evidence = m.evidence

	m.puller = &puller{
		cfg: cfg, store: m.store, client: m.client, receiver: m.receiver, gate: m.gate, records: m.records,
	}
	m.gossip = &gossipFeed{
		cfg: cfg, publisher: m.publisher, origins: m.origins, access: m.access,
		gate: m.gate, receiver: m.receiver, refusals: m.refusals,
	}
	m.follower = &follower{
		cfg: cfg, store: m.store, client: m.client, origins: m.origins, access: m.access,
		neighbours: m.neighbours, receiver: m.receiver, puller: m.puller, gossip: m.gossip,
	}
	m.crossChecker = &crossChecker{
		cfg: cfg, client: m.client, neighbours: m.neighbours, receiver: m.receiver,
		gate: m.gate, evidence: m.evidence,
	}
	m.prover = &prover{
		cfg: cfg, store: m.store, client: m.client, publisher: m.publisher, origins: m.origins,
		neighbours: m.neighbours, receiver: m.receiver,
	}
}

// Drain ends the long polls that other nodes hold here, and answers those that
// come later at once: a server that stops need not wait for them.
func (m *Mesh) Drain() { m.drain() }

// Close ends long polls and closes the store. Run must have returned before; it
// may be called twice, and without Run.
func (m *Mesh) Close() error { return m.close() }

// saveClocks writes down how late it is by each origin's word (rule T4), so that a
// clock that is set back while the node is down extends nothing.
func (m *Mesh) saveClocks() error {
	var errs []error
	for _, o := range m.origins.all() {
		errs = append(errs, o.saveClock())
	}

	return errors.Join(errs...)
}

func (o *origin) saveClock() error {
	if err := o.streams.change.lock(o.store); err != nil {
		return err
	}
	defer o.streams.change.unlock()

	if o.streams.hasEnded() || o.streams.pair.mesh.cur == nil {
		return nil
	}

	return o.store.SaveOrigin(o.domain, o.saved(o.streams.shown.index.Clock.Now()))
}

// Changed returns a channel that is closed when any origin's Position moves on, or its
// key document is replaced.
func (m *Mesh) Changed() <-chan struct{} { return m.origins.changed() }

// Position returns how far this node is with another domain's history: all that
// the domain announced up to there is shown here. It is false for a domain that
// nothing is known of.
func (m *Mesh) Position(td spiffeid.TrustDomain) (directory.Position, bool) {
	if td == m.cfg.Domain {
		return m.cfg.Source.Position(), true
	}
	o := m.origins.get(td)
	if o == nil {
		return directory.Position{}, false
	}
	return o.streams.position()
}

// askEvery is how often an origin is asked for its head while somebody waits.
const askEvery = 500 * time.Millisecond

// Await waits until Position(td) has reached p, and what the origin announces to
// this domain alone is here up to p as well, unless no node of the origin's
// answers. It asks the origin meanwhile, whose word reaches a revision that changed
// nothing here. It returns ctx's error when that ends first.
func (m *Mesh) Await(ctx context.Context, td spiffeid.TrustDomain, p directory.Position) error {
	began := time.Now()
	ask := time.NewTimer(0)
	defer ask.Stop()
	for {
		changed := m.access.changedOf(td)
		o := m.origins.get(td)
		if have, ok := m.Position(td); ok && !have.Before(p) && (o == nil || o.isCaughtUp(p, began)) {
			return nil
		}
		select {
		case <-changed:
		case <-ask.C:
			if o != nil {
				nudge(o.ask)
			}
			ask.Reset(askEvery)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isCaughtUp reports whether what the origin announced to this domain alone is here up
// to p. A node that failed to answer since a time holds up no reader.
func (o *origin) isCaughtUp(p directory.Position, since time.Time) bool {
	return o.contacts.failedSince(o.streams.pair.private.aud, since) || o.streams.caughtUp(p)
}

// Peers returns what this node knows of each peering, by name.
func (m *Mesh) Peers() []PeerStatus {
	var all []PeerStatus
	for _, o := range m.origins.all() {
		s := o.status()
		if stalled := m.stalledError(); stalled != "" {
			s.LastError = stalled
			if s.State == string(directory.PeeringActive) {
				s.State = "behind" // whatever it announces now isn't taken
			}
		}

		s.Received, s.Refused = m.refusals.byOrigin.of(o.domain), m.refusals.bySender.of(o.domain)
		s.BytesIn, s.BytesOut = m.traffic.Of(o.domain)
		s.GossipIn, s.GossipOut = m.gossip.gossiped.Of(o.domain)
		all = append(all, s)
	}
	return all
}

// Run follows the domain's peers until ctx ends, and returns when all that it
// started has stopped; long polls of peers end with it, so that the listener
// under them can be closed. Call it once.
func (m *Mesh) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer m.drain()
	stop := context.AfterFunc(m.ctx, cancel)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	if m.cfg.Gossip != nil {
		if err := m.gossip.start(ctx, &wg); err != nil {
			return fmt.Errorf("federation: %w", err)
		}
	}
	wg.Go(func() { m.upkeep.sweeper(ctx) })
	wg.Go(func() { m.store.Wiping(ctx, !m.cfg.noSync, m.cfg.Logger) })
	wg.Go(func() { m.upkeep.staleness(ctx) })
	wg.Go(func() { m.upkeep.judges(ctx) })
	if m.cfg.Court != nil {
		wg.Go(func() { m.evidence.enforce(ctx) })
	}
	m.manage(ctx)
	return nil
}

// The pace of the loops that look after all origins.
const (
	sweepEvery     = 5 * time.Second
	sweepLimit     = 1000
	reconcileEvery = 200 * time.Millisecond
)

// sweeper frees what is dead, a bounded number at a time.
func (u *upkeep) sweeper(ctx context.Context) {
	var readmitted time.Time
	for pause := sweepEvery; wait(ctx, nil, u.cfg.Stretch.of(pause)); {
		pause = sweepEvery
		readmits := time.Since(readmitted) >= sweepEvery // however often something is due to be freed
		if readmits {
			readmitted = time.Now()
		}
		for _, o := range u.origins.all() {
			next, err := o.streams.sweep(sweepLimit)
			if err != nil && !errors.Is(err, store.ErrStalled) {
				u.cfg.Logger.Error("can't free what has expired", "origin", o.domain.Name(), "error", err)
			}
			if readmits {
				if err := o.streams.readmitter.readmit(); err != nil && !errors.Is(err, store.ErrStalled) {
					u.cfg.Logger.Error("can't ask again for what there is room for", "origin", o.domain.Name(), "error", err)
				}
			}
			if !next.IsZero() {
				pause = max(min(pause, time.Until(next)), 50*time.Millisecond)
			}
		}
	}
}

// manage starts and stops the loops of origins as peerings come and go. It waits for
// no loop and for no disk: one that hangs keeps no other peering from being taken up.
func (m *Mesh) manage(ctx context.Context) {
	var removals sync.WaitGroup
	defer removals.Wait()
	defer func() {
		for _, o := range m.origins.all() {
			o.loops.wait()
		}
	}()

	for {
		changed := m.cfg.Source.Changed()

		for _, o := range m.takePeerings() {
			if o.loops.halt() && o.loops.removing.CompareAndSwap(false, true) {
				removals.Go(func() {
					defer o.loops.removing.Store(false)
					m.forget(o)
				})
			}
		}

		for _, o := range m.origins.all() {
			switch {
			case !o.accepts():
				o.loops.halt()
			case !o.loops.running():
				m.start(ctx, o)
			}
		}

		// A busy domain changes all the time; its peerings don't.
		if !m.waitFor(ctx, changed) || !wait(ctx, nil, reconcileEvery) {
			return
		}
	}
}

// waitFor waits for a change of the domain's, or for the end of what manage halted or
// had removed.
func (m *Mesh) waitFor(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-m.halted:
	}

	return true
}

// start runs the loops of one origin, all of which wait for what siblings have.
func (m *Mesh) start(ctx context.Context, o *origin) {
	ctx, o.loops.stop = context.WithCancel(ctx)
	o.loops.done = make(chan struct{})
	go func() {
		defer nudge(m.halted)
		defer close(o.loops.done)
		m.follower.seed(ctx, o)
		var wg sync.WaitGroup
		wg.Go(func() { m.follower.follow(ctx, o, &o.streams.pair.mesh) })
		wg.Go(func() { m.follower.follow(ctx, o, &o.streams.pair.private) })
		wg.Go(func() { m.follower.tend(ctx, o) })
		wg.Go(func() { m.follower.catchUp(ctx, o) })
		if m.cfg.Court != nil {
			wg.Go(func() { m.crossChecker.crossChecks(ctx, o) })
		}
		wg.Wait()
	}()
}

// running reports whether the loops of an origin were started and haven't ended.
func (lp *loops) running() bool {
	if lp.stop == nil {
		return false
	}

	select {
	case <-lp.done:
		return false
	default:
		return true
	}
}

// halt has the loops of an origin end, and reports whether they have.
func (lp *loops) halt() bool {
	if lp.stop != nil {
		lp.stop()
	}

	return !lp.running()
}

// wait ends the loops of an origin and waits for them.
func (lp *loops) wait() {
	if !lp.halt() {
		<-lp.done
	}
}

// reconcile takes note of the domain's peerings, and removes what former peers told.
func (m *Mesh) reconcile() {
	for _, o := range m.takePeerings() {
		o.loops.wait()
		m.forget(o)
	}
}

// takePeerings takes note of the domain's peerings, and returns the former peers of
// which something is here. What a peer told is forgotten when its peering is
// terminated, and not when a peering is merely absent: at start the domain's own state
// may not be read yet.
func (m *Mesh) takePeerings() (former []*origin) {
	open := m.evidence.cases.open() // first: what the domain acted on before is in the peerings

	for _, p := range m.cfg.Peerings() {
		if p.Domain == m.cfg.Domain {
			continue
		}

		o := m.origins.get(p.Domain)
		switch {
		case p.State != directory.PeeringTerminated && o == nil:
			o = m.know(p.Domain)
			o.again = true
		case o != nil && (p.State == directory.PeeringTerminated || o.streams.hasEnded()):
			o.streams.end()
			former = append(former, o)
			continue
		case o == nil:
			continue
		}

		o.streams.setPeering(&p)

		o.mu.Lock()
		o.convicted = against(open, p.Domain) || against(m.evidence.cases.open(), p.Domain) // until the domain has acted
		o.mu.Unlock()
	}

	m.evidence.noteFrozen()
	return former
}

// know adds an origin.
func (m *Mesh) know(td spiffeid.TrustDomain) *origin {
	o := newOrigin(td, m.cfg.View.Origin(td), replica{
		cfg: &m.cfg, store: m.store, records: m.records, refusals: m.refusals,
		moved: m.origins.notify, judge: m.judge,
	})
	m.origins.add(o)

	return o
}

// forget removes an origin that has ended, and all that it ever sent, from disk. Its
// loops have ended.
func (m *Mesh) forget(o *origin) {
	if err := m.store.Forget(o.domain); err != nil {
		if !errors.Is(err, store.ErrStalled) {
			m.cfg.Logger.Error("can't remove a former peer's registrations from disk", "origin", o.domain.Name(), "error", err)
		}
		return
	}

	m.refusals.byOrigin.forget(o.domain) // another peering begins without them
	m.refusals.bySender.forget(o.domain)

	m.origins.remove(o.domain)
	nudge(m.halted) // the domain may be a peer again
}
