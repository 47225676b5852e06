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
func (m *Mesh) compact(ctx context.Context, o *origin) {
	o.mu.Lock()
	st := o.cur
	due := st != nil && o.next == nil && st.state.Listed > 2*st.state.Live+compactSlack
	n, ok := o.nodeAt(o.turn)
	o.mu.Unlock()
	if !due || !ok {
		return
	}
	select {
	case o.busy <- struct{}{}:
		defer func() { <-o.busy }()
	default:
		return
	}
	if err := m.repull(ctx, o, st, n); err != nil {
		m.cfg.Logger.Debug("can't renew a chain", "origin", o.domain.Name(), "node", n.base, "error", err)
	}
}

func (m *Mesh) repull(ctx context.Context, o *origin, st *stream, n node) error {
	if _, err := m.store.change(st.id, func(_ *bbolt.Tx, t *streamTx) error { return t.newSpare() }); err != nil {
		return err
	}
	for since := uint64(0); ; {
		text, err := m.getPage(ctx, n, o.domain, since, 0)
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
		if p.From != since || p.Epoch != st.id.epoch {
			return errGap
		}
		if p.To > o.since() { // new to the stream as well
			if _, _, err := m.take(ctx, sender{domain: n.domain}, n, text); err != nil {
				return err
			}
		}
		since = p.To
		done, err := m.link(o, st, p)
		if done || err != nil {
			return err
		}
	}
}

// link adds a page to the fresh chain, and switches to it where it reaches as far
// as the stream.
func (m *Mesh) link(o *origin, st *stream, p *verifiedPage) (done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.cur != st {
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
