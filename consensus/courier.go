package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Bounds of a follower's forwarding: what one message holds, and how many are
// under way. While they are, writes gather, as in the batcher; a message is one
// exchange with the leader however many writes are in it.
const (
	maxMessages     = 2
	maxMessage      = 128
	maxMessageBytes = 256 << 10
)

// A parcel is a write on its way to the leader. Whoever moves it from waiting
// decides its fate: the courier takes it, or its caller gives it up.
type parcel struct {
	request cbor.RawMessage
	weight  int // how many changes it is
	taken   atomic.Bool
	done    chan delivery // holds one
}

// A delivery is what came of a parcel.
type delivery struct {
	reply reply
	err   error
}

// As in the batcher, what is many changes waits by itself.
type courier struct {
	queue chan *parcel
	lists chan *parcel
}

func newCourier() courier {
	return courier{make(chan *parcel, maxWaiting), make(chan *parcel, maxWaiting)}
}

// A message is what goes to the leader at once, and the answers in its order.
type (
	message struct {
		Requests []cbor.RawMessage `cbor:"1,keyasint"`
	}
	answers struct {
		Replies []reply `cbor:"1,keyasint"`
		// NotLeader says that nothing was done, since the member does not lead.
		NotLeader bool `cbor:"2,keyasint,omitempty"`
		// Told is how far the leader's log is committed by now.
		Told *told `cbor:"3,keyasint,omitempty"`
	}
)

// forward sends a request to the leader, with what else goes there, and waits
// until this member has applied what it did. errNotLeader means that nothing was
// done.
func (s *Store) forward(ctx context.Context, req *request) (directory.Outcome, error) {
	raw, err := s.writeMessage(req)
	if err != nil {
		return directory.Outcome{}, err
	}
	p := &parcel{request: raw, weight: req.weight(), done: make(chan delivery, 1)}
	select {
	case s.courier.fits(p) <- p:
	case <-s.closing.Done():
		return directory.Outcome{}, errNotLeader
	case <-ctx.Done():
		return directory.Outcome{}, tooBusy(ctx)
	}
	select {
	case d := <-p.done:
		if d.err != nil {
			return directory.Outcome{}, d.err
		}
		return d.reply.result()
	case <-ctx.Done():
	case <-s.closing.Done():
	}
	if p.taken.CompareAndSwap(false, true) {
		return directory.Outcome{}, tooBusy(ctx)
	}
	return directory.Outcome{}, unknown(context.Cause(ctx))
}

// fits returns where a parcel waits.
func (c *courier) fits(p *parcel) chan<- *parcel {
	if p.weight > 1 {
		return c.lists
	}
	return c.queue
}

// carryLoop makes messages of what waits, one after the other: there are maxMessages
// such loops.
func (s *Store) carryLoop() {
	for {
		var first *parcel
		select {
		case first = <-s.courier.queue:
		case first = <-s.courier.lists: // in turn
		case <-s.closing.Done():
			return
		}
		s.carry(s.courier.gather(first))
	}
}

// gather takes first, what else waits of single changes, and lists as far as there is
// room, within bounds.
func (c *courier) gather(first *parcel) (group []*parcel) {
	size, changes := 0, 0
	for p := first; p != nil; p = nextOf(c.queue, c.lists, changes < maxChanges) {
		if p.taken.CompareAndSwap(false, true) {
			group = append(group, p)
			size += len(p.request)
			changes += p.weight
		}
		if len(group) == maxMessage || size >= maxMessageBytes {
			break
		}
	}
	return group
}

// carry takes a group to the leader and tells each of it what became of it, once
// this member shows it: so that the writer reads its write here.
func (s *Store) carry(group []*parcel) {
	if len(group) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Write)
	defer cancel()
	got, err := s.deliver(ctx, group)
	if err == nil {
		_ = s.Await(ctx, got.last()) // it is committed anyway
	}
	for i, p := range group {
		switch {
		case err != nil:
			p.done <- delivery{err: err}
		case got.Replies[i].NotLeader:
			p.done <- delivery{err: errNotLeader}
		default:
			p.done <- delivery{reply: got.Replies[i]}
		}
	}
}

// last is the position that has all of what was done.
func (a *answers) last() (last directory.Position) {
	for _, r := range a.Replies {
		if at := (directory.Position{Epoch: r.Epoch, Revision: r.Revision}); last.Before(at) {
			last = at
		}
	}
	return last
}

