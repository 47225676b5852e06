package federation

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// What comparing may cost: pages of a chain are read at this pace for one origin,
// whoever sends what there is to compare. What isn't compared now may be later, or
// by another.
const (
	compareRate  = 20 // pages of a chain a second
	compareBurst = 100
	crossPages   = 128     // that another is asked for in one round
	crossSize    = 2 << 20 // bytes of them, or one page more
	crossLag     = 100_000 // revisions that a comparison may be behind
	crossFirst   = 10_000  // digests of a chain that is compared from its beginning
	crossDomains = 2       // with which all that is new is compared
	crossTries   = 16      // domains that are asked for that in one round

	crossSiblings = 2 // nodes of the own domain with which it is compared
)

// contradicted returns the page of the chain that says otherwise than p of the
// same registration and revision (evidence E1); "" for none. What is newer than
// the stream is here can't be compared, and that is nearly all that comes.
func (cp *comparer) contradicted(p *verifiedPage) (other string, err error) {
	cp.streams.mu.Lock()
	st := cp.streams.pair.feedOf(p.Audience).existing(p.Epoch)
	var upTo uint64
	if st != nil {
		upTo = st.state.Watermark
	}
	cp.streams.mu.Unlock()
	if st == nil || len(p.Digests) == 0 || p.Digests[0].Revision > upTo {
		return "", nil
	}
	err = cp.streams.store.Read(st.id, func(t *store.Tx) error {
		var page comparedPage
		for _, d := range p.Digests {
			if d.Revision > upTo {
				return nil
			}
			switch same, err := agrees(t, d); {
			case err != nil:
				return err
			case same:
				continue
			}
			if d.Revision > page.to {
				if !cp.pace.Allow() {
					return nil
				}
				if page, err = chainedPage(t, cp.cfg.Dialect, d.Revision); err != nil {
					return err
				}
			}
			if page.text != p.text && page.denies(d) {
				other = page.text
				return nil
			}
		}
		return nil
	})
	return other, err
}

// compare refuses a page that contradicts what is here, where that convicts its
// origin.
func (rc *receiver) compare(o *origin, p *verifiedPage) error {
	if rc.cfg.Court == nil {
		return nil
	}
	other, err := o.streams.comparer.contradicted(p)
	if err != nil || other == "" {
		return err
	}
	if rc.evidence.accuse(o, []string{other, p.text}, o.keys.issued()) {
		return &protocol.Refusal{Code: protocol.CodeEquivocation, Origin: o.domain, Err: errOffence}
	}
	return nil
}

// existing returns the stream of an epoch if there is one.
func (f *feed) existing(epoch uint64) *stream {
	for _, st := range []*stream{f.cur, f.next} {
		if st != nil && st.id.Epoch == epoch {
			return st
		}
	}
	return nil
}

// agrees reports whether d is what is held of its registration, which spares
// reading the chain for what comes twice as a matter of course. Whether it was put
// or renewed is not held, and makes no difference to what is shown.
func agrees(t *store.Tx, d signed.Digest) (bool, error) {
	h, err := t.Get(d.RID)
	if err != nil || h == nil || !d.Live() {
		return false, err
	}
	mine := h.Digest(d.RID)
	mine.Op = d.Op
	return mine == d, nil
}

// A comparedPage is a page of a chain, taken apart. The zero value lists nothing.
type comparedPage struct {
	text    string
	to      uint64
	digests map[directory.RID]signed.Digest
}

// chainedPage returns the page of the chain that brought revision r here.
func chainedPage(t *store.Tx, dialect signed.Dialect, r uint64) (comparedPage, error) {
	stored, to, err := t.PageOf(r)
	if err != nil || stored == nil {
		return comparedPage{to: math.MaxUint64}, err // nothing later either
	}
	parts, err := protocol.SplitJWS(stored.JWS)
	if err != nil {
		return comparedPage{}, store.ErrStore
	}
	page, err := dialect.ParsePage(parts.Payload)
	if errors.Is(err, signed.ErrUnsupported) { // a later release took it, which ran here before
		return comparedPage{text: stored.JWS, to: to}, nil
	}
	if err != nil {
		return comparedPage{}, store.ErrStore
	}
	c := comparedPage{text: stored.JWS, to: page.To, digests: make(map[directory.RID]signed.Digest, len(page.Digests))}
	for _, d := range page.Digests {
		c.digests[d.RID] = d
	}
	return c, nil
}

