package federation

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// askHead requests an origin's head from a node, and the key document if the head names
// another one than the known one.
func (rc *receiver) askHead(ctx context.Context, origin *replica.Origin, node protocol.Node) error {
	timed, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()

	text, err := rc.client.Get(timed, node, protocol.PathHeads, url.Values{"origin": {origin.Domain.Name()}},
		gossip.MaxHead)
	if errors.Is(err, protocol.ErrDenied) && node.Domain == origin.Domain {
		// The key document shows whether this domain is still listed.
		if failed := rc.refreshKeys(ctx, origin, node); failed != nil {
			return failed
		}

		if origin.IsUnlisted() {
			return replica.ErrUnlisted
		}

		return err
	}

	if err != nil {
		return err
	}

	return rc.takeHead(ctx, replica.Sender{Domain: node.Domain}, node, text)
}

func (rc *receiver) takeHead(ctx context.Context, from replica.Sender, giver protocol.Node, text string) error {
	return rc.cfg.Panics.Run(contain.Head, func() error { return rc.judgeHead(ctx, from, giver, text) })
}

func (rc *receiver) judgeHead(ctx context.Context, from replica.Sender, giver protocol.Node, text string) error {
	verified, err := rc.verifyWithKeys(ctx, from, giver, signed.TypeHead, text)
	if err == nil {
		err = verified.origin.Admit(verified.claim)
	}

	if err != nil {
		return rc.refuse(from, text, err)
	}

	origin, head := verified.origin, verified.head

	if err := origin.AcceptHead(head, text); err != nil {
		return err
	}

	if doc, _, ok := rc.cfg.Keys.Keys(origin.Domain); (!ok || directory.HashOf(doc.Payload()) != head.Keys) &&
		origin.Contacts.MayRefresh(from) {
		// The head's key is known, and pages may use known keys too.
		if err := rc.refreshKeys(ctx, origin, giver); err != nil {
			origin.Complain(err)
		}
	}

	return nil
}

// refreshKeys pulls an origin's key document from a node that has it. An invalid document
// changes nothing.
func (rc *receiver) refreshKeys(ctx context.Context, origin *replica.Origin, node protocol.Node) error {
	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()

	text, err := rc.client.Get(ctx, node, protocol.PathKeys, url.Values{"origin": {origin.Domain.Name()}},
		protocol.MaxKeys)
	if err != nil {
		return err
	}

	err = rc.cfg.Panics.Run(contain.Keys, func() error { return origin.Adopt(text, node.Domain == origin.Domain) })

	if two, ok := errors.AsType[forked](err); ok {
		held, other := two.Forked()
		rc.evidence.accuse(origin, nil, []string{held, other})
	}

	if err != nil {
		return fmt.Errorf("key document of %s: %w", origin.Domain.Name(), err)
	}

	rc.evidence.recall(origin)

	return nil
}

// followKeys pulls the issue of the key document that a node stated. Each node thus receives a
// revocation as early as a change; gossip does not reach every node.
func (rc *receiver) followKeys(ctx context.Context, origin *replica.Origin, node protocol.Node,
	issue directory.Position) error {
	ctx, cancel := context.WithTimeout(ctx, protocol.PrefetchTime) // pages wait for this pull
	defer cancel()

	select {
	case origin.Contacts.Following <- struct{}{}: // both subscriptions report the same issue
		defer func() { <-origin.Contacts.Following }()
	case <-ctx.Done():
		return ctx.Err()
	}

	if !rc.peers.keysIssue(origin.Domain).Before(issue) {
		return nil
	}

	if err := origin.Contacts.Issuing.Wait(ctx); err != nil {
		return err
	}

	if err := rc.refreshKeys(ctx, origin, node); err != nil {
		return err
	}

	if rc.peers.keysIssue(origin.Domain).Before(issue) {
		return errNoNews
	}

	return nil
}

// newestKeys pulls an origin's key document from the first of its nodes that returns one.
func (rc *receiver) newestKeys(ctx context.Context, o *replica.Origin) (err error) {
	for _, n := range o.Contacts.Nodes() {
		if err = rc.refreshKeys(ctx, o, n); err == nil {
			break
		}
	}

	return err
}

// A forked error reports two key documents of an origin with the same epoch and seq, and
// carries both (evidence E3).
type forked interface {
	error
	Forked() (held, other string)
}
