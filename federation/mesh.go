package federation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/mirror"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/roster-mesh/roster/limit"
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
	replica   *replica.Config
	refusals  *replica.RefusalLog
	records   *replica.Gate
	mirrors   *mirror.Mirrors
	origins   *replica.Set
	judge     chan struct{} // capacity 1: rules have changed

	peers    peers
	holdings holdings
	evidence *prosecutor
	receiver *receiver
	gossip   *gossipFeed
	follower *follower

	ctx     context.Context // ends with Close, for work that outlives its request
	cancel  context.CancelFunc
	closing chan struct{} // closed when Run or the Mesh ends: long polls return
	drain   func()        // closes it, once
	close   func() error  // once

	halted chan struct{} // capacity 1: loops that manage stopped have returned

}

// leastEntries is the number of entries of a peer's stream for which there is room at any quota of records. They take
// about half a gigabyte on disk.
const leastEntries = 2_000_000

// Open opens the store in cfg.Dir and fills cfg.View from it. It starts no loop and
// sends nothing; Run does.
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
		origins: replica.NewSet(),
	}
	m.refusals = &replica.RefusalLog{Log: cfg.Logger}
	m.replica = &replica.Config{
		Domain: cfg.Domain, Keys: cfg.Keys, View: cfg.View, Dialect: cfg.Dialect, Logger: cfg.Logger,
		Panics: cfg.Panics, Records: cfg.Records, Bytes: cfg.Bytes, Entries: leastEntries,
		SilentAfter: func() time.Duration { return cfg.Stretch.of(replica.SilentAfter) },
		IsShort:     cfg.isShort,
		Doubted:     cfg.Doubted,
	}
	m.records = &replica.Gate{Dialect: cfg.Dialect, Inside: cfg.Inside, Panics: cfg.Panics}

	st, err := store.Open(cfg.Dir, cfg.noSync, store.NewDisk(m.stallBegan, m.stallEnded))
	if err != nil {
		return nil, err
	}

	m.store = st

	cases, pending, err := evidence.Open(filepath.Join(cfg.Dir, "evidence"))
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}

	m.connect(cases)
	m.mirrors = m.openMirrors()

	if cfg.LogKeys != nil {
		m.replica.Ledger = m.mirrors
	}

	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.drain = sync.OnceFunc(func() { close(m.closing) })
	m.close = sync.OnceValue(func() error {
		m.drain()
		m.cancel()

		return errors.Join(m.saveClocks(), m.mirrors.Close(), st.Close())
	})

	// Records are judged by this node's dialect before load shows them.
	if err = m.reopen(); err == nil {
		err = m.load()
	}

	if err != nil {
		m.cancel()
		return nil, errors.Join(err, st.Close()) // without saving clocks that were only partly loaded
	}

	m.reconcile()
	m.judgeAll(m.ctx)

	// Cases are resumed last, because evidence against an unknown origin is no case.
	m.evidence.resume(pending)

	return m, nil
}

// connect creates the parts and passes each the others that it depends on.
func (m *Mesh) connect(cases *evidence.Store) {
	cfg := &m.cfg

	m.client = &protocol.Client{
		HTTP: cfg.Client, Traffic: &m.traffic, Codecs: &m.codecs, Address: cfg.Address, Panics: cfg.Panics,
		Answered: func(node protocol.Node, header http.Header) error {
			origin := m.origins.Get(node.Domain)
			if origin == nil {
				return nil
			}

			origin.Answers.Answered()

			// An interim response is read on a goroutine of the HTTP client.
			cfg.Panics.Do(contain.Answer, func() {
				if standing, ok := protocol.ParseStanding(header); ok {
					origin.Theirs.Note(node, standing)
				}
			})

			if !origin.Contacts.Lists(node) {
				return errMoved // a node that is at none of the origin's addresses any more
			}

			return nil
		},
		Failed: func(node protocol.Node, err error) {
			// A node that rejects this node's certificate can't state a standing in an answer.
			if origin := m.origins.Get(node.Domain); origin != nil && protocol.RejectsCertificate(err) {
				origin.Theirs.Note(node, protocol.Standing{State: replica.StateCertificate, Error: err.Error()})
			}
		},
	}
	m.publisher = publish.New(cfg.Domain, cfg.Source, cfg.Keys, cfg.Dialect, cfg.View.Clock())
	m.peers = peers{cfg: cfg, origins: m.origins}
	m.holdings = holdings{
		cfg: cfg, store: m.store, publisher: m.publisher, origins: m.origins, peers: m.peers,
	}
	m.evidence = &prosecutor{
		cfg: cfg, cases: cases, client: m.client, origins: m.origins, peers: m.peers, refusals: m.refusals,
	}
	m.receiver = &receiver{
		cfg: cfg, store: m.store, client: m.client, origins: m.origins, peers: m.peers,
		refusals: m.refusals, records: m.records, evidence: m.evidence,
	}
	m.gossip = &gossipFeed{
		cfg: cfg, publisher: m.publisher, origins: m.origins, peers: m.peers,
		receiver: m.receiver, refusals: m.refusals,
		senders: limit.NewRates[spiffeid.TrustDomain](maxSenders),
	}
	m.follower = &follower{
		cfg: cfg, store: m.store, client: m.client, peers: m.peers, receiver: m.receiver, gossip: m.gossip,
	}
}

