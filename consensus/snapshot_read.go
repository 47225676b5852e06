package consensus

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// readSnapshot reads what write wrote into a new state. The index, if there is one, is
// left alone until fillIndex. It also fills h.
func readSnapshot(r io.Reader, domain spiffeid.TrustDomain, index *index.Index, h *snapshotHeader) (*state, error) {
	s := newState(domain, index)
	dec := decoding.NewDecoder(bufio.NewReaderSize(r, 1<<16))
	if err := dec.Decode(h); err != nil {
		return nil, err
	}
	switch {
	case !readsSnapshot(h.Version):
		return nil, newerSnapshot(h.Version, newestSnapshotVersion)
	case h.Domain != domain.Name():
		return nil, fmt.Errorf("it is of %s; this is a member of %s", h.Domain, domain.Name())
	}
	s.epoch, s.revision, s.now, s.policy = h.Epoch, h.Revision, h.Now, h.Policy
	s.verdict = h.Verdict
	s.ledger, s.sealed = frontier{h.Size, h.Edges}, h.Sealed
	s.restored = h.Restored
	s.written = h.Written
	if h.Rules != nil {
		s.rules = *h.Rules
	}
	if h.Law != nil {
		s.law = *h.Law
	}
	if h.Issued != nil {
		var err error
		if s.issued, err = directory.ParseKeyDocument(h.Issued); err != nil {
			return nil, err
		}
		s.revoked = s.issued.Revoked
	}
	s.regs.reserve(min(h.Regs, maxReserved))
	err := errors.Join(
		decodeEach(dec, h.Peerings, func(p peer) { s.peerings[p.Domain] = directory.Peering(p) }),
		decodeEach(dec, h.Keys, func(k keySnapshot) {
			if k.Until != 0 {
				s.rotated = append(s.rotated, rotatedKey{k.key(), k.Until})
			} else {
				s.keys[k.Node] = k.key()
			}
		}),
		decodeEach(dec, h.Formers, func(f former) { s.former.owners[f.RID], s.former.queue = f, append(s.former.queue, f) }),
		decodeEach(dec, h.Holds, func(o hold) { s.holds.names[o.Agent], s.holds.queue = o, append(s.holds.queue, o) }),
		decodeEach(dec, h.Members, func(m member) { s.members[m.ID] = m }),
		decodeEach(dec, h.Admitted, func(a admission) { s.admitted[a.ID] = a.Until }),
		decodeEach(dec, h.Spent, func(p spend) { s.spent.add(p) }),
		decodeEach(dec, h.Claims, func(c claimed) { s.claims.add(&c) }),
		decodeMany(dec, h.Regs, func(w *regSnapshot) (*registration, error) { return w.thaw(domain) }, func(reg *registration) {
			e := &reg.entry
			e.Unconfirmed = reg.epoch != h.Epoch || h.Sealed != ""
			e.Owner = s.shared(e.Owner)
			reg.others = s.named(reg.provenance())
			s.count(e.Owner, reg.usage())
			s.regs.put(reg)
		}),
	)
	if err != nil {
		return s, err
	}
	var building sync.WaitGroup
	if index != nil {
		building.Go(s.buildIndex)
	}
	defer building.Wait()
	for range h.Streams {
		if err := s.readStream(dec); err != nil {
			return s, err
		}
	}
	for reg := range s.regs.each() {
		s.plan(reg)
	}
	return s, nil
}

// maxReserved bounds what a header has room made for before there is anything.
const maxReserved = 4 << 20

type decoder interface{ Decode(v any) error }

func decodeEach[T any](dec decoder, n int, each func(T)) error {
	for range n {
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		each(v)
	}
	return nil
}

// A part is what one goroutine decodes at once of many items, in the order in which
// they were written.
type part[U any] struct {
	raws   []cbor.RawMessage
	thawed []U
	err    error
	done   chan struct{}
}

// atOnce is how many items a part has.
const atOnce = 256

// decodeMany is decodeEach where there may be 10^6: while one goroutine reads, the
// processors share the work of decoding and of thaw, and each has the items in order,
// one at a time.
func decodeMany[T, U any](dec decoder, n int, thaw func(*T) (U, error), each func(U)) (err error) {
	parts := make(chan *part[U], 2*runtime.GOMAXPROCS(0)) // bounds the goroutines as well
	var failed atomic.Bool
	go func() {
		defer close(parts)
		for n > 0 && !failed.Load() {
			p := &part[U]{raws: make([]cbor.RawMessage, min(n, atOnce)), done: make(chan struct{})}
			n -= len(p.raws)
			for i := range p.raws {
				if p.err = dec.Decode(&p.raws[i]); p.err != nil {
					close(p.done)
					parts <- p
					return
				}
			}
			go decodePart(p, thaw)
			parts <- p
		}
	}()
	for p := range parts {
		<-p.done
		if err == nil {
			err = p.err
		}
		failed.Store(err != nil)
		if err != nil {
			continue // until nobody reads any more
		}
		for _, v := range p.thawed {
			each(v)
		}
	}
	return err
}

func decodePart[T, U any](p *part[U], thaw func(*T) (U, error)) {
	defer close(p.done)
	p.thawed = make([]U, len(p.raws))
	for i, raw := range p.raws {
		var v T
		if p.err = decoding.Unmarshal(raw, &v); p.err == nil {
			p.thawed[i], p.err = thaw(&v)
		}
		if p.err != nil {
			return
		}
	}
}

func (s *state) readStream(dec decoder) error {
	var h streamHeader
	if err := dec.Decode(&h); err != nil {
		return err
	}
	st := newStream()
	s.streams[h.Audience] = st
	st.entries.reserve(min(h.Entries, maxReserved))
	err := decodeMany(dec, h.Entries, (*announcedSnapshot).thaw, func(a announced) {
		st.entries.set(a)
		st.order.add(place{a.revision, a.rid}, func(place) bool { return false })
		if d := a.digest(); !d.Live() {
			s.endings.Push(ending{a.highest + int64(directory.Skew.Seconds()), h.Audience, d.RID, d.Revision})
		}
	})
	st.tip = h.Tip
	return err
}

func (w *announcedSnapshot) thaw() (announced, error) {
	d := directory.Digest{RID: w.RID, Revision: w.Revision, Op: w.Op, H: w.H, M: w.M, Deadline: w.Deadline, Lifetime: w.Lifetime}
	a := announcedAs(d, w.Highest)
	if a.op == 0 {
		return a, fmt.Errorf("a digest of registration %s says %.20q, which this release does not know", w.RID, w.Op)
	}
	return a, nil
}

// buildIndex makes ready what the index is to hold: what s holds and nothing else.
func (s *state) buildIndex() {
	es := make([]*directory.Entry, 0, s.regs.len())
	for reg := range s.regs.each() {
		es = append(es, &reg.entry)
	}
	s.load = s.index.Build(es)
}

// fillIndex makes the index hold what was read. It is called once.
func (s *state) fillIndex() {
	s.load()
	s.load = nil
}