// denies reports whether the page lists another change by the number of d.
func (c *comparedPage) denies(d signed.Digest) bool {
	mine, ok := c.digests[d.RID]
	return ok && mine.Revision == d.Revision && mine != d
}

// crossChecks asks other domains, and nodes of the own, after there was something
// new, what the origin told them: who is told two things is told them apart. Of a
// busy stream it compares a part. The two go on by themselves: while no other domain
// can be reached, nobody asks his siblings again and again.
func (c *crossChecker) crossChecks(ctx context.Context, o *origin) {
	var done [2]crossed
	for wait(ctx, nil, c.cfg.headPause()) {
		for i, f := range o.streams.pair.feeds() {
			c.crossFeed(ctx, o, f, &done[i])
		}
	}
}

// crossed is how far a stream was compared with whom.
type crossed struct{ siblings, domains seen }

func (c *crossChecker) crossFeed(ctx context.Context, o *origin, f *feed, done *crossed) {
	now := o.streams.seen(f)
	if f == &o.streams.pair.mesh {
		now.keys = o.keys.newestText()
	}
	done.siblings.compare(now, func(since uint64) (uint64, bool) { return c.crossSiblings(ctx, o, f, since, now.upTo) })
	if f == &o.streams.pair.mesh {
		done.domains.compare(now, func(since uint64) (uint64, bool) { return c.crossDomains(ctx, o, since, now.upTo) })
	}
}

// compare has compared what is new in a stream since s, and notes how far that went.
// What is more than can be compared at a time is compared in the next round; of a
// stream that is always busier than that, a part.
func (s *seen) compare(now seen, with func(since uint64) (reached uint64, enough bool)) {
	if now == *s {
		return
	}
	if now.of != s.of {
		*s = seen{of: now.of, upTo: now.from}
	}
	if now.upTo > s.upTo+crossLag {
		s.upTo = now.upTo - rand.Uint64N(crossLag)
	}
	if reached, enough := with(s.upTo); enough { // else somebody is behind, and asked again
		*s = now
		s.upTo = reached
	}
}

// crossSiblings compares with nodes of the own domain, and returns how far, and whether
// all who answer are as far.
func (c *crossChecker) crossSiblings(ctx context.Context, o *origin, f *feed, since, upTo uint64) (reached uint64, enough bool) {
	reached, enough = upTo, true
	for _, n := range c.neighbours.siblings(crossSiblings) {
		switch as, whole, err := c.crossCheck(ctx, o, f, n, since, upTo); {
		case err != nil: // it asks this node once it is there again
			c.notCompared(o, n, err)
		case whole:
			reached = min(reached, as)
		default:
			enough = false
		}
	}
	return reached, enough
}

// crossDomains compares with nodes of other domains, and returns how far, and whether
// with as many as there are to be.
func (c *crossChecker) crossDomains(ctx context.Context, o *origin, since, upTo uint64) (reached uint64, enough bool) {
	others, asked := c.neighbours.others(o.domain), 0
	reached = upTo
	for i, n := range others {
		if asked == crossDomains || i == crossTries {
			break
		}
		as, whole, err := c.crossCheck(ctx, o, &o.streams.pair.mesh, n, since, upTo)
		if err != nil {
			c.notCompared(o, n, err)
		} else if whole {
			asked++
			reached = min(reached, as)
		}
	}
	return reached, asked == min(crossDomains, len(others))
}

