package state

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/signed"
)

// maxReserved bounds for how many items room is made before any was read.
const maxReserved = 4 << 20

// Parallel lets Read share its work among processors. The zero value does all of it in
// the caller's goroutine.
type Parallel struct {
	Run   func(task func()) // runs a task beside the caller
	Ahead int               // how many tasks may be under way at a time
}

// start runs a task, and returns a channel that is closed once it is done.
func (p Parallel) start(task func()) <-chan struct{} {
	done := make(chan struct{})

	run := p.Run
	if run == nil {
		run = func(task func()) { task() }
	}

	run(func() {
		defer close(done)
		task()
	})

	return done
}

// Read reads a snapshot into a new state. The index, if there is one, is left alone until
// FillIndex. The header is returned with an error too, as far as it was read.
func Read(
	r io.Reader, domain spiffeid.TrustDomain, index *index.Index, parallel Parallel,
) (state *State, header Header, err error) {
	dec := NewDecoder(bufio.NewReaderSize(r, 1<<16))
	if err := dec.Decode(&header); err != nil {
		return nil, header, err
	}

	switch {
	case !readsSnapshot(header.Version):
		return nil, header, NewerSnapshot(header.Version, NewestSnapshotVersion)
	case header.Domain != domain.Name():
		return nil, header, fmt.Errorf("it is of %s; this is a member of %s", header.Domain, domain.Name())
	case !header.whole():
		return nil, header, fmt.Errorf("its ledger of %d leaves has %d edges", header.Size, len(header.Edges))
	case min(header.Regs, header.Peerings, header.Streams) < 0:
		return nil, header, errors.New("it has a negative number of items")
	}

	state = New(domain, index)
	if err := state.readHeader(&header); err != nil {
		return nil, header, err
	}

	if err := state.readItems(dec, &header, parallel); err != nil {
		return state, header, err
	}

	// The index is built beside the streams, which it does not need.
	built := make(<-chan struct{})
	if index != nil {
		built = parallel.start(state.registrations.buildIndex)

		// After an error, too, the task must not build on while the caller drops the state.
		defer func() { <-built }()
	}

	for range header.Streams {
		if err := state.streams.read(dec, parallel); err != nil {
			return state, header, err
		}
	}

	// Behind the streams, because the next look depends on the announced deadline.
	for reg := range state.registrations.regs.each() {
		state.registrations.schedule(reg)
	}

	return state, header, nil
}

// readHeader takes over the members of a snapshot's header.
func (s *State) readHeader(header *Header) (err error) {
	s.history.epoch = header.Epoch
	s.history.revision = header.Revision
	s.history.now = header.Now
	s.history.ledger = ledger.Frontier{Size: header.Size, Edges: header.Edges}
	s.history.sealed = header.Sealed
	s.history.restored = header.Restored
	s.history.restoredBy = header.RestoredBy
	s.history.commands = header.Commands
	s.policy.basis = header.Policy
	s.policy.verdict = header.Verdict
	s.members.written = header.Written
	s.witness.own = header.Witnessed
	s.ordered.forgotten = header.Forgotten
	s.pins.restore(header.Pinned)

	if header.Rules != nil {
		s.owners.rules = *header.Rules
	}

	if header.Text != nil {
		s.policy.current = *header.Text
	}

	if header.Issued != nil {
		if s.keys.issued, err = signed.ParseKeyDocument(header.Issued); err != nil {
			return err
		}

		s.keys.revoked = s.keys.issued.Revoked
	}

	return nil
}

// readItems reads all items before the streams.
func (s *State) readItems(dec *cbor.Decoder, header *Header, parallel Parallel) error {
	thaw := func(item *regSnapshot) (*Registration, error) { return item.thaw(s.history.domain) }
	s.registrations.regs.reserve(min(header.Regs, maxReserved))

	return errors.Join(
		decodeEach(dec, header.Peerings, func(p Peer) { s.peers.byDomain[p.Domain] = directory.Peering(p) }),
		decodeEach(dec, header.Keys, func(k keySnapshot) {
			if k.Until != 0 {
				s.keys.rotated = append(s.keys.rotated, rotatedKey{k.key(), k.Until})
			} else {
				s.keys.byNode[k.Node] = k.key()
			}
		}),
		decodeEach(dec, header.Formers, s.owners.former.add),
		decodeEach(dec, header.Holds, s.owners.holds.restore),
		decodeEach(dec, header.Members, func(m Member) { s.members.byID[m.ID] = m }),
		decodeEach(dec, header.Admitted, func(a Admission) { s.members.admitted[a.ID] = a.Until }),
		decodeEach(dec, header.Standing, func(a Admission) { s.members.standing[a.Pattern] = a.Max }),
		decodeEach(dec, header.Spent, func(p Spend) { s.spent.add(p) }),
		decodeEach(dec, header.Ordered, func(p Spend) { s.ordered.add(p) }),
		decodeEach(dec, header.Claims, func(c claimed) { s.claims.add(&c) }),
		decodeEach(dec, header.Offers, s.offers.put),
		decodeEach(dec, header.Decided, s.decided.put),
		decodeEach(dec, header.Cosigned, s.witness.put),
		decodeEach(dec, header.Erased, s.erasures.add),
		decodeMany(dec, header.Regs, parallel, thaw, func(reg *Registration) {
			// Whether a registration is confirmed follows from its epoch, so snapshots don't have it.
			reg.entry.Unconfirmed = reg.epoch != header.Epoch || header.Sealed != ""
			reg.entry.Owner = s.owners.shared(reg.entry.Owner)
			reg.entry.Provenance = s.owners.named(reg.provenance())
			s.owners.count(reg.entry.Owner, reg.usage())
			s.registrations.regs.put(reg)
		}),
	)
}

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