// Drain ends the long polls of other nodes and answers later ones at once, so that a
// server that stops does not wait for them.
func (m *Mesh) Drain() { m.drain() }

// Close ends long polls and closes the store. Run must have returned before; it
// may be called twice, and without Run.
func (m *Mesh) Close() error { return m.close() }

// saveClocks stores each origin's clock (rule T4), so that setting the node's clock back
// while the node is down extends no deadline.
func (m *Mesh) saveClocks() error {
	var errs []error
	for _, o := range m.origins.All() {
		errs = append(errs, o.SaveClock())
	}

	return errors.Join(errs...)
}

// Changed returns a channel that is closed when any origin's Position advances or its
// key document is replaced.
func (m *Mesh) Changed() <-chan struct{} { return m.origins.Changed() }

// Position returns this node's position in another domain's history: all announcements of
// the domain up to that position are shown here. It is false for an unknown domain.
func (m *Mesh) Position(td spiffeid.TrustDomain) (directory.Position, bool) {
	if td == m.cfg.Domain {
		return m.cfg.Source.Position(), true
	}

	origin := m.origins.Get(td)
	if origin == nil {
		return directory.Position{}, false
	}

	return origin.Position()
}

// askEvery is the interval at which Await requests an origin's head.
const askEvery = 500 * time.Millisecond

