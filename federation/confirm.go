package federation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The pace and the bounds of confirmations. Announcements of one node are compared with those of the
// origin's other nodes, so that the key of one node neither silences its domain nor makes up
// registrations for long (rule S14).
const (
	confirmEvery = 10 * time.Second // while something is unconfirmed and a node answers
	confirmTime  = 5 * time.Second  // for the answers of one node
	confirmMost  = 8                // nodes that are asked at once
	confirmPages = 64               // of one node and stream in one round
	confirmSize  = 16 << 20         // bytes of them, exceeded by at most one page
)

// confirms has announcements of an origin confirmed until ctx ends. It asks nothing while everything is
// confirmed, and seldom while no second node of the origin answers.
func (fl *follower) confirms(ctx context.Context, origin *replica.Origin) {
	pause, rested := confirmEvery, time.Duration(0)

	for wait(ctx, nil, fl.cfg.Stretch.of(time.Duration(float64(confirmEvery)*(0.9+0.2*rand.Float64())))) {
		// What is unconfirmed is counted in time, however seldom the nodes are asked.
		if rested += confirmEvery; rested < pause {
			if err := origin.NoteUnconfirmed(time.Now()); err != nil && ctx.Err() == nil {
				fl.cfg.Logger.Debug("counting unconfirmed registrations failed", "origin", origin.Domain.Name(),
					"err", err)
			}

			continue
		}

		rested = 0

		// The key document comes first: by a false one the other nodes' announcements don't hold.
		contested, keysErr := fl.confirmKeys(ctx, origin)
		heard, err := fl.confirm(ctx, origin)
		err = errors.Join(keysErr, err, origin.NoteUnconfirmed(time.Now()))

		if err != nil && ctx.Err() == nil {
			fl.cfg.Logger.Debug("confirming announcements failed", "origin", origin.Domain.Name(), "err", err)
		}

		if pause = min(2*pause, fl.cfg.HeadEvery); heard || contested {
			pause = confirmEvery
		}
	}
}

// confirm takes one round: it asks one node, and all others if that one does not confirm everything. It
// reports whether nothing is left to confirm, or a second node has answered.
func (fl *follower) confirm(ctx context.Context, origin *replica.Origin) (heard bool, err error) {
	open, is, err := origin.Unconfirmed()
	if err != nil || !is {
		return err == nil, err
	}

	ask := func(ctx context.Context, node protocol.Node) (by spiffeid.ID, testimony replica.Testimony, err error) {
		testimony, err = fl.askNode(ctx, origin, open, node)
		return testimony.Node, testimony, err
	}

	nodes := confirmers(origin)
	if len(nodes) > 1 {
		settled, err := origin.Hear(open, askNodes(ctx, fl, origin, nodes[:1], ask), false, time.Now())
		if err != nil || settled {
			return settled, err
		}
	}

	all := askNodes(ctx, fl, origin, nodes, ask)
	settled, err := origin.Hear(open, all, true, time.Now())

	return settled || len(all) > 1, err
}

// confirmKeys takes one round about the origin's key document: it asks all nodes for theirs. It reports
// whether several have answered and none has confirmed the document.
func (fl *follower) confirmKeys(ctx context.Context, origin *replica.Origin) (contested bool, err error) {
	issued, is := origin.UnconfirmedKeys()
	nodes := confirmers(origin)

	// At its only known node nothing can be confirmed.
	if !is || len(nodes) < 2 {
		return false, nil
	}

	ask := func(ctx context.Context, node protocol.Node) (by spiffeid.ID, testimony replica.KeyTestimony, err error) {
		testimony, err = fl.askKeys(ctx, origin, node)
		return testimony.Node, testimony, err
	}

	all := askNodes(ctx, fl, origin, nodes, ask)
	settled, err := origin.HearKeys(issued, all, time.Now())

	return !settled && len(all) > 1, err
}

// confirmers returns nodes of an origin in a random order.
func confirmers(origin *replica.Origin) []protocol.Node {
	nodes := origin.Contacts.Nodes()
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })

	return nodes[:min(len(nodes), confirmMost)]
}