// A part is a run of items that one task decodes.
type part[U any] struct {
	raws   []cbor.RawMessage
	thawed []U
	err    error
	done   <-chan struct{}
}

// partLength is how many items a part has.
const partLength = 256

// decodeMany is decodeEach of up to 10^6 items: the caller's goroutine reads, tasks
// decode and thaw, and each gets the items in order, one at a time.
func decodeMany[T, U any](
	dec decoder, n int, parallel Parallel, thaw func(*T) (U, error), each func(U),
) error {
	var underWay []*part[U]
	finish := func() error {
		p := underWay[0]
		underWay = underWay[1:]
		<-p.done

		if p.err != nil {
			return p.err
		}

		for _, v := range p.thawed {
			each(v)
		}

		return nil
	}

	// Tasks that are under way end before their items are let go of.
	defer func() {
		for _, p := range underWay {
			<-p.done
		}
	}()

	for n > 0 {
		p := &part[U]{raws: make([]cbor.RawMessage, min(n, partLength))}

		n -= len(p.raws)
		for i := range p.raws {
			if err := dec.Decode(&p.raws[i]); err != nil {
				return err
			}
		}

		p.done = parallel.start(func() { decodePart(p, thaw) })

		underWay = append(underWay, p)

		// The parts that are ahead are bounded, and with them the memory.
		if len(underWay) > parallel.Ahead {
			if err := finish(); err != nil {
				return err
			}
		}
	}

	for len(underWay) > 0 {
		if err := finish(); err != nil {
			return err
		}
	}

	return nil
}

func decodePart[T, U any](part *part[U], thaw func(*T) (U, error)) {
	part.thawed = make([]U, len(part.raws))
	for i, raw := range part.raws {
		var v T
		if part.err = Unmarshal(raw, &v); part.err == nil {
			part.thawed[i], part.err = thaw(&v)
		}

		if part.err != nil {
			return
		}
	}
}

// read reads one stream.
func (t *Streams) read(dec *cbor.Decoder, parallel Parallel) error {
	var header streamHeader
	if err := dec.Decode(&header); err != nil {
		return err
	}

	stream := newStream()
	t.byAudience[header.Audience] = stream
	stream.entries.reserve(min(header.Entries, maxReserved))
	err := decodeMany(dec, header.Entries, parallel, (*announcedSnapshot).thaw, func(a announced) {
		stream.entries.set(a)
		stream.order.add(place{a.revision, a.rid}, func(place) bool { return false })

		if d := a.digest(); !d.Live() {
			t.endings.Push(ending{a.highest + int64(directory.Skew.Seconds()), header.Audience, d.RID, d.Revision})
		}
	})
	stream.tip = header.Tip

	return err
}

func (w *announcedSnapshot) thaw() (announced, error) {
	d := signed.Digest{RID: w.RID, Revision: w.Revision, Op: w.Op, H: w.H, M: w.M, Deadline: w.Deadline,
		Lifetime: w.Lifetime}

	announced := announcedAs(d, w.Highest)
	if announced.op == 0 {
		return announced, fmt.Errorf("a digest of registration %s says %.20q, which this release does not know", w.RID,
			w.Op)
	}

	return announced, nil
}

// buildIndex prepares the index's new contents: the registrations and nothing else.
func (r *Registrations) buildIndex() {
	es := make([]*directory.Entry, 0, r.regs.len())
	for reg := range r.regs.each() {
		es = append(es, &reg.entry)
	}

	r.load = r.index.Build(es)
}

// FillIndex puts the registrations that were read into the index. It is called once.
func (r *Registrations) FillIndex() {
	r.load()
	r.load = nil
}
