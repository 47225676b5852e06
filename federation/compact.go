package federation

import (
	"context"
	"errors"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// compactSlack is what a chain may weigh beyond twice the live entries. Each link weighs
// linkWeight digests beside those that it lists: whoever is given the chain asks for each
// link and writes each down, which takes as long as so many digests of one page. A node
// that followed an origin from its beginning has a link for every change.
const (
	compactSlack = 4096
	linkWeight   = 16
)

var errLonger = errors.New("its fresh pages list more than those that they would replace")

// compact pulls an origin's chain anew from 0 where it weighs more than twice what
// is alive (federation.md, "Pages"): fresh pages are gathered beside the chain and
// take its place once they reach as far.
func (pl *puller) compact(ctx context.Context, o *origin, f *feed) {
	st, state, gathering := o.streams.chainOf(f)
	n, ok := o.contacts.node(f)
	if st == nil || gathering || !ok {
		return
	}
	weighs := state.Listed
	err := pl.store.Read(st.id, func(t *store.Tx) error {
		weighs += linkWeight * t.Links()
		return nil
	})
	if err != nil {
		if !errors.Is(err, store.ErrStalled) {
			pl.cfg.Logger.Error("can't read a chain", "origin", o.domain.Name(), "error", err)
		}
		return
	}

	if weighs <= 2*state.Live+compactSlack {
		return
	}
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	default:
		return
	}
	if err := pl.repull(ctx, o, f, st, n, weighs+compactSlack); err != nil {
		pl.cfg.Logger.Debug("can't renew a chain", "origin", o.domain.Name(), "node", n.Base, "error", err)
	}
}

// repull gathers a fresh chain. An origin that goes on for ever fills no disk: most
// is what the chain may weigh.
func (pl *puller) repull(ctx context.Context, o *origin, f *feed, st *stream, n protocol.Node, most uint64) error {
	if _, err := pl.store.Change(st.id, func(t *store.Tx) error { return t.BeginFreshChain() }); err != nil {
		return err
	}
	for since, weighs := uint64(0), uint64(0); ; {
		text, err := pl.client.Page(ctx, n, o.domain, f.aud, since)
		if err != nil {
			return err
		}
		if text == "" {
			return errGap
		}
		var p *verifiedPage
		err = pl.cfg.Panics.Run(contain.Page, func() (err error) {
			_, p, err = pl.gate.openPage(sender{domain: n.Domain}, text)
			return err
		})
		if err != nil {
			return pl.receiver.refuse(sender{domain: n.Domain}, text, err)
		}
		if p.From != since || p.Audience != f.aud || p.Epoch != st.id.Epoch {
			return errGap
		}
		if p.To > o.streams.since(f) { // new to the stream as well
			if _, _, err := pl.receiver.take(ctx, sender{domain: n.Domain}, n, text); err != nil {
				return err
			}
		}
		if weighs += linkWeight + store.Weight(p.Page); weighs > most {
			return errLonger
		}
		since = p.To
		done, err := o.streams.link(f, st, p)
		if done || err != nil {
			return err
		}
	}
}

// link adds a page to the fresh chain, and switches to it where it reaches as far
// as the stream.
func (ss *streams) link(f *feed, st *stream, p *verifiedPage) (done bool, err error) {
	if err := ss.change.lock(ss.store); err != nil {
		return false, err
	}
	defer ss.change.unlock()

	if ss.hasEnded() || f.cur != st {
		return true, nil
	}

	state, err := ss.store.Change(st.id, func(t *store.Tx) error {
		if err := t.AddFresh(p.Page, p.text); err != nil {
			return err
		}
		if done = p.To >= t.State.Watermark; !done {
			return nil
		}
		return t.SwitchChain()
	})
	if err == nil {
		ss.mu.Lock()
		defer ss.mu.Unlock()

		st.state = state
	}

	return done, err
}
