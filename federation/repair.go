package federation

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/cenkalti/backoff/v5"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// newBackoff paces what is tried again: half a second at first, with jitter, and
// never over ten, so that a mesh that was cut is whole soon after.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.MaxInterval = 10 * time.Second
	b.Reset()
	return b
}

// follow holds one subscription to a stream. A node that fails gives way to the
// next; when all of them failed, others are asked.
func (fl *follower) follow(ctx context.Context, o *origin, f *feed) {
	b := newBackoff()
	for fails := 0; wait(ctx, fl.store.Disk.Answers(), 0); {
		n, ok := o.contacts.node(f)
		err := errNoNode
		if ok {
			err = fl.subscribe(ctx, o, f, n, func() { fails = 0; b.Reset() })
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, store.ErrStalled) {
			o.complain(err) // of which no node of the origin's is guilty
			continue
		}

		o.failed(f, err)
		fl.cfg.Logger.Debug("a subscription ended", "origin", o.domain.Name(), "audience", f.aud.String(), "node", n.Base, "error", err)
		if protocol.CodeOf(err) == protocol.CodeUnsupported { // whoever is asked has the same, until this node is upgraded
			wait(ctx, nil, fl.cfg.headPause())
			continue
		}
		if fails++; fails >= len(o.contacts.nodes()) && fl.pullFromOthers(ctx, o, f) {
			b.Reset()
		}
		wait(ctx, nil, fl.cfg.Stretch.of(b.NextBackOff()))
	}
}

// How many of the domain's own nodes and how many others are asked at a time; one of
// them may be cut off from the origin as well.
const (
	askSiblings = 1
	askOthers   = 3
)

// pullFromOthers gets what others hold of an origin that can't be reached: a sibling,
// which may have heard it while this node was away, and other peers, but for what is for
// this domain alone. Signatures decide, channels never do. It reports whether one of
// them has more.
func (fl *follower) pullFromOthers(ctx context.Context, o *origin, f *feed) (more bool) {
	all := fl.neighbours.siblings(askSiblings)
	if f == &o.streams.pair.mesh {
		others := fl.neighbours.others(o.domain)
		all = append(all, others[:min(askOthers, len(others))]...)
	}
	for _, n := range all {
		if fl.puller.pullFromAnother(ctx, o, f, n) {
			more = true
		}
	}
	return more
}

// others returns one node of each other active peer, in random order.
func (nb *neighbours) others(but spiffeid.TrustDomain) []protocol.Node {
	var all []protocol.Node
	for _, o := range nb.origins.all() {
		if o.domain == but || !o.accepts() {
			continue
		}
		if n, ok := o.contacts.node(&o.streams.pair.mesh); ok {
			all = append(all, n)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// tend does for an origin all but what pulls page by page: heads, gossiped messages
// and missing records.
func (fl *follower) tend(ctx context.Context, o *origin) {
	heads := newAlarm(fl.cfg.headPause())
	defer heads.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-o.mailbox.queue:
			fl.open(ctx, o, msg)
			if o.contacts.putOff() || len(o.mailbox.late) > 0 {
				heads.sooner(keysEvery)
			}
		case <-o.streams.kick:
			retry.Reset(fl.backlog(ctx, o))
		case <-retry.C:
			retry.Reset(fl.backlog(ctx, o))
		case <-o.ask:
			fl.askNextHead(ctx, o)
		case <-heads.C:
			fl.openLate(ctx, o)
			o.doubtRest()
			for _, f := range o.streams.pair.feeds() {
				fl.puller.compact(ctx, o, f)
			}
			heads.set(fl.cfg.headPause())
		}
	}
}

// An alarm is a timer that can be brought forward, and that nobody puts off by doing
// so again and again.
type alarm struct {
	*time.Timer
	at time.Time
}

func newAlarm(d time.Duration) *alarm { return &alarm{time.NewTimer(d), time.Now().Add(d)} }

func (a *alarm) set(d time.Duration) {
	a.at = time.Now().Add(d)
	a.Reset(d)
}

func (a *alarm) sooner(d time.Duration) {
	if time.Until(a.at) > d {
		a.set(d)
	}
}

// headPause is HeadEvery with a tenth of jitter.
func (c *Config) headPause() time.Duration {
	return time.Duration(float64(c.Stretch.of(c.HeadEvery)) * (0.9 + 0.2*rand.Float64()))
}

// askNextHead asks another node of the origin than the last time, so that a
// subscription to one that lags is noticed, and has what is missing pulled.
func (fl *follower) askNextHead(ctx context.Context, o *origin) {
	if n, ok := o.contacts.headNode(); ok && fl.receiver.askHead(ctx, o, n) == nil {
		o.contacts.headFrom(n)
	}
	nudge(o.pull)
}

// catchUp pulls what heads say there is, and what is for this domain alone. It is a
// loop of its own: a first sync takes minutes, and heads and gossip are heard meanwhile.
func (fl *follower) catchUp(ctx context.Context, o *origin) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.pull:
			fl.puller.pullBehind(ctx, o)
			fl.puller.pullPrivate(ctx, o)
		}
	}
}

