package state

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A Snapshot is a sequence of CBOR items: a header, and the items whose numbers it gives, in an order that depends
// on the state alone, so equal states have equal snapshots. Master salts are inside.
type Snapshot struct {
	header   Header
	sections []section // in the order in which Read reads them
}

// A section writes the items of one kind.
type section func(put func(item any))

// add adds the items of one kind, and counts them in the header. Items that come from maps and heaps have no order of
// their own: they are sorted when they are written, because changes wait for the snapshot until then.
func add[T any](sn *Snapshot, count *int, items []T, order func(a, b T) int) {
	*count += len(items)

	sn.sections = append(sn.sections, func(put func(any)) {
		if order != nil {
			slices.SortFunc(items, order)
		}

		for _, item := range items {
			put(item)
		}
	})
}

type Header struct {
	Version    uint        `cbor:"1,keyasint"`
	Domain     string      `cbor:"2,keyasint"`
	Epoch      uint64      `cbor:"3,keyasint"`
	Revision   uint64      `cbor:"4,keyasint"`
	Now        int64       `cbor:"5,keyasint"`
	Policy     uint64      `cbor:"6,keyasint"`
	Size       uint64      `cbor:"7,keyasint"`
	Edges      []tlog.Hash `cbor:"8,keyasint"`
	Issued     []byte      `cbor:"9,keyasint"` // the key document's payload
	Peerings   int         `cbor:"10,keyasint"`
	Keys       int         `cbor:"11,keyasint"`
	Formers    int         `cbor:"12,keyasint"`
	Regs       int         `cbor:"13,keyasint"`
	Streams    int         `cbor:"14,keyasint"`
	Rules      *Rules      `cbor:"15,keyasint,omitempty"` // null where there are none
	Holds      int         `cbor:"16,keyasint,omitempty"`
	Members    int         `cbor:"17,keyasint,omitempty"`
	Admitted   int         `cbor:"18,keyasint,omitempty"`
	Sealed     string      `cbor:"19,keyasint,omitempty"`
	Spent      int         `cbor:"20,keyasint,omitempty"`
	Text       *policyText `cbor:"21,keyasint,omitempty"` // null where none was made
	Claims     int         `cbor:"22,keyasint,omitempty"`
	Verdict    *Verdict    `cbor:"23,keyasint,omitempty"`
	Restored   uint64      `cbor:"24,keyasint,omitempty"` // of a sealed state: the backup's revision
	Written    Numbers     `cbor:"25,keyasint"`
	Offers     int         `cbor:"26,keyasint,omitempty"` // from version 2 on, as the next
	Commands   uint64      `cbor:"40,keyasint,omitempty"`
	Standing   int         `cbor:"41,keyasint,omitempty"`
	RestoredBy *Origin     `cbor:"42,keyasint,omitempty"`
	Decided    int         `cbor:"43,keyasint,omitempty"`
	Cosigned   int         `cbor:"44,keyasint,omitempty"`
	Witnessed  Witnessed   `cbor:"45,keyasint,omitzero"` // from version 2 on, as Cosigned
	Ordered    int         `cbor:"46,keyasint,omitempty"`
	Forgotten  int64       `cbor:"47,keyasint,omitempty"` // Unix seconds: the end of operators' proofs
	Erased     int         `cbor:"48,keyasint,omitempty"`
	Pinned     pinned      `cbor:"49,keyasint,omitzero"`

	headerNext
}