// askNodes asks nodes at once, and returns a testimony of each node that answered. A node has one voice, at however
// many addresses it answers.
func askNodes[T any](ctx context.Context, fl *follower, origin *replica.Origin, nodes []protocol.Node,
	ask func(context.Context, protocol.Node) (by spiffeid.ID, testimony T, err error)) []T {
	ctx, cancel := context.WithTimeout(ctx, fl.cfg.Stretch.of(confirmTime))
	defer cancel()

	var (
		mu     sync.Mutex
		asking sync.WaitGroup
	)

	all := map[spiffeid.ID]T{}

	for _, node := range nodes {
		asking.Go(func() {
			by, testimony, err := ask(ctx, node)
			if err != nil {
				fl.cfg.Logger.Debug("a node confirmed nothing", "origin", origin.Domain.Name(), "node", node.Base,
					"err", err)

				return
			}

			mu.Lock()
			defer mu.Unlock()

			all[by] = testimony
		})
	}

	asking.Wait()

	return slices.Collect(maps.Values(all))
}

// askKeys asks a node for its key document, and for a head that names it. A key document says for a day what
// it said once, so only the head shows that the node has no newer one.
func (fl *follower) askKeys(ctx context.Context, origin *replica.Origin, node protocol.Node) (
	testimony replica.KeyTestimony, err error) {
	query := url.Values{"origin": {origin.Domain.Name()}}

	testimony.Text, err = fl.client.Get(ctx, node, protocol.PathKeys, query, protocol.MaxKeys)
	if err != nil {
		return testimony, err
	}

	answer, err := fl.client.Ask(ctx, node, protocol.PathHeads, query, gossip.MaxHead)
	if err != nil {
		return testimony, err
	}

	err = fl.cfg.Panics.Run(contain.Keys, func() error {
		doc, payload, key, err := fl.cfg.Keys.VerifyBy(origin.Domain, testimony.Text, signed.TypeHead, answer.Text)
		if err != nil {
			return err
		}

		var stated verifiedMessage

		claim, err := stated.parse(fl.cfg.Dialect, signed.TypeHead, payload)

		switch {
		case err != nil:
			return err
		case claim.Issuer != origin.Domain:
			return errOrigin
		case key.Node != answer.By:
			return repeated(answer.By, key.Node)
		case stated.head.Keys != directory.HashOf(doc.Payload()):
			return errOtherKeys
		}

		testimony.Node, testimony.Issue = key.Node, protocol.Issue(doc)

		return nil
	})

	return testimony, err
}

var (
	errOtherKeys = errors.New("the head names another key document than the node's")
	errElsewhere = errors.New("the head and the page are by two nodes")
)

func (fl *follower) askNode(ctx context.Context, origin *replica.Origin, open replica.Unconfirmed,
	node protocol.Node) (testimony replica.Testimony, err error) {
	answer, err := fl.client.Ask(ctx, node, protocol.PathHeads, url.Values{"origin": {origin.Domain.Name()}},
		gossip.MaxHead)
	if err != nil {
		return testimony, err
	}

	stated, err := fl.openStated(origin, signed.TypeHead, answer)
	if err != nil {
		return testimony, err
	}

	testimony.Node = answer.By
	testimony.At = directory.Position{Epoch: stated.head.Epoch, Revision: stated.head.At}
	testimony.Size, testimony.Root = stated.head.Size, stated.head.Root

	for i, stream := range open.Streams {
		// Revisions of two epochs can't be compared.
		if stream.Since >= stream.UpTo || stream.ID.Epoch != testimony.At.Epoch {
			continue
		}

		testimony.Claims[i], err = fl.claims(ctx, origin, stream, node, testimony)
		if err != nil {
			return testimony, err
		}
	}

	return testimony, nil
}