// Await waits until Position(td) has reached position and the origin's private stream is
// caught up to it too. It does not wait for the private stream if no node of the origin
// answers. Meanwhile it requests the origin's head, because a revision that changes nothing
// here is only known from there. It returns ctx's error if ctx ends first.
func (m *Mesh) Await(ctx context.Context, td spiffeid.TrustDomain, position directory.Position) error {
	began := time.Now()
	ask := time.NewTimer(0)
	defer ask.Stop()

	for {
		// Taken before the position is read, so that no change is missed.
		changed := m.peers.changedOf(td)

		origin := m.origins.Get(td)
		if have, ok := m.Position(td); ok && !have.Before(position) &&
			(origin == nil || origin.IsCaughtUp(position, began)) {
			return nil
		}

		select {
		case <-changed:
		case <-ask.C:
			if origin != nil {
				replica.Wake(origin.Ask)
			}

			ask.Reset(askEvery)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Peers returns the status of each peering as this node observes it, by name.
func (m *Mesh) Peers() []replica.PeerStatus {
	var all []replica.PeerStatus
	for _, origin := range m.origins.All() {
		status := origin.Status()
		if stalled := m.stalledError(); stalled != "" {
			status.LastError = stalled
			if status.State == string(directory.PeeringActive) {
				status.State = "behind" // new announcements are not accepted
			}
		}

		status.Received, status.Refused = m.refusals.ByOrigin.Of(origin.Domain), m.refusals.BySender.Of(origin.Domain)
		status.BytesIn, status.BytesOut = m.traffic.Of(origin.Domain)
		status.GossipIn, status.GossipOut = m.gossip.gossiped.Of(origin.Domain)

		if status.Asked {
			status.LedgerAge, status.LedgerError = m.mirrors.Age(origin.Domain)
			status.LedgerDiffers = m.mirrors.Differs(origin.Domain)
		}

		all = append(all, status)
	}

	return all
}

// Run follows the domain's peers until ctx ends, and returns when all its goroutines have
// stopped. It ends the long polls of peers too, so that their listener can be closed.
// Call it once.
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

	wg.Go(func() { m.sweeper(ctx) })
	wg.Go(func() { m.store.Wiping(ctx, !m.cfg.noSync, m.cfg.Logger) })
	wg.Go(func() { m.staleness(ctx) })
	wg.Go(func() { m.judges(ctx) })
	wg.Go(func() { m.memory(ctx) })
	wg.Go(func() { m.publisher.SignAhead(ctx, m.peers.audiences) })
	wg.Go(func() { m.evidence.enforce(ctx) })

	m.manage(ctx)

	return nil
}

// manage starts and stops the loops of origins as peerings begin and end. It waits for no
// loop and no disk, so that one that hangs does not delay other peerings.
func (m *Mesh) manage(ctx context.Context) {
	var removals sync.WaitGroup
	defer removals.Wait()
	defer func() {
		for _, o := range m.origins.All() {
			o.Loops.Wait()
		}
	}()

	for {
		changed := m.cfg.Source.Changed()

		for _, origin := range m.takePeerings() {
			// Loops that still run could write the data again. Their end wakes this loop by m.halted.
			if origin.Loops.Halt() && origin.Loops.Removing.CompareAndSwap(false, true) {
				removals.Go(func() {
					defer origin.Loops.Removing.Store(false)
					m.forget(origin)
				})
			}
		}

		for _, origin := range m.origins.All() {
			switch {
			case !origin.Accepts():
				origin.Loops.Halt()
			case !origin.Loops.Running():
				m.start(ctx, origin)
			}
		}

		// A busy domain changes all the time; its peerings don't.
		if !m.waitFor(ctx, changed) || !wait(ctx, nil, reconcileEvery) {
			return
		}
	}
}

// waitFor waits for a change of the domain, or for a halted loop or a removal to finish.
// It returns false if ctx ends first.
func (m *Mesh) waitFor(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-m.halted:
	}

	return true
}

// start runs the loops of one origin, after seeding its streams from siblings.
func (m *Mesh) start(ctx context.Context, origin *replica.Origin) {
	ctx, origin.Loops.Stop = context.WithCancel(ctx)
	origin.Loops.Done = make(chan struct{})
	go func() {
		// Deferred calls run in reverse: Done is closed before manage looks at it.
		defer replica.Wake(m.halted)
		defer close(origin.Loops.Done)

		origin.Answers.Begin()
		defer origin.Answers.End()

		m.follower.seed(ctx, origin)

		var wg sync.WaitGroup
		wg.Go(func() { m.follower.watch(ctx, origin) })
		wg.Go(func() { m.follower.follow(ctx, origin, &origin.Mesh) })
		wg.Go(func() { m.follower.follow(ctx, origin, &origin.Private) })
		wg.Go(func() { m.follower.tend(ctx, origin) })
		wg.Go(func() { m.follower.catchUp(ctx, origin) })
		wg.Go(func() { m.follower.confirms(ctx, origin) })
		wg.Go(func() { m.follower.crossChecks(ctx, origin) })

		if m.cfg.LogKeys != nil {
			wg.Go(func() { m.followLedger(ctx, origin) })
		}

		wg.Wait()
	}()
}

// reconcile applies the domain's peerings and removes the data of former peers.
func (m *Mesh) reconcile() {
	for _, o := range m.takePeerings() {
		o.Loops.Wait()
		m.forget(o)
	}
}

// takePeerings applies the domain's peerings and returns the former peers whose data is
// still here. A peer's data is removed when its peering is terminated, not when the peering
// is merely absent: at start the domain's own state may not be loaded yet.
func (m *Mesh) takePeerings() (former []*replica.Origin) {
	open := m.evidence.cases.Pending() // read first: the peerings then reflect cases closed before

	for _, peering := range m.cfg.Peerings() {
		if peering.Domain == m.cfg.Domain {
			continue
		}

		origin := m.origins.Get(peering.Domain)
		switch {
		case peering.State != directory.PeeringTerminated && origin == nil:
			origin = m.know(peering.Domain)
			origin.Again.Store(true)
		case origin != nil && (peering.State == directory.PeeringTerminated || origin.HasEnded()):
			origin.End()
			former = append(former, origin)

			continue
		case origin == nil:
			continue
		}

		origin.SetPeering(&peering)

		// A case stays pending until the domain has acted on it.
		origin.SetConvicted(evidence.Against(open, peering.Domain) ||
			evidence.Against(m.evidence.cases.Pending(), peering.Domain))
	}

	m.evidence.noteFrozen()

	return former
}

// know adds an origin.
func (m *Mesh) know(td spiffeid.TrustDomain) *replica.Origin {
	origin := replica.New(td, m.cfg.View.Origin(td), replica.Deps{
		Cfg: m.replica, Store: m.store, Records: m.records, Refusals: m.refusals,
		Moved: m.origins.Notify, Judge: m.judge,
	})
	m.origins.Add(origin)

	return origin
}

// forget removes an ended origin and all its data from disk and memory. The origin's loops
// must have returned.
func (m *Mesh) forget(origin *replica.Origin) {
	if err := m.store.Forget(origin.Domain); err != nil {
		// The origin stays known, so that manage tries again.
		if !errors.Is(err, store.ErrStalled) {
			m.cfg.Logger.Error("removing a former peer's registrations from disk failed", "origin",
				origin.Domain.Name(), "err", err)
		}

		return
	}

	if err := m.mirrors.Forget(origin.Domain); err != nil {
		m.cfg.Logger.Error("removing a former peer's ledger from disk failed", "origin", origin.Domain.Name(),
			"err", err)
	}

	m.refusals.ByOrigin.Forget(origin.Domain) // a new peering starts from zero
	m.refusals.BySender.Forget(origin.Domain)

	m.origins.Remove(origin.Domain)
	replica.Wake(m.halted) // the domain may be a peer again
}

// load fills memory and the view from disk: each origin's clock, key document, head and
// streams. Accepted data stays accepted, even if today's keys would not verify it.
func (m *Mesh) load() error {
	origins, err := m.store.Origins()
	if err != nil {
		return err
	}

	agreed := map[spiffeid.TrustDomain]directory.Peering{}
	for _, p := range m.cfg.Peerings() {
		if p.State != directory.PeeringTerminated {
			agreed[p.Domain] = p
		}
	}

	for td, saved := range origins {
		peering := agreed[td]
		if err := m.know(td).Load(saved, &peering); err != nil {
			return err
		}
	}

	return nil
}

// StatedAddresses returns the addresses at which nodes of a peer say that they are reached, and which
// the peering doesn't name.
func (m *Mesh) StatedAddresses(peer spiffeid.TrustDomain) []string {
	origin := m.origins.Get(peer)
	if origin == nil {
		return nil
	}

	return origin.Contacts.Stated()
}

// Members returns the mesh's gossip pool as this node sees it; nil while gossip is off.
// Membership is a hint: it affects only the choice of nodes to ask.
func (m *Mesh) Members() []gossip.MemberStatus {
	pool := m.gossip.joined()
	if pool == nil {
		return nil
	}

	return pool.Members()
}

// PeerQuotas returns the most records of a peer, and the most bytes of them, where its peering has no quotas of its
// own; 0 is none.
func (m *Mesh) PeerQuotas() (records, bytes uint64) { return m.cfg.Records, m.cfg.Bytes }

// Admits reports whether a node may gossip and send requests at present: a member of this domain, or a node that
// the newest key document of an active peer lists.
func (m *Mesh) Admits(id spiffeid.ID) bool { return m.peers.admits(id) }

// Frozen returns the frozen domains, from which nothing new is accepted. It takes no lock.
// The caller must not modify the slice.
func (m *Mesh) Frozen() []spiffeid.TrustDomain { return *m.evidence.frozen.Load() }

// FormatsOf returns the formats that a peer reads, and the deadline of that statement, from
// its newest key document, expired or not. known is false if none was received.
func (m *Mesh) FormatsOf(peer spiffeid.TrustDomain) (formats signed.Formats, until time.Time, known bool) {
	origin := m.origins.Get(peer)
	if origin == nil {
		return nil, until, false
	}

	return origin.Keys.Formats()
}

// StoreStalled returns the time for which the store's disk has not responded. It is 0 if the
// disk responds, or if the wait is shorter than store.StallAfter.
func (m *Mesh) StoreStalled() time.Duration { return m.store.Disk.StalledFor() }

func (m *Mesh) stallBegan() {
	m.cfg.Logger.Error("the disk of the federation store does not respond; lookups continue, updates from peers "+
		"are paused",
		"dir", m.cfg.Dir, "after", store.StallAfter.String())
}

// stallEnded wakes all loops that gave up on the disk.
func (m *Mesh) stallEnded(lasted time.Duration) {
	m.cfg.Logger.Info("the disk of the federation store responds again; missed updates are being pulled",
		"dir", m.cfg.Dir, "stalled", lasted.Round(time.Millisecond).String())

	replica.Wake(m.judge)
	replica.Wake(m.halted)
	m.store.Wake()

	for _, o := range m.origins.All() {
		replica.Wake(o.Kick)
		replica.Wake(o.Ask)
	}

	m.origins.Notify()
}

// stalledError returns an operator's error text while the disk does not respond, and ""
// otherwise.
func (m *Mesh) stalledError() string {
	if d := m.StoreStalled(); d > 0 {
		return fmt.Sprintf("the disk of this node's federation store has not responded for %s", d.Round(time.Second))
	}

	return ""
}

// Handler returns the routes of /federation/v1. caller returns the verified identity of a
// request. Only nodes of the own domain and of active peers are served; others get 403.
func (m *Mesh) Handler(caller func(*http.Request) (spiffeid.ID, bool)) http.Handler {
	s := &server{
		cfg: &m.cfg, store: m.store, mirrors: m.mirrors, origins: m.origins, publisher: m.publisher, peers: m.peers,
		holdings: m.holdings, evidence: m.evidence, codecs: &m.codecs, traffic: &m.traffic, closing: m.closing,
		refusals: m.refusals,
		caller:   caller,
		polls:    newShares(maxPolls),
		replies:  newShares(maxReplies),
		workers:  newWorkers(maxPolls + maxReplies),
		shows:    limit.NewRates[spiffeid.TrustDomain](maxSenders),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+protocol.PathHeads, s.admit(s.heads))
	mux.HandleFunc("GET "+protocol.PathKeys, s.admit(s.keys))
	mux.HandleFunc("GET "+protocol.PathPages, s.admit(s.pages))
	mux.HandleFunc("POST "+protocol.PathRecords, s.admit(s.records))
	mux.HandleFunc("GET "+protocol.PathCheckpoint, s.admit(s.checkpoint))
	mux.HandleFunc("POST "+protocol.PathEvidence, s.admit(s.takeEvidence))
	mux.HandleFunc("GET "+protocol.PathEvidence, s.admit(s.giveEvidence))
	mux.HandleFunc("POST "+protocol.PathFarewell, s.admit(s.farewell))

	return problem.Routes(mux, m.cfg.PublicURL)
}

// GoesOn reports whether nodes of a peer still take this domain for their peer, at least as many of those that
// answer as don't: it has not ended the peering, or not yet.
func (m *Mesh) GoesOn(ctx context.Context, peer spiffeid.TrustDomain) bool {
	origin := m.origins.Get(peer)

	return origin != nil && m.follower.goesOn(ctx, origin)
}

// Evidence lists this node's evidence against a domain, the oldest first.
func (m *Mesh) Evidence(td spiffeid.TrustDomain) []evidence.File { return m.evidence.cases.Files(td) }

// EvidenceFile returns a file that Evidence lists, the oldest if id is empty. The error is
// directory.NotFound if there is none.
func (m *Mesh) EvidenceFile(td spiffeid.TrustDomain, id string) ([]byte, error) {
	return m.evidence.file(td, id)
}

// A Doubtful is a node of a peer whose word other nodes of the peer contradict.
type Doubtful = replica.Doubtful

// A PeerStatus is the status of one peering as this node observes it.
type PeerStatus = replica.PeerStatus
