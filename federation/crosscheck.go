package federation

import (
	"context"
	"net/url"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// A crossChecker compares what an origin told this node with what it told others.
type crossChecker struct {
	cfg        *Config
	client     *protocol.Client
	neighbours *neighbours
	receiver   *receiver
	gate       *gate
	evidence   reporter
}

// crossChecks asks other domains, and nodes of the own, after there was something
// new, what the origin told them: who is told two things is told them apart. Of a
// busy stream it compares a part. The two go on by themselves: while no other domain
// can be reached, nobody asks his siblings again and again.
func (c *crossChecker) crossChecks(ctx context.Context, origin *replica.Origin) {
	var done [2]crossed
	for wait(ctx, nil, c.cfg.headPause()) {
		for i, f := range origin.Streams.Pair.Feeds() {
			c.crossFeed(ctx, origin, f, &done[i])
		}
	}
}

// crossed is how far a stream was compared with whom.
type crossed struct{ siblings, domains replica.Seen }

func (c *crossChecker) crossFeed(ctx context.Context, origin *replica.Origin, feed *replica.Feed, done *crossed) {
	now := origin.Streams.Seen(feed)
	if feed == &origin.Streams.Pair.Mesh {
		now.Keys = origin.Keys.NewestText()
	}

	done.siblings.Compare(now, func(since uint64) (uint64, bool) {
		return c.crossSiblings(ctx, origin, feed, since, now.UpTo)
	})

	if feed == &origin.Streams.Pair.Mesh {
		done.domains.Compare(now, func(since uint64) (uint64, bool) {
			return c.crossDomains(ctx, origin, since, now.UpTo)
		})
	}
}

// crossSiblings compares with nodes of the own domain, and returns how far, and whether
// all who answer are as far.
func (c *crossChecker) crossSiblings(ctx context.Context, origin *replica.Origin, feed *replica.Feed, since,
	upTo uint64) (reached uint64, enough bool) {
	reached, enough = upTo, true
	for _, node := range c.neighbours.siblings(crossSiblings) {
		switch as, whole, err := c.crossCheck(ctx, origin, feed, node, since, upTo); {
		case err != nil: // it asks this node once it is there again
			c.notCompared(origin, node, err)
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
func (c *crossChecker) crossDomains(ctx context.Context, origin *replica.Origin, since, upTo uint64) (reached uint64,
	enough bool) {
	others, asked := c.neighbours.others(origin.Domain), 0

	reached = upTo
	for i, node := range others {
		if asked == crossDomains || i == crossTries {
			break
		}

		as, whole, err := c.crossCheck(ctx, origin, &origin.Streams.Pair.Mesh, node, since, upTo)
		if err != nil {
			c.notCompared(origin, node, err)
		} else if whole {
			asked++
			reached = min(reached, as)
		}
	}

	return reached, asked == min(crossDomains, len(others))
}

func (c *crossChecker) notCompared(o *replica.Origin, n protocol.Node, err error) {
	c.cfg.Logger.Debug("comparing with another node failed", "origin", o.Domain.Name(), "node", n.Base, "err", err)
}

// crossCheck compares what the node n has of a stream between two revisions with what
// is here, and of the mesh's its origin's key document. It returns how far it came, and
// whether that is all, or as much as is compared at a time.
func (c *crossChecker) crossCheck(ctx context.Context, origin *replica.Origin, feed *replica.Feed, node protocol.Node,
	since, upTo uint64) (reached uint64, whole bool, err error) {
	for pages, size := 0, 0; since < upTo && pages < crossPages && size < crossSize; pages++ {
		text, err := c.client.Page(ctx, node, origin.Domain, feed.Aud, since)
		if err != nil || text == "" {
			return since, false, err
		}

		to, err := c.crossPage(ctx, origin, node, text)
		if err != nil {
			return since, false, err
		}

		if to <= since {
			return since, false, errGap
		}

		since, size = to, size+len(text)
	}

	if feed == &origin.Streams.Pair.Mesh {
		err = c.receiver.askHead(ctx, origin, node)
	}

	return min(since, upTo), true, err
}

// crossPage takes a page that another was told, and returns how far it goes. One by a
// key that is listed no longer is shown to nobody, but it may be one half of a
// contradiction; the verifier checks who signed it. One by a key that is revoked convicts
// nobody, and hides nothing that comes after it.
func (c *crossChecker) crossPage(ctx context.Context, origin *replica.Origin, node protocol.Node,
	text string) (to uint64, err error) {
	p, _, err := c.receiver.take(ctx, replica.Sender{Domain: node.Domain}, node, text)
	if err == nil {
		return p.To, nil
	}

	code := protocol.CodeOf(err)

	var old *replica.Page
	c.cfg.Panics.Do(contain.Page, func() { old = c.gate.oldPage(origin, text) })

	switch {
	case old == nil || c.cfg.Verifier == nil:
		return 0, err
	case code == protocol.CodeKeyRevoked:
		return old.To, nil
	case code != protocol.CodeKeyUnknown:
		return 0, err
	}

	var other string

	err = c.cfg.Panics.Run(contain.Page, func() (err error) {
		other, err = origin.Streams.Comparer.Contradicted(old)
		return err
	})
	if err == nil && other != "" {
		c.evidence.accuse(origin, []string{other, text},
			append(origin.Keys.Issued(), c.keysFor(ctx, origin, node, old.KeyID)...))
	}

	return old.To, err
}

// keysFor asks who was told something for the key document that it was told with,
// where none that this node was told lists that key.
func (c *crossChecker) keysFor(ctx context.Context, origin *replica.Origin, node protocol.Node, kid string) []string {
	if origin.Keys.IssuedFor(kid) != "" {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()

	text, err := c.client.Get(ctx, node, protocol.PathKeys, url.Values{"origin": {origin.Domain.Name()}, "key": {kid}},
		protocol.MaxKeys)
	if err != nil {
		c.notCompared(origin, node, err)
		return nil
	}

	return []string{text}
}

// What comparing may cost: pages of a chain are read at this pace for one origin,
// whoever sends what there is to compare. What isn't compared now may be later, or
// by another.
const (
	crossPages   = 128     // that another is asked for in one round
	crossSize    = 2 << 20 // bytes of them, or one page more
	crossDomains = 2       // with which all that is new is compared
	crossTries   = 16      // domains that are asked for that in one round

	crossSiblings = 2 // nodes of the own domain with which it is compared
)