func (c *crossChecker) notCompared(o *origin, n protocol.Node, err error) {
	c.cfg.Logger.Debug("can't compare with another", "origin", o.domain.Name(), "node", n.Base, "error", err)
}

// siblings returns up to n other nodes of the own domain, in random order.
func (nb *neighbours) siblings(n int) (some []protocol.Node) {
	if nb.cfg.Siblings == nil {
		return nil
	}
	bases := slices.Clone(nb.cfg.Siblings())
	rand.Shuffle(len(bases), func(i, j int) { bases[i], bases[j] = bases[j], bases[i] })
	for _, base := range bases[:min(n, len(bases))] {
		some = append(some, protocol.Node{Domain: nb.cfg.Domain, Base: base})
	}
	return some
}

// What is seen of a stream: how far it is here, and its origin's key document, which
// goes with the mesh's.
type seen struct {
	of   *stream // another one in another epoch, and when it is pulled anew (doubt.go)
	upTo uint64
	keys string
	from uint64 // from where on a stream is compared that wasn't yet
}

func (ss *streams) seen(f *feed) (s seen) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if st := f.cur; st != nil {
		s.of, s.upTo = st, st.state.Watermark
		if st.state.Listed > crossFirst {
			s.from = st.state.Watermark
		}
	}
	return s
}

// crossCheck compares what the node n has of a stream between two revisions with what
// is here, and of the mesh's its origin's key document. It returns how far it came, and
// whether that is all, or as much as is compared at a time.
func (c *crossChecker) crossCheck(ctx context.Context, o *origin, f *feed, n protocol.Node, since, upTo uint64) (reached uint64, whole bool, err error) {
	for pages, size := 0, 0; since < upTo && pages < crossPages && size < crossSize; pages++ {
		text, err := c.client.Page(ctx, n, o.domain, f.aud, since)
		if err != nil || text == "" {
			return since, false, err
		}
		to, err := c.crossPage(ctx, o, n, text)
		if err != nil {
			return since, false, err
		}
		if to <= since {
			return since, false, errGap
		}
		since, size = to, size+len(text)
	}
	if f == &o.streams.pair.mesh {
		err = c.receiver.askHead(ctx, o, n)
	}
	return min(since, upTo), true, err
}

// crossPage takes a page that another was told, and returns how far it goes. One by a
// key that is listed no longer is shown to nobody, but it may be one half of a
// contradiction; the court checks who signed it. One by a key that is revoked convicts
// nobody, and hides nothing that comes after it.
func (c *crossChecker) crossPage(ctx context.Context, o *origin, n protocol.Node, text string) (to uint64, err error) {
	p, _, err := c.receiver.take(ctx, sender{domain: n.Domain}, n, text)
	if err == nil {
		return p.To, nil
	}
	code := protocol.CodeOf(err)
	var old *verifiedPage
	c.cfg.Panics.Do(contain.Page, func() { old = c.gate.oldPage(o, text) })
	switch {
	case old == nil || c.cfg.Court == nil:
		return 0, err
	case code == protocol.CodeKeyRevoked:
		return old.To, nil
	case code != protocol.CodeKeyUnknown:
		return 0, err
	}

	var other string
	err = c.cfg.Panics.Run(contain.Page, func() (err error) {
		other, err = o.streams.comparer.contradicted(old)
		return err
	})
	if err == nil && other != "" {
		c.evidence.accuse(o, []string{other, text}, append(o.keys.issued(), c.keysFor(ctx, o, n, old.kid)...))
	}
	return old.To, err
}

// keysFor asks who was told something for the key document that it was told with,
// where none that this node was told lists that key.
func (c *crossChecker) keysFor(ctx context.Context, o *origin, n protocol.Node, kid string) []string {
	if o.keys.issuedFor(kid) != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()
	text, err := c.client.Get(ctx, n, protocol.PathKeys, url.Values{"origin": {o.domain.Name()}, "key": {kid}}, protocol.MaxKeys)
	if err != nil {
		c.notCompared(o, n, err)
		return nil
	}
	return []string{text}
}