type regSnapshot struct {
	RID          directory.RID        `cbor:"1,keyasint"`
	Agent        string               `cbor:"2,keyasint"`
	Owner        directory.Identity   `cbor:"3,keyasint"`
	Kind         directory.Kind       `cbor:"4,keyasint"`
	Document     []byte               `cbor:"5,keyasint"` // as it rests
	Visibility   directory.Visibility `cbor:"6,keyasint"`
	Lifetime     uint32               `cbor:"7,keyasint"`
	RegisteredAt int64                `cbor:"8,keyasint"`
	UpdatedAt    int64                `cbor:"9,keyasint"`
	ExpiresAt    int64                `cbor:"10,keyasint"`
	Created      uint64               `cbor:"11,keyasint"`
	Revision     uint64               `cbor:"12,keyasint"`
	Statement    uint64               `cbor:"13,keyasint"`
	Grants       []grant              `cbor:"14,keyasint"`
	H            directory.Hash       `cbor:"15,keyasint"`
	Format       int                  `cbor:"16,keyasint"`
	Epoch        uint64               `cbor:"17,keyasint"`
	Prev         directory.Hash       `cbor:"18,keyasint"`
	Issued       int64                `cbor:"19,keyasint"`
	Leaf         uint64               `cbor:"20,keyasint"`
	Salt         signed.Salt          `cbor:"21,keyasint"`
	Until        int64                `cbor:"22,keyasint,omitempty"`
	Packed       Packed               `cbor:"23,keyasint"`
	Others       *provenance          `cbor:"24,keyasint,omitempty"` // null if there are no others
	From         spiffeid.ID          `cbor:"25,keyasint,omitzero"`
}

type streamHeader struct {
	Audience directory.Audience `cbor:"1,keyasint"`
	Tip      uint64             `cbor:"2,keyasint"`
	Entries  int                `cbor:"3,keyasint"`
}

type announcedSnapshot struct {
	RID      directory.RID  `cbor:"1,keyasint"`
	Revision uint64         `cbor:"2,keyasint"`
	Op       signed.Op      `cbor:"3,keyasint"`
	H        directory.Hash `cbor:"4,keyasint"`
	M        directory.Hash `cbor:"5,keyasint"`
	Deadline int64          `cbor:"6,keyasint"`
	Lifetime uint32         `cbor:"7,keyasint"`
	Highest  int64          `cbor:"8,keyasint"`
}

// Snapshot takes the state as it is. Large lists are shared and copied only where they
// change later. The caller keeps Apply apart.
func (s *State) Snapshot() *Snapshot {
	regs := s.registrations.regs.share()

	sn := &Snapshot{header: Header{
		Version: s.members.written.Snapshot, Domain: s.history.domain.Name(), Epoch: s.history.epoch,
		Revision: s.history.revision, Now: s.history.now,
		Policy: s.policy.basis, Verdict: s.policy.verdict, Size: s.history.ledger.Size,
		Edges:   slices.Clone(s.history.ledger.Edges),
		Written: s.members.written, Regs: regs.n, Streams: len(s.streams.byAudience),
		Sealed: s.history.sealed, Restored: s.history.restored, RestoredBy: s.history.restoredBy,
		Commands: s.history.commands, Forgotten: s.ordered.forgotten, Witnessed: s.witness.own,
		Pinned: s.pins.snapshot(),
	}}
	header := &sn.header

	if !s.owners.rules.Equal(&Rules{}) {
		rules := s.owners.rules
		header.Rules = &rules
	}

	if s.policy.current.Revision != 0 {
		current := s.policy.current
		header.Text = &current
	}

	if s.keys.issued != nil {
		header.Issued = s.keys.issued.Payload()
	}

	if header.Version > FirstVersion {
		header.headerNext = nextHeader()
	}

	add(sn, &header.Peerings, s.peers.snapshot(), nil)
	add(sn, &header.Keys, s.keys.snapshot(), nil)
	add(sn, &header.Formers, slices.Clip(s.owners.former.queue), nil) // later appends do not change it
	add(sn, &header.Holds, s.owners.holds.all(), nil)
	add(sn, &header.Members, s.members.List(), nil)
	add(sn, &header.Admitted, s.members.Admissions(), nil)
	add(sn, &header.Standing, s.members.Standing(), nil)
	add(sn, &header.Spent, s.spent.queue.Items(), Spend.Compare)
	add(sn, &header.Ordered, s.ordered.queue.Items(), Spend.Compare)
	add(sn, &header.Claims, slices.Collect(maps.Values(s.claims.known)), func(a, b *claimed) int {
		return bytes.Compare(a.Key[:], b.Key[:])
	})
	add(sn, &header.Offers, s.offers.all(), nil)
	add(sn, &header.Decided, s.decided.inForce(s).list(), nil)
	add(sn, &header.Cosigned, s.witness.all(), nil)
	add(sn, &header.Erased, slices.Clip(s.erasures.queue), nil) // later appends do not change it

	sn.sections = append(sn.sections, func(put func(any)) {
		for _, r := range regs.sorted(func(a, b **Registration) int { return (*a).entry.RID.Compare((*b).entry.RID) }) {
			put((*r).freeze())
		}
	})

	for _, aud := range slices.SortedFunc(maps.Keys(s.streams.byAudience), byName) {
		sn.sections = append(sn.sections, s.streams.byAudience[aud].snapshot(aud))
	}

	return sn
}