// pullBehind pulls from the node whose head came last, if that says that something is
// missing.
func (pl *puller) pullBehind(ctx context.Context, o *origin) {
	n, ok := o.contacts.lastHeadFrom()
	if !ok || !o.streams.behind() {
		return
	}
	select {
	case o.streams.pair.mesh.busy <- struct{}{}:
		defer func() { <-o.streams.pair.mesh.busy }()
	default:
		return // another loop is at it
	}
	if err := pl.pullAll(ctx, o, &o.streams.pair.mesh, n, endless(ctx)); err != nil {
		pl.cfg.Logger.Debug("can't pull", "origin", o.domain.Name(), "node", n.Base, "error", err)
	}
}

// The pace of asking again for records that nobody gave.
const (
	wantBatch  = 500
	wantPause  = time.Second
	wantLonger = time.Minute
)

// backlog asks for missing records: siblings first, then the origin, then others
// (federation.md, "Records on demand"). It returns when to try again.
func (fl *follower) backlog(ctx context.Context, o *origin) time.Duration {
	for ctx.Err() == nil && fl.store.Disk.StalledFor() == 0 {
		st, wanted, next := o.streams.due(wantBatch)
		if len(wanted) == 0 {
			return next
		}
		names := make([]protocol.RecordName, len(wanted))
		for i, d := range wanted {
			names[i] = protocol.NameOf(d)
		}
		timed, cancel := context.WithTimeout(ctx, protocol.RecordsTime)
		got := fl.receiver.fetch(timed, o.domain, names, fl.neighbours.holders(o, st.id.Audience))
		cancel()
		if err := o.streams.acceptRecords(st, wanted, got); errors.Is(err, store.ErrStalled) {
			break // its end wakes this loop
		} else if err != nil {
			fl.cfg.Logger.Error("can't keep records", "origin", o.domain.Name(), "error", err)
			return wantLonger
		}
		o.streams.postpone(st, wanted)
		fl.origins.notify()
		if len(got) == 0 {
			return wantPause // nobody is there: the rest would be asked for in vain
		}
	}
	return wantLonger
}

// holders returns who may have a stream's records.
func (nb *neighbours) holders(o *origin, aud directory.Audience) []protocol.Node {
	var all []protocol.Node
	if nb.cfg.Siblings != nil {
		for _, base := range nb.cfg.Siblings() {
			all = append(all, protocol.Node{Domain: nb.cfg.Domain, Base: base})
		}
	}
	if all = append(all, o.contacts.nodes()...); aud == directory.Mesh {
		all = append(all, nb.others(o.domain)...)
	}
	return all
}

// due returns wanted entries that may be asked for now, and when there are more.
func (ss *streams) due(limit int) (*stream, []signed.Digest, time.Duration) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	now, next, clock := time.Now(), wantLonger, ss.shown.index.Clock.Now().Unix()
	for _, st := range []*stream{ss.pair.mesh.cur, ss.pair.mesh.next, ss.pair.private.cur, ss.pair.private.next} {
		if st == nil {
			continue
		}
		var ds []signed.Digest
		for _, w := range st.wanted {
			if clock >= w.digest.Deadline { // nobody gives it, and nothing waits for it
				ss.reached.Store(nil)
				w.tries = max(w.tries, 1)
			} else if pause := w.next.Sub(now); pause > 0 {
				next = min(next, pause)
			} else if ds = append(ds, w.digest); len(ds) == limit {
				break
			}
		}
		if len(ds) > 0 {
			return st, ds, 0
		}
	}
	return nil, nil, next
}

// postpone notes what nobody gave, to ask again later and more seldom.
func (ss *streams) postpone(st *stream, asked []signed.Digest) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.reached.Store(nil)
	for _, d := range asked {
		if w := st.wanted[d.RID]; w != nil && protocol.NameOf(w.digest) == protocol.NameOf(d) {
			w.next = time.Now().Add(min(wantPause<<min(w.tries, 6), wantLonger))
			w.tries++
		}
	}
}