// claims pulls the pages of a stream that a node signed, up to the bounds of one round.
func (fl *follower) claims(ctx context.Context, origin *replica.Origin, stream replica.UnconfirmedStream,
	node protocol.Node, by replica.Testimony) (*replica.Claims, error) {
	claims := &replica.Claims{Since: stream.Since, UpTo: stream.Since,
		Entries: map[directory.RID]signed.Digest{}}

	for pages, size := 0, 0; pages < confirmPages && size < confirmSize; pages++ {
		answer, err := fl.client.Ask(ctx, node, protocol.PathPages,
			protocol.PullQuery(origin.Domain, stream.ID.Audience, claims.UpTo), protocol.MaxPage)
		if err != nil {
			return nil, err
		}

		// An empty answer is not signed, so the connection has to show whose it is.
		if answer.By != by.Node {
			return nil, fmt.Errorf("%w: %s and %s", errElsewhere, by.Node, answer.By)
		}

		if answer.Text == "" { // nothing has changed since; the head is from before that answer
			claims.UpTo = max(claims.UpTo, by.At.Revision)

			break
		}

		stated, err := fl.openStated(origin, signed.TypePage, answer)
		if err != nil {
			return nil, err
		}

		page := stated.page
		if page.Audience != stream.ID.Audience || page.Epoch != stream.ID.Epoch {
			return nil, errOrigin
		}

		// Changes in a gap would count as left out. A page without progress would be requested again.
		if page.From > claims.UpTo || page.To <= claims.UpTo {
			return nil, errGap
		}

		for _, digest := range page.Digests {
			claims.Entries[digest.RID] = digest
		}

		claims.UpTo, size = page.To, size+len(answer.Text)

		if page.To == page.At {
			break
		}
	}

	return claims, nil
}

// openStated verifies the answer of a node of the origin: the node has signed it itself, because any other may repeat
// a former statement for a node that is away.
func (fl *follower) openStated(origin *replica.Origin, typ string, answer protocol.Answer) (stated verifiedMessage,
	err error) {
	err = fl.cfg.Panics.Run(contain.Page, func() error {
		payload, kid, err := fl.cfg.Keys.Verify(origin.Domain, typ, answer.Text)
		if err != nil {
			return err
		}

		claim, err := stated.parse(fl.cfg.Dialect, typ, payload)
		if err != nil {
			return err
		}

		switch signer := origin.NodeOf(kid); {
		case claim.Issuer != origin.Domain:
			return errOrigin
		case signer != answer.By:
			return repeated(answer.By, signer)
		case origin.Distrusts(kid):
			return replica.ErrDistrusted
		}

		return nil
	})

	return stated, err
}

func repeated(by, signer spiffeid.ID) error {
	return fmt.Errorf("%s repeats a statement of %s", by, signer)
}

// endTime bounds the answers of a peer's nodes to the question whether it goes on with this domain. The node
// that says the farewell waits for them.
const endTime = 2 * time.Second

// goesOn reports whether as many nodes of a peer that answer still take this domain for their peer as don't. A node
// has one voice, at however many addresses it answers.
func (fl *follower) goesOn(ctx context.Context, origin *replica.Origin) bool {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()

	nodes := origin.Contacts.Nodes()
	ends := askNodes(ctx, fl, origin, nodes[:min(len(nodes), confirmMost)],
		func(ctx context.Context, node protocol.Node) (by spiffeid.ID, ends bool, err error) {
			// Every peer gets the key document, whatever is exported to it.
			query := url.Values{"origin": {origin.Domain.Name()}}

			answer, err := fl.client.Ask(ctx, node, protocol.PathKeys, query, protocol.MaxKeys)
			if errors.Is(err, protocol.ErrDenied) || protocol.RejectsCertificate(err) {
				ends, err = true, nil
			}

			if answer.By.IsZero() {
				err = errors.Join(err, errNoNode)
			}

			return answer.By, ends, err
		})

	on := 0

	for _, is := range ends {
		if !is {
			on++
		}
	}

	// A node that didn't answer counts for neither side, so without an answer the peer doesn't go on.
	return on > 0 && 2*on >= len(ends)
}
