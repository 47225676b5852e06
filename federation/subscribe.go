package federation

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// uselessMost bounds the consecutive answers without news. A few are normal, because gossip
// may be faster. More mean that the node repeats itself, or answers without waiting; the
// subscription then ends.
const uselessMost = 3

// A subscription is a sequence of long polls at one of an origin's nodes.
type subscription struct {
	*follower
	o       *replica.Origin
	f       *replica.Feed
	n       protocol.Node
	pings   bool // n sends interim responses while it holds a pull
	useless int

	told  directory.Position // issue of the key document that n stated but that could not be pulled
	tried time.Time          // time of that pull
}

// subscribe follows a stream at one of its origin's nodes. It pulls missed pages first, and
// then new pages and key documents as they are issued. It returns only with an error, and
// calls well after each success.
func (fl *follower) subscribe(ctx context.Context, origin *replica.Origin, feed *replica.Feed, node protocol.Node,
	well func()) error {
	if feed == &origin.Mesh {
		if err := fl.receiver.askHead(ctx, origin, node); err != nil &&
			protocol.CodeOf(err) != protocol.CodeUnsupported {
			return err // pages may be readable even if the head is unsupported
		}
	}

	if err := fl.pullInTurn(ctx, origin, feed, node, unlimited(ctx)); err != nil {
		return err
	}

	well()

	for s := (&subscription{follower: fl, o: origin, f: feed, n: node}); ctx.Err() == nil; well() {
		if err := s.next(ctx); err != nil {
			return err
		}

		if !origin.Contacts.Lists(node) {
			return errMoved
		}
	}

	return ctx.Err()
}

// next waits for one answer and applies it.
func (s *subscription) next(ctx context.Context) (err error) {
	asked, known, hold := time.Now(), s.known(), s.hold()

	traced, whole := s.cfg.Tracer.Start(ctx, span.PeerPage)
	text, issue, err := s.await(traced, known, hold)

	if err != nil || text == "" {
		whole.Done(err)
	}

	if err != nil {
		return err
	}

	news := known.Before(issue) && s.followKeys(ctx, issue)
	if text == "" {
		return s.judge(news || time.Since(asked) >= hold/2) // half: clocks differ in rate
	}

	page, code, err := s.receiver.take(traced, replica.Sender{Domain: s.n.Domain}, s.n, text)
	whole.Done(err)

	if err == nil {
		err = s.judge(code == protocol.CodeApplied)
	}

	if err != nil || code == protocol.CodeApplied && page.To == page.At {
		return err
	}

	// The stream goes on after this page, or has a gap before it.
	return s.pullInTurn(ctx, s.o, s.f, s.n, unlimited(ctx))
}

// judge counts consecutive useless answers, and returns errNoNews after uselessMost.
func (s *subscription) judge(useful bool) error {
	if useful {
		s.useless = 0
		return nil
	}

	if s.useless++; s.useless > uselessMost {
		return errNoNews
	}

	return nil
}

// longPoll is the wait of a subscription, at most protocol.MaxWait.
const longPoll = 30 * time.Second

// known returns the issue of the key document beyond which the node is to report a later one.
func (s *subscription) known() directory.Position {
	held := s.peers.keysIssue(s.o.Domain)
	if held.Before(s.told) && time.Since(s.tried) < longPoll/2 {
		return s.told
	}

	return held
}

// hold returns the time for which n is to hold a pull without news. A node of an earlier
// release sends nothing meanwhile, so it is asked again after the time in which another would
// ping. The first pull shows which of both n is.
func (s *subscription) hold() time.Duration {
	if s.pings {
		return longPoll
	}

	return min(longPoll, s.cfg.Stretch.of(protocol.PingEvery))
}

// await waits for the next page of the stream, or for a later issue of the origin's key
// document than known, for at most hold. text is "" if there was no page. issue is the one
// that the node stated, or zero.
func (s *subscription) await(ctx context.Context, known directory.Position, hold time.Duration) (text string,
	issue directory.Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, hold+protocol.AnswerTime)
	defer cancel()

	run := s.o.Run()
	stop := context.AfterFunc(run, cancel)
	defer stop()

	ping := s.cfg.Stretch.of(protocol.PingEvery).Truncate(time.Second)
	values := protocol.PullQuery(s.o.Domain, s.f.Aud, s.o.Since(s.f))
	values.Set("wait", hold.String())
	values.Set("keys", directory.FormatIndex(s.o.Domain, known))

	if ping < longPoll {
		values.Set("ping", ping.String())
	}

	ctx, step := span.Start(ctx, span.Ask)
	defer func() { step.Done(err) }()

	held, err := s.client.Hold(ctx, s.n, protocol.PathPages, values, protocol.MaxPage, min(ping, hold)+pingDelay)

	// The stream is pulled from its beginning again, so this answer is to an outdated position.
	if run.Err() != nil {
		return "", issue, nil
	}

	if err != nil {
		return "", issue, err
	}

	s.pings = held.Pinged

	// A missing header, or one in a later format, is ignored.
	s.cfg.Panics.Do(contain.Answer, func() {
		if _, told, err := directory.ParseIndex(held.Header.Get(protocol.HeaderKeys)); err == nil {
			issue = told
		}
	})

	return held.Text, issue, nil
}

// pingDelay is how late an answer to a held pull may be before another node is asked. It
// leaves time to ask that one before the peer counts as unreachable.
const pingDelay = 3 * time.Second

// followKeys pulls the issue of the key document that the node stated, and reports whether it was
// received. A failure does not end the subscription, because pages may use known keys.
func (s *subscription) followKeys(ctx context.Context, issue directory.Position) bool {
	err := s.receiver.followKeys(ctx, s.o, s.n, issue)
	if err == nil {
		return true
	}

	s.cfg.Logger.Debug("pulling a key document failed", "origin", s.o.Domain.Name(), "node", s.n.Base, "err", err)
	s.told, s.tried = issue, time.Now()
	s.o.Complain(err)
	replica.Wake(s.o.Ask) // another node may have it

	return false
}
