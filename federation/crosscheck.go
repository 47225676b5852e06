package federation

import (
	"context"
	"net/url"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// crossChecks compares new pages of an origin with other domains and with nodes of the own
// domain, until ctx ends. An equivocating origin shows its contradictory pages to different
// nodes. Of a busy stream it compares a part. Comparisons with siblings and with domains
// progress independently, so that unreachable domains do not cause repeated requests to
// siblings.
func (fl *follower) crossChecks(ctx context.Context, origin *replica.Origin) {
	var done [2]crossed
	for wait(ctx, nil, fl.cfg.headPause()) {
		for i, f := range origin.Feeds() {
			fl.crossFeed(ctx, origin, f, &done[i])
		}
	}
}

// crossed is the progress of a stream's comparisons.
type crossed struct{ siblings, domains replica.Seen }

func (fl *follower) crossFeed(ctx context.Context, origin *replica.Origin, feed *replica.Feed, done *crossed) {
	now := origin.Seen(feed)
	if feed == &origin.Mesh {
		now.Keys = origin.Keys.NewestText()
	}

	done.siblings.Compare(now, func(since uint64) (uint64, bool) {
		return fl.crossSiblings(ctx, origin, feed, since, now.UpTo)
	})

	if feed == &origin.Mesh {
		// A new key document is compared with more domains, because those that are behind have an older one.
		most := crossDomains
		if done.domains.Keys != now.Keys {
			most = crossTries
		}

		done.domains.Compare(now, func(since uint64) (uint64, bool) {
			return fl.crossDomains(ctx, origin, since, now.UpTo, most)
		})
	}
}

// crossSiblings compares with nodes of the own domain. It returns the revision reached, and
// whether every node that answered was compared completely.
func (fl *follower) crossSiblings(ctx context.Context, origin *replica.Origin, feed *replica.Feed, since,
	upTo uint64) (reached uint64, enough bool) {
	reached, enough = upTo, true
	for _, node := range fl.peers.siblings(crossSiblings) {
		switch as, whole, err := fl.crossCheck(ctx, origin, feed, node, since, upTo); {
		case err != nil: // the sibling compares with this node once it is back
			fl.notCompared(origin, node, err)
		case whole:
			reached = min(reached, as)
		default:
			enough = false
		}
	}

	return reached, enough
}

// crossDomains compares with nodes of at most most other domains. It returns the revision reached, and
// whether the comparison covered crossDomains of them, or all if there are fewer.
func (fl *follower) crossDomains(ctx context.Context, origin *replica.Origin, since, upTo uint64, most int) (
	reached uint64, enough bool) {
	others, asked := fl.peers.others(origin.Domain), 0

	reached = upTo
	for i, node := range others {
		if asked == most || i == crossTries {
			break
		}

		as, whole, err := fl.crossCheck(ctx, origin, &origin.Mesh, node, since, upTo)
		if err != nil {
			fl.notCompared(origin, node, err)
		} else if whole {
			asked++
			reached = min(reached, as)
		}
	}

	return reached, asked >= min(crossDomains, len(others))
}

func (fl *follower) notCompared(o *replica.Origin, n protocol.Node, err error) {
	fl.cfg.Logger.Debug("comparing with another node failed", "origin", o.Domain.Name(), "node", n.Base, "err", err)
}

// crossCheck compares a node's pages of a stream between two revisions with this node's. For
// the mesh stream it also compares the origin's key document. It returns the revision
// reached, and whether that is upTo or the bound of one round.
func (fl *follower) crossCheck(ctx context.Context, origin *replica.Origin, feed *replica.Feed, node protocol.Node,
	since, upTo uint64) (reached uint64, whole bool, err error) {
	for pages, size := 0, 0; since < upTo && pages < crossPages && size < crossSize; pages++ {
		text, err := fl.client.Page(ctx, node, origin.Domain, feed.Aud, since)
		if err != nil || text == "" {
			return since, false, err
		}

		to, err := fl.crossPage(ctx, origin, node, text)
		if err != nil {
			return since, false, err
		}

		// A page without progress would be requested again and again.
		if to <= since {
			return since, false, errGap
		}

		since, size = to, size+len(text)
	}

	if feed == &origin.Mesh {
		err = fl.receiver.askHead(ctx, origin, node)
	}

	return min(since, upTo), true, err
}

// crossPage accepts a page that another node received, and returns the page's last revision.
// A page signed by a key that is no longer listed is not shown, but it may be one half of a
// contradiction; the verifier checks its signature. A page signed by a revoked key is no
// evidence, and the comparison continues after it.
func (fl *follower) crossPage(ctx context.Context, origin *replica.Origin, node protocol.Node,
	text string) (to uint64, err error) {
	p, _, err := fl.receiver.take(ctx, replica.Sender{Domain: node.Domain}, node, text)
	if err == nil {
		return p.To, nil
	}

	code := protocol.CodeOf(err)

	var old *replica.Page
	fl.cfg.Panics.Do(contain.Page, func() { old = fl.receiver.oldPage(origin, text) })

	switch {
	case old == nil:
		return 0, err
	case code == protocol.CodeKeyRevoked:
		return old.To, nil
	case code != protocol.CodeKeyUnknown:
		return 0, err
	}

	var other string

	err = fl.cfg.Panics.Run(contain.Page, func() (err error) {
		other, err = origin.Contradicted(old)
		return err
	})
	if err == nil && other != "" {
		fl.receiver.evidence.accuse(origin, []string{other, text},
			append(origin.Keys.Issued(), fl.keysFor(ctx, origin, node, old.KeyID)...))
	}

	return old.To, err
}

// oldPage parses a page whose signature the newest key document can't verify. It returns nil
// if text is not a page of one of the origin's streams.
func (rc *receiver) oldPage(origin *replica.Origin, text string) *replica.Page {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return nil
	}

	page, err := rc.cfg.Dialect.ParsePage(parts.Payload)
	if err != nil || page.Issuer != origin.Domain || origin.FeedOf(page.Audience) == nil {
		return nil
	}

	return &replica.Page{Page: page, Text: text, KeyID: protocol.KeyIDOf(parts.Header)}
}

// keysFor requests from a node the key document that lists a key, if no key document
// received by this node lists it.
func (fl *follower) keysFor(ctx context.Context, origin *replica.Origin, node protocol.Node, kid string) []string {
	if origin.Keys.IssuedFor(kid) != "" {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()

	text, err := fl.client.Get(ctx, node, protocol.PathKeys, url.Values{"origin": {origin.Domain.Name()}, "key": {kid}},
		protocol.MaxKeys)
	if err != nil {
		fl.notCompared(origin, node, err)
		return nil
	}

	return []string{text}
}

// The bounds of one round of comparisons for one origin. Pages beyond them may be compared
// later, or by another node.
const (
	crossPages   = 128     // requested from one node
	crossSize    = 2 << 20 // bytes of pages from one node, exceeded by at most one page
	crossDomains = 2       // domains with which all new pages are compared
	crossTries   = 16      // domains that are asked

	crossSiblings = 2 // nodes of the own domain with which new pages are compared
)