func (s *Store) deliver(ctx context.Context, group []*parcel) (*answers, error) {
	leader, tenure, ok := s.follow()
	if !ok || leader.ID == s.cfg.Node {
		return nil, errNotLeader
	}
	m := message{make([]cbor.RawMessage, len(group))}
	for i, p := range group {
		m.Requests[i] = p.request
	}
	line, err := s.lineTo(tenure, leader)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotLeader, err)
	}
	got, err := s.exchange(ctx, line, &m)
	switch {
	case err != nil:
		return nil, err
	case got.NotLeader:
		return nil, errNotLeader
	case len(got.Replies) != len(group):
		return nil, unknown(errors.New("the leader answered another number of writes"))
	}
	if got.Told != nil {
		s.hear(ctx, leader, got.Told)
	}
	return got, nil
}

// exchange sends a message over a line and returns what the other end answers.
func (s *Store) exchange(ctx context.Context, l *line, m *message) (*answers, error) {
	data, err := s.writeMessage(m)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	if data, err = l.ask(ctx, append(newFrame(len(data)), data...)); err != nil {
		return nil, err
	}
	var got answers
	if err := readMessage(data, &got); err != nil {
		return nil, unknown(err)
	}
	return &got, nil
}

// answerLine answers a message of a member's: a frame.
func (s *Store) answerLine(from spiffeid.ID, body []byte) (frame []byte) {
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Write)
	defer cancel()
	data, err := s.writeMessage(s.take(ctx, from, body))
	if err != nil {
		s.log.Error("encode an answer", "error", err)
	}
	return append(newFrame(len(data)), data...)
}

// take does the writes of a message as the leader, each of them by itself.
func (s *Store) take(ctx context.Context, from spiffeid.ID, body []byte) *answers {
	var m message
	if !s.leading.Load() || readMessage(body, &m) != nil || len(m.Requests) > maxMessage {
		return &answers{NotLeader: true}
	}
	got := answers{Replies: make([]reply, len(m.Requests))}
	begun := make([]beginning, len(m.Requests))
	var all sync.WaitGroup
	for i, raw := range m.Requests {
		b := &begun[i]
		req, err := requestFrom(from, raw)
		switch {
		case err != nil:
			b.err = err
		case req.brief():
			b.req = req
			b.command, b.err = s.command(req)
		default:
			all.Go(func() { got.Replies[i] = *replied(s.lead(ctx, req)) })
		}
	}
	for i := range begun { // once all are prepared: so they share an entry
		if b := &begun[i]; b.command != nil && b.err == nil {
			b.proposal, b.err = s.submit(ctx, b.command)
		}
	}
	for i := range begun {
		if b := &begun[i]; b.req != nil || b.err != nil {
			got.Replies[i] = *replied(s.end(ctx, b))
		}
	}
	all.Wait()
	if got.last().Epoch != 0 {
		got.Told = s.tell()
	}
	return &got
}

// A beginning is a request of a message that needs no goroutine of its own: most are
// of this kind, and come by the dozen.
type beginning struct {
	req      *request
	command  *state.Command
	proposal *proposal
	err      error
}

// brief reports whether a request is prepared without waiting for anything.
func (r *request) brief() bool { return r.Register != nil || r.Refresh != nil || r.Remove != nil }

// end returns what became of what was begun.
func (s *Store) end(ctx context.Context, b *beginning) (directory.Outcome, error) {
	if b.err != nil {
		return directory.Outcome{}, b.err
	}
	out, err := s.outcome(ctx, b.proposal)
	if b.req.moved(b.command, err) {
		return s.lead(ctx, b.req)
	}
	return out, err
}

// requestFrom reads a request of a member's.
func requestFrom(from spiffeid.ID, raw cbor.RawMessage) (*request, error) {
	req, err := decodeRequest(raw)
	switch {
	case err != nil:
		return nil, directory.Refuse(directory.BadRequest, "the leader doesn't know this request: its release is another: %w", err)
	case req.Attest != nil && req.Attest.Node != from:
		return nil, directory.Refuse(directory.Forbidden, "a member attests its own key only")
	}
	return req, nil
}

// replied is replyOf, or that this member does not lead.
func replied(out directory.Outcome, err error) *reply {
	if errors.Is(err, errNotLeader) {
		return &reply{NotLeader: true}
	}
	return replyOf(out, err)
}
