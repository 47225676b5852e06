package federation

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	disk "github.com/roster-mesh/roster/federation/store"
	"go.etcd.io/bbolt"
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
func (m *Mesh) compact(ctx context.Context, o *origin, f *feed) {
	o.mu.Lock()
	st := f.cur
	var state streamState
	if st != nil {
		state = st.state
	}
	gathering := f.next != nil
	n, ok := o.nodeAt(f.turn)
	o.mu.Unlock()
	if st == nil || gathering || !ok {
		return
	}
	weighs := state.Listed
	err := m.store.read(st.id, func(t *streamTx) error {
		weighs += linkWeight * t.chain().Sequence()
		return nil
	})
	if err != nil {
		if !errors.Is(err, disk.ErrStalled) {
			m.cfg.Logger.Error("can't read a chain", "origin", o.domain.Name(), "error", err)
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
	if err := m.repull(ctx, o, f, st, n, weighs+compactSlack); err != nil {
		m.cfg.Logger.Debug("can't renew a chain", "origin", o.domain.Name(), "node", n.Base, "error", err)
	}
}

// repull gathers a fresh chain. An origin that goes on for ever fills no disk: most
// is what the chain may weigh.
func (m *Mesh) repull(ctx context.Context, o *origin, f *feed, st *stream, n protocol.Node, most uint64) error {
	if _, err := m.store.change(st.id, func(_ *bbolt.Tx, t *streamTx) error { return t.newSpare() }); err != nil {
		return err
	}
	for since, weighs := uint64(0), uint64(0); ; {
		text, err := m.client.Page(ctx, n, o.domain, f.aud, since)
		if err != nil {
			return err
		}
		if text == "" {
			return errGap
		}
		var p *verifiedPage
		err = m.cfg.Panics.Run(contain.Page, func() (err error) {
			_, p, err = m.openPage(sender{domain: n.Domain}, text)
			return err
		})
		if err != nil {
			return m.refused(sender{domain: n.Domain}, text, err)
		}
		if p.From != since || p.Audience != f.aud || p.Epoch != st.id.epoch {
			return errGap
		}
		if p.To > o.since(f) { // new to the stream as well
			if _, _, err := m.take(ctx, sender{domain: n.Domain}, n, text); err != nil {
				return err
			}
		}
		if weighs += linkWeight + weight(p.SignedPage); weighs > most {
			return errLonger
		}
		since = p.To
		done, err := m.link(o, f, st, p)
		if done || err != nil {
			return err
		}
	}
}

// link adds a page to the fresh chain, and switches to it where it reaches as far
// as the stream.
func (m *Mesh) link(o *origin, f *feed, st *stream, p *verifiedPage) (done bool, err error) {
	if err := o.change.lock(m.store); err != nil {
		return false, err
	}
	defer o.change.unlock()

	if o.hasEnded() || f.cur != st {
		return true, nil
	}

	state, err := m.store.change(st.id, func(_ *bbolt.Tx, t *streamTx) error {
		if err := putPage(t.spare(), p.SignedPage, p.text); err != nil {
			return err
		}
		if done = p.To >= t.state.Watermark; !done {
			return nil
		}
		return t.switchChain()
	})
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()

		st.state = state
	}

	return done, err
}

// chainMost bounds what a chain lists beyond twice the live entries, where its
// origin doesn't let it be renewed: else it could fill the disk, quotas or not.
const chainMost = 2 << 20

// addPage appends a page that was just applied to the chain. One that is too long
// begins anew there, and is of use to those alone who are as far already.
func (t *streamTx) addPage(p *directory.SignedPage, text string) error {
	if t.state.Listed > 2*t.state.Live+chainMost {
		name := bucketChains[t.state.Chain]
		if err := t.bucket.DeleteBucket(name); err != nil {
			return err
		}
		if _, err := t.bucket.CreateBucket(name); err != nil {
			return err
		}
		t.state.Listed = 0
	}
	t.state.Listed += weight(p)
	return putPage(t.chain(), p, text)
}

// weight is what a page adds to what a chain lists; one without digests is a link as well.
func weight(p *directory.SignedPage) uint64 { return uint64(max(1, len(p.Digests))) }

// putPage adds a link to a chain; the bucket's sequence counts them.
func putPage(chain *bbolt.Bucket, p *directory.SignedPage, text string) error {
	if _, err := chain.NextSequence(); err != nil {
		return err
	}
	return chain.Put(binary.BigEndian.AppendUint64(nil, p.To), marshal(storedPage{From: p.From, Listed: weight(p), JWS: text}))
}

// pageAfter returns the chain's page that brings a receiver on from since. The
// chain has no gap, and begins at 0 unless it grew too long: where it begins later
// than since there is none.
func (t *streamTx) pageAfter(since uint64) (*storedPage, error) {
	k, v := t.chain().Cursor().Seek(binary.BigEndian.AppendUint64(nil, since+1))
	if k == nil {
		return nil, nil
	}
	p := new(storedPage)
	if err := unmarshal(v, p); err != nil || p.From > since {
		return nil, err
	}
	return p, nil
}

func (t *streamTx) spare() *bbolt.Bucket { return t.bucket.Bucket(bucketChains[1-t.state.Chain]) }

// newSpare empties the bucket in which a fresh chain is gathered.
func (t *streamTx) newSpare() error {
	name := bucketChains[1-t.state.Chain]
	if t.bucket.Bucket(name) != nil {
		if err := t.bucket.DeleteBucket(name); err != nil {
			return err
		}
	}
	_, err := t.bucket.CreateBucket(name)
	return err
}

// switchChain makes the fresh chain the one that is passed on.
func (t *streamTx) switchChain() error {
	fresh := t.spare()
	listed := uint64(0)
	err := fresh.ForEach(func(_, v []byte) error {
		var p storedPage
		err := unmarshal(v, &p)
		listed += p.Listed
		return err
	})
	if err != nil {
		return err
	}
	name := bucketChains[t.state.Chain]
	t.state.Chain, t.state.Listed = 1-t.state.Chain, listed
	return t.bucket.DeleteBucket(name)
}
