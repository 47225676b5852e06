package federation

import (
	"context"

	"go.etcd.io/bbolt"
)

// compactSlack is what a chain may list beyond twice the live entries.
const compactSlack = 4096

// compact pulls an origin's chain anew from 0 where it lists more than twice what
// is alive (federation.md, "Pages"): fresh pages are gathered beside the chain and
// take its place once they reach as far.
func (m *Mesh) compact(ctx context.Context, o *origin, f *feed) {
	o.mu.Lock()
	st := f.cur
	due := st != nil && f.next == nil && st.state.Listed > 2*st.state.Live+compactSlack
	n, ok := o.nodeAt(f.turn)
	o.mu.Unlock()
	if !due || !ok {
		return
	}
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	default:
		return
	}
	if err := m.repull(ctx, o, f, st, n); err != nil {
		m.cfg.Logger.Debug("can't renew a chain", "origin", o.domain.Name(), "node", n.base, "error", err)
	}
}

func (m *Mesh) repull(ctx context.Context, o *origin, f *feed, st *stream, n node) error {
	if _, err := m.store.change(st.id, func(_ *bbolt.Tx, t *streamTx) error { return t.newSpare() }); err != nil {
		return err
	}
	for since := uint64(0); ; {
		text, err := m.getPage(ctx, n, o.domain, f.aud, since, 0)
		if err != nil {
			return err
		}
		if text == "" {
			return errGap
		}
		_, p, err := m.openPage(sender{domain: n.domain}, text)
		if err != nil {
			return m.refused(sender{domain: n.domain}, text, err)
		}
		if p.From != since || p.Audience != f.aud || p.Epoch != st.id.epoch {
			return errGap
		}
		if p.To > o.since(f) { // new to the stream as well
			if _, _, err := m.take(ctx, sender{domain: n.domain}, n, text); err != nil {
				return err
			}
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
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || f.cur != st {
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
		st.state = state
	}
	return done, err
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