// snapshot returns the items of a stream.
func (s *stream) snapshot(audience directory.Audience) section {
	header, entries := streamHeader{audience, s.tip, s.entries.len()}, s.entries.share()

	return func(put func(any)) {
		put(header)

		for _, a := range entries.sorted(func(a, b *announced) int { return cmp.Compare(a.revision, b.revision) }) {
			put(announcedSnapshot{a.rid, a.revision, ops[a.op], a.h, a.m, a.deadline, a.lifetime, a.highest})
		}
	}
}

// Write writes the snapshot, one item at a time.
func (sn *Snapshot) Write(w io.Writer) error {
	enc := NewEncoder(w)
	err := enc.Encode(sn.header)

	for _, write := range sn.sections {
		write(func(item any) {
			if err == nil {
				err = enc.Encode(item)
			}
		})
	}

	return err
}

func (r *Registration) freeze() regSnapshot {
	entry := &r.entry

	return regSnapshot{
		entry.RID, entry.Agent, entry.Owner, entry.Document.Kind(), entry.Document.StoredBytes(), entry.Visibility,
		entry.Lifetime,
		entry.RegisteredAt, entry.UpdatedAt, entry.ExpiresAt, entry.Created, entry.Revision, entry.Statement,
		GrantsOf(r.grants), r.h, r.format, r.epoch, r.prev, r.issued, r.leaf, r.salt, r.until,
		Packed{directory.PackedVersion, entry.Packed.Code()}, (*provenance)(entry.Provenance),
		memberOf(r.from),
	}
}

// document returns the item's document and projection. A projection of another release is
// made again.
func (w *regSnapshot) document() (directory.Document, directory.Packed, error) {
	if w.Packed.Version == directory.PackedVersion {
		doc := directory.LoadDocument(w.Kind, w.Document)

		// To unpack the two finds damage to either.
		_, err := directory.Unpack(doc, w.Packed.Code)

		return doc, directory.LoadPacked(w.Packed.Code), err
	}

	doc, err := directory.LoadStored(w.Kind, w.Document)
	if err != nil {
		return doc, directory.Packed{}, err
	}

	return doc, project(w.Agent, doc), nil
}

func (w *regSnapshot) thaw(domain spiffeid.TrustDomain) (*Registration, error) {
	doc, packed, err := w.document()
	if err != nil {
		return nil, fmt.Errorf("registration %s: %w", w.RID, err)
	}

	entry := directory.Entry{
		Origin: domain, RID: w.RID, Agent: w.Agent, Owner: w.Owner, Document: doc, Packed: packed,
		Visibility: w.Visibility, Lifetime: w.Lifetime, RegisteredAt: w.RegisteredAt, UpdatedAt: w.UpdatedAt,
		ExpiresAt: w.ExpiresAt, Created: w.Created, Revision: w.Revision, Statement: w.Statement,
		Provenance: (*directory.Provenance)(w.Others),
	}
	entry.Compact()

	return &Registration{
		entry: entry, grants: Granted{Grants: w.Grants}.List(), h: w.H, format: w.Format, epoch: w.Epoch, prev: w.Prev,
		issued: w.Issued, leaf: w.Leaf, salt: w.Salt, until: w.Until, from: handleOf(w.From),
	}, nil
}
